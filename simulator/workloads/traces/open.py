"""A file -> the trace in it, by its form."""

from pathlib import Path
from typing import Final

from simulator.errors import SimulationError
from simulator.fleet import Fleet
from simulator.streams import random_stream
from simulator.workloads.countries import nearest_regions
from simulator.workloads.country_places import COUNTRIES
from simulator.workloads.named import by_weight
from simulator.workloads.options import WorkloadOptions
from simulator.workloads.text_tokens import encode_pieces, encode_with
from simulator.workloads.tokens import TokenSource
from simulator.workloads.traces.azure import read_azure
from simulator.workloads.traces.chat_export import read_chat_export
from simulator.workloads.traces.conversations import Told
from simulator.workloads.traces.hashed import read_bailian, read_mooncake
from simulator.workloads.traces.plain import read_plain
from simulator.workloads.traces.row import TraceError, json_rows
from simulator.workloads.traces.sharegpt import read_sharegpt
from simulator.workloads.traces.trace import Reader, Trace

ENDINGS: Final = (".jsonl", ".json", ".csv")
PARQUET: Final = ".parquet"
"""Known, in order to say what to do with it, and not read."""
_WITHOUT_TEXTS: Final = ("azure", "mooncake", "bailian")
_PAUSE_S: Final = 5.0
"""Mean pause of a user, where a file does not tell (see `ChatRules`)."""


def open_trace(path: Path, fleet: Fleet, seed: int, options: WorkloadOptions) -> tuple[Trace, Reader]:
    """Return a file's trace, and what reads its entries once more from the beginning.

    `.csv` is Azure's form and `.json` ShareGPT's; of JSON lines the first tells by its fields: `chat_id` and
    `hash_ids` are Bailian's, `hash_ids` alone Mooncake's, `conversation` is WildChat's and LMSYS's export,
    `prompt` is one's own.

    Raises:
        TraceError: With file, line and field.
        SimulationError: A tokenizer is given, and nothing to use it on.
    """
    form, read = _reader(path, fleet, seed, options)
    if options.tokenizer is not None and form in _WITHOUT_TEXTS:
        raise SimulationError(f"{path} has no texts to cut; leave it out", field="tokenizer")
    return Trace(f"{form} {path.name}", read), read


def _reader(path: Path, fleet: Fleet, seed: int, options: WorkloadOptions) -> tuple[str, Reader]:
    tokens, regions = TokenSource(seed), by_weight(fleet, seed)
    encode = encode_pieces if options.tokenizer is None else encode_with(options.tokenizer)
    told = Told(encode, regions, random_stream(seed, "workload.pauses"), _PAUSE_S)
    if path.suffix == ".csv":
        return "azure", lambda: read_azure(path, regions, tokens)
    if path.suffix == ".json":
        return "sharegpt", lambda: read_sharegpt(path, told)
    if path.suffix == PARQUET:
        raise TraceError(
            f"{path}: Parquet is not read; write it as JSON lines, such as by"
            f" duckdb -c \"COPY (FROM '{path.name}') TO '{path.stem}.jsonl' (FORMAT json)\"",
            field="workload",
        )
    first = next(json_rows(path), None)
    if first is None:
        raise TraceError(f"{path}: empty", field="workload")
    if "hash_ids" in first and "chat_id" in first:
        return "bailian", lambda: read_bailian(path, regions, tokens)
    if "hash_ids" in first:
        return "mooncake", lambda: read_mooncake(path, regions, tokens)
    if "conversation" in first:
        near = nearest_regions(list(COUNTRIES), fleet.plan.regions)
        nearest = {} if near is None else dict(zip(COUNTRIES, near, strict=True))
        return "chat", lambda: read_chat_export(path, nearest, told)
    if "prompt" in first:
        return "plain", lambda: read_plain(path, regions, fleet.plan.regions, tokens, encode)
    raise first.error("prompt", "unknown form: expected hash_ids, conversation, or prompt and answer")
