"""One table through its life: filled, edited at three occupancies, its patches applied, copied, read.

The writer edits in batches of 256 keys as a unit does; times are a key's share of a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.index.results import Results
from bench.index.tables import BATCH, full_writer, random_keys, shape_for
from bench.index.timing import Timing, clock_ns, once_ms, quiet, timed, timing
from bench.resident import settled_bytes
from kvcompass.index import IndexView, Patches
from kvcompass.roles.messages import PatchGroups
from services.wire.index import decode_unit_to_edge, encode_unit_to_edge

FULL = 0.95
AROUND = {85: (0.83, 0.87), 90: (0.89, 0.91), 95: (0.93, 0.95)}
"""Percent of slots taken, and the span over which inserting is timed."""
EDITED = 0.02
"""Share of the slots that are updated and removed at 85 %."""
SAMPLE = 1_000_000
"""Keys looked up."""
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
        before = settled_bytes()
        self.writer = full_writer(self.shape)
        self._resident = before
        self._filled = 0
        self._sequence = 0

    def run(self) -> None:
        """Everything, in the order of a table's life."""
        for percent, (start, end) in AROUND.items():
            self._insert(start)
            if percent == 85:
                self._copies("at 83 %")
            time, stream = self._insert(end)
            self.results.time(f"insert at {percent} %", time, "insert_us", at=f"_{percent}")
            if percent == 85:
                self._apply("insert", stream, "apply_per_s")
                self._edit_in_place()
            del stream
        del self.views
        bits = 8 * (settled_bytes() - self._resident) / self.writer.entries
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
        time, stream = self._edits(keys, 0, 2)
        self.results.time("update at 85 %", time, "update_us")
        self._apply("update", stream, "apply_updates_per_s")
        time, _ = self._edits(keys, 0, 0)
        self.results.time("remove at 85 %", time, "remove_us")
        self._edits(keys, 0, 1)

    def _edits(self, keys: NDArray[np.uint64], slot: int, tier: int) -> tuple[Timing, _Stream]:
        """Edit whole batches; a rest shorter than a batch is edited too and not timed."""
        tiers = np.full(BATCH, tier, np.uint8)
        took: list[int] = []
        made: list[Patches] = []
        with quiet():
            for at in range(0, keys.size, BATCH):
                batch = keys[at : at + BATCH]
                began = clock_ns()
                patches = self.writer.edit(batch, 0, slot, tiers[: batch.size])
                if batch.size == BATCH or not took:
                    took.append((clock_ns() - began) * BATCH // batch.size)
                made.append(patches)
        stream = _Stream(self._sequence + 1)
        stream.groups = sum(patches.groups for patches in made)
        stream.payload = b"".join(patches.payload for patches in made)
        self._sequence += stream.groups
        return timing(took or [1], BATCH), stream

    def _apply(self, what: str, stream: _Stream, path: str) -> None:
        """Groups a second into two views that are exact where the stream begins.

        From wire bytes is decoding protobuf and applying; in kernel is applying alone: check and write.
        """
        messages = list(stream.messages())
        groups = min(GROUPS_A_MESSAGE, stream.groups)
        wire, kernel = self.views

        def receive(data: bytes) -> None:
            message = decode_unit_to_edge(data)
            assert isinstance(message, PatchGroups)
            wire.apply(0, message.first_sequence, message.count, message.payload)

        def apply(message: PatchGroups) -> None:
            kernel.apply(0, message.first_sequence, message.count, message.payload)

        for name, run in (
            ("wire", timed(receive, [encode_unit_to_edge(message) for message in messages])),
            ("kernel", timed(apply, messages)),
        ):
            per_s = groups * 1e6 / run.p50_us
            self.results.figure(f"{what} groups applied a second, {name}", per_s, f"{path}.{name}")
        assert wire.applied_sequence(0) == kernel.applied_sequence(0) == stream.first + stream.groups - 1
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
        self.views = IndexView(self.shape), IndexView(self.shape)
        for view in self.views:
            load = once_ms(lambda into=view: into.load_snapshot(0, data, self._sequence, digest))
            assert view.digest(0) == digest
        put("load snapshot", load)
        put("digest", once_ms(self.writer.digest))
        if path:
            self.results.figure(f"snapshot {when}, MB", len(data) / 1e6)

    def _lookups(self) -> None:
        """Single keys, and a million at once: held ones and strangers."""
        rng = np.random.default_rng(3)
        held = rng.choice(self.keys[: self._filled], SAMPLE)
        one = [held[i : i + 1] for i in range(SAMPLE // 50)]
        self.results.time("look up one key (a call)", timed(self.views[0].lookup, one), "lookup1_us")
        self.views[0].lookup(held[:10])
        for what, keys in (("held", held), ("unknown", random_keys(held.size, 4))):
            slices = np.array_split(keys, 10)
            bulk = timed(self.views[0].lookup, slices, SAMPLE // 10)
            self.results.figure(
                f"look up in bulk, {what} keys, ns a key", 1e3 * bulk.p50_us, f"bulk_lookup_ns.{what}"
            )
        assert self.views[0].lookup(held[:1000]).all()
