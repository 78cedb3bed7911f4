"""Traces of hashed blocks: Mooncake's and Qwen-Bailian's."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from simulator.request import Request
from simulator.workloads.tokens import TokenSource
from simulator.workloads.traces.blocks import BlockContent
from simulator.workloads.traces.regions import Homes, Regions
from simulator.workloads.traces.row import json_rows
from simulator.workloads.traces.sessions import Sessions
from simulator.workloads.traces.trace import Entry, InOrder
from simulator.workloads.workload import Turn

MOONCAKE_BLOCK: Final = 512
BAILIAN_BLOCK: Final = 16
_REMEMBERED: Final = 1 << 18
"""Conversations whose region is kept."""


def read_mooncake(path: Path, regions: Regions, tokens: TokenSource) -> Iterator[Entry]:
    """Read JSON lines of `timestamp` (ms), `input_length`, `output_length` and `hash_ids` (512 tokens a
    block).

    Later turns start where their conversation did; see `Sessions`.

    Raises:
        TraceError: With file, line and field.
    """
    content, sessions, homes = (
        BlockContent(MOONCAKE_BLOCK),
        Sessions(MOONCAKE_BLOCK),
        Homes(regions, _REMEMBERED),
    )
    times = InOrder()
    for number, row in enumerate(json_rows(path)):
        at_us = times.check(row, "timestamp", round(1_000 * row.number("timestamp")))
        length, answer = row.tokens("input_length", least=1), row.tokens("output_length")
        ids = row.integers("hash_ids")
        content.check(row, ids, length)
        root = sessions.root(number, at_us, ids, length, answer)
        yield _entry(content, tokens, at_us, homes, root, ids, length, answer, "chat")


def read_bailian(path: Path, regions: Regions, tokens: TokenSource) -> Iterator[Entry]:
    """Read JSON lines of `chat_id`, `parent_chat_id` (-1: none), `timestamp` (s), `input_length`,
    `output_length`, `type`, `turn` and `hash_ids` (16 tokens a block).

    Raises:
        TraceError: With file, line and field.
    """
    content, homes = BlockContent(BAILIAN_BLOCK), Homes(regions, _REMEMBERED)
    roots: dict[int, int] = {}
    times = InOrder()
    for row in json_rows(path):
        at_us = times.check(row, "timestamp", round(1_000_000 * row.number("timestamp")))
        chat, parent = row.integer("chat_id"), row.integer("parent_chat_id", least=-1)
        root = roots[chat] = chat if parent < 0 else roots.get(parent, parent)
        if len(roots) > _REMEMBERED:
            del roots[next(iter(roots))]
        length, answer = row.tokens("input_length", least=1), row.tokens("output_length")
        ids = row.integers("hash_ids")
        content.check(row, ids, length)
        category = f"{row.text('type')} {row.integer('turn')}"
        yield _entry(content, tokens, at_us, homes, root, ids, length, answer, category)


def _entry(
    content: BlockContent,
    tokens: TokenSource,
    at_us: int,
    homes: Homes,
    root: int,
    ids: Sequence[int],
    length: int,
    answer: int,
    category: str,
) -> Entry:
    def begin(id_: int, arrives_us: int) -> Turn:
        prompt = content.prompt(ids, length, tokens)
        answered = tokens.answer(max(answer, 1))
        region, family = homes.of(root), f"session {root}"
        return Turn(Request(id_, arrives_us, region, prompt, answered, 0, category, family))

    return Entry(at_us, 1, begin)
