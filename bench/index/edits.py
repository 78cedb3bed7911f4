"""One table through its life: filled, edited at three occupancies, its patches applied, copied, read.

The writer edits in batches of 256 keys as a unit does; times are a key's share of a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from bench.index.keys import BATCH, random_keys, shape_for
from bench.index.memory import resident_bytes
from bench.index.results import Results
from bench.index.timing import Timing, once_ms, quiet, timed, timing
from kvcompass.index import IndexView, Patches, ShardTables
from kvcompass.kernels.patch_records import apply_groups
from kvcompass.roles.messages import PatchGroups
from services.wire.index import decode_unit_to_edge, encode_unit_to_edge

FULL = 0.95
AROUND = {85: (0.83, 0.87), 90: (0.89, 0.91), 95: (0.93, 0.95)}
"""Percent of slots taken, and the span over which inserting is timed."""
EDITED = 0.02
"""Share of the slots that are updated and removed at 85 %."""
GROUPS_A_MESSAGE = 4_096
"""Patch groups a message to an edge: a unit of 1e5 edits a second sends some 25 such."""


@dataclass(slots=True)
class _Stream:
    """The patches of timed batches, as one run from `first`."""

    first: int
    groups: int = 0
    payload: bytes = b""

    def messages(self) -> Iterator[PatchGroups]:
        words = np.frombuffer(self.payload, "<u4")
        at, sequence, left = 0, self.first, self.groups
        while left:
            count, end = min(left, GROUPS_A_MESSAGE), at
            for _ in range(count):
                end += int(words[end])
            yield PatchGroups(1, sequence, count, self.payload[4 * at : 4 * end])
            at, sequence, left = end, sequence + count, left - count


class OneTable:
    """A writer and a view of one table, and the measures on them."""

    def __init__(self, entries: int, results: Results) -> None:
        self.results = results
        self.keys = random_keys(entries, 1)
        self.slots = entries / FULL
        self.shape = shape_for(entries, FULL)
        before = resident_bytes()
        self.writer = ShardTables(self.shape, 0, random_seed=1)
        self._resident = before
        self._filled = 0
        self._sequence = 0

    def run(self) -> None:
        """Everything, in the order of a table's life."""
        for percent, (start, end) in AROUND.items():
            self._insert(start)
            if percent == 85:
                self._copies("at 83 %")
            timing, stream = self._insert(end)
            paths = (f"insert_us.p50_{percent}", f"insert_us.p99_{percent}")
            self.results.time(f"insert at {percent} %", timing, *paths)
            if percent == 85:
                self._apply("insert", stream, "apply_per_s")
                self._edit_in_place()
        bits = 8 * (resident_bytes() - self._resident) / self.writer.entries
        self.results.figure("writer, bits an entry at 95 % (resident)", bits, "writer_bits_per_entry")
        occupancy = self.writer.entries / self.writer.slots
        image = self.writer.image_bits / self.writer.entries
        self.results.figure("occupancy at the end", occupancy, "occupancy")
        self.results.figure("view, bits an entry there", image, "view_bits_per_entry.default")
        self.results.figure("tables rebuilt", float(self.writer.rebuilds), "rebuilds")
        self.results.figure("edges pinned ever", float(self.writer.pinned_ever), "pinned_ever")
        self._copies("at 95 %", "copies_ms")
        self._lookups()

    def _insert(self, occupancy: float) -> tuple[Timing, _Stream]:
        """Insert until the table is so full."""
        end = min(self.keys.size, int(occupancy * self.slots))
        keys = self.keys[self._filled : end]
        self._filled = max(end, self._filled)
        return self._edits(keys, 0, 1)

    def _edit_in_place(self) -> None:
        """Updates and removals of random keys; what was removed comes back, untimed."""
        some = np.random.default_rng(2).permutation(self._filled)[: int(EDITED * self.slots)]
        keys = self.keys[some]
        timing, stream = self._edits(keys, 0, 2)
        self.results.time("update at 85 %", timing, "update_us.p50", "update_us.p99")
        self._apply("update", stream, "apply_updates_per_s")
        timing, stream = self._edits(keys, 0, 0)
        self.results.time("remove at 85 %", timing, "remove_us.p50", "remove_us.p99")
        self._edits(keys, 0, 1)

    def _edits(self, keys: NDArray[np.uint64], slot: int, tier: int) -> tuple[Timing, _Stream]:
        """Edit whole batches; a rest shorter than a batch is edited too and not timed."""
        tiers = np.full(BATCH, tier, np.uint8)
        took: list[int] = []
        made: list[Patches] = []
        with quiet():
            for at in range(0, keys.size, BATCH):
                batch = keys[at : at + BATCH]
                began = perf_counter_ns()
                patches = self.writer.edit(batch, 0, slot, tiers[: batch.size])
                if batch.size == BATCH or not took:
                    took.append((perf_counter_ns() - began) * BATCH // batch.size)
                made.append(patches)
        stream = _Stream(self._sequence + 1)
        stream.groups = sum(patches.groups for patches in made)
        stream.payload = b"".join(patches.payload for patches in made)
        self._sequence += stream.groups
        return timing(took or [1], BATCH), stream

    def _apply(self, what: str, stream: _Stream, path: str) -> None:
        """Groups a second into a view that is exact at 83 %: from protobuf bytes, and the kernel alone.

        The kernel runs over the same groups again, which changes nothing: they are absolute.
        """
        messages = list(stream.messages())
        wire = [encode_unit_to_edge(message) for message in messages]
        view = self.view
        first = view.applied_sequence(0) + 1
        shift = stream.first - first

        def receive(data: bytes) -> None:
            message = decode_unit_to_edge(data)
            assert isinstance(message, PatchGroups)
            result = view.apply(0, message.first_sequence - shift, message.count, message.payload)
            assert result.applied == message.count

        run = timed(receive, wire, 1)
        groups = min(GROUPS_A_MESSAGE, stream.groups)
        per_s = groups * 1e6 / run.p50_us
        self.results.figure(f"{what} groups a second, from wire bytes", per_s, f"{path}.wire")
        words = [np.frombuffer(message.payload, "<u4").astype(np.uint32) for message in messages]
        run = timed(lambda each: apply_groups(each, 0, view.words, view.directory, 0), words, 1)
        per_s = groups * 1e6 / run.p50_us
        self.results.figure(f"{what} groups a second, kernel", per_s, f"{path}.kernel")
        self.results.figure(f"{what}, bytes a group", len(stream.payload) / max(1, stream.groups))

    def _copies(self, when: str, path: str = "") -> None:
        """Snapshot, its load into a view, and the digest of both."""
        data = b""

        def snapshot() -> None:
            nonlocal data
            data = self.writer.snapshot()

        def put(name: str, value: float) -> None:
            self.results.figure(
                f"{name} {when}, ms", value, *([f"{path}.{name.replace(' ', '_')}"] if path else [])
            )

        put("snapshot", once_ms(snapshot))
        digest = self.writer.digest()
        self.view = IndexView(self.shape)
        put("load snapshot", once_ms(lambda: self.view.load_snapshot(0, data, self._sequence, digest)))
        put("digest", once_ms(self.writer.digest))
        assert self.view.digest(0) == digest
        if path:
            self.results.figure(f"snapshot {when}, MB", len(data) / 1e6)

    def _lookups(self) -> None:
        """Single keys, and a million at once: held ones and strangers."""
        rng = np.random.default_rng(3)
        held = rng.choice(self.keys[: self._filled], 1_000_000)
        one = [held[i : i + 1] for i in range(20_000)]
        self.results.time(
            "look up one key (a call)", timed(self.view.lookup, one), "lookup1_us.p50", "lookup1_us.p99"
        )
        self.view.lookup(held[:10])
        for what, keys in (("held", held), ("unknown", random_keys(held.size, 4))):
            slices = [keys[at : at + 100_000] for at in range(0, keys.size, 100_000)]
            bulk = timed(self.view.lookup, slices, 100_000)
            self.results.figure(
                f"look up in bulk, {what} keys, ns a key", 1e3 * bulk.p50_us, f"bulk_lookup_ns.{what}"
            )
        assert self.view.lookup(held[:1000]).all()
