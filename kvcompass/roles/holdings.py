"""What a worker holds, as (key, tier) at the registered lengths: engine events in, absolute edits out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from kvcompass.engine_events import EngineNews
from kvcompass.keys import PrefixHasher, shard_of, shards_of
from kvcompass.roles.block_tree import BlockTree, TreeCounters, TreeLimits
from kvcompass.roles.event_intake import BlockSizeMismatch, EventCounters, EventIntake
from kvcompass.roles.length_cap import LengthCap
from kvcompass.roles.shard_digest import ShardDigests


class RepeatedStores(Enum):
    """What a second store of a resident block means. It depends on the engine (`docs/decisions/0501`)."""

    COUNTED = "counted"
    """Another copy: as many removals are needed. SGLang: equal tokens of two adapters share a hash."""
    IDEMPOTENT = "idempotent"
    """The same news again. vLLM re-emits stores."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardEdits:
    """Absolute tiers of one worker at keys of one shard: in the order they changed."""

    shard: int
    tiers: Mapping[int, int]
    """By key; 0 where a prefix is no longer held. At least one."""


class Holdings:
    """A worker's block tree and what of it was last reported, by shard. One writer: the worker agent.

    Every change is net: `apply` returns one set of edits for a whole batch, without the keys that ended where
    they began.
    """

    def __init__(
        self,
        namespace: bytes,
        *,
        block_size: int,
        lengths: npt.NDArray[np.int32],
        shards: int,
        repeated_stores: RepeatedStores,
        limits: TreeLimits,
        keys_max: int = 1 << 62,
    ) -> None:
        """Start with nothing held.

        Args:
            namespace: Of the keys; from `kvcompass.keys.namespace` with the sharing group's salt.
            block_size: Tokens a block of the engine; it divides every length. The plan's, until it is known.
            lengths: int32[n], registered lengths.
            shards: Number of shards the keys are spread over.
            repeated_stores: The engine's habit.
            limits: Bounds on memory.
            keys_max: Keys registered, at most; above it the longest are not (`LengthCap`).
        """
        self._shards = shards
        self._tree = BlockTree(
            PrefixHasher(namespace),
            lengths.tolist(),
            block_size=block_size,
            counted=repeated_stores is RepeatedStores.COUNTED,
            limits=limits,
        )
        self._intake = EventIntake(self._tree, block_size, _quantum(lengths), foreign_max=limits.detached)
        self._held: dict[int, int] = {}
        """Length << 2 | tier by key, held keys only; those above the cap's length are not reported."""
        self._counts: Counter[int] = Counter()
        """Held keys by length."""
        self._lengths: list[int] = lengths.tolist()
        self._cap = LengthCap(self._lengths, keys_max)
        self._keys_max = keys_max
        self._registered_length = self._cap.length
        self._digests = ShardDigests(shards)

    @property
    def block_size(self) -> int:
        """Tokens a block of the engine."""
        return self._intake.block_size

    @property
    def blocks(self) -> int:
        """Resident blocks, detached ones too."""
        return len(self._tree)

    @property
    def cached_blocks(self) -> int:
        """Resident blocks, each as often as it was stored in VRAM."""
        return len(self._tree) + self._tree.repeated

    @property
    def is_shared(self) -> bool:
        """Blocks that are not counted here have been in the cache since it was last cleared."""
        return self._intake.shared

    @property
    def detached(self) -> int:
        """Resident blocks that no prefix reaches."""
        return self._tree.detached

    @property
    def events(self) -> EventCounters:
        """Events by what became of them."""
        return self._intake.counters

    @property
    def tree(self) -> TreeCounters:
        """What the block tree met and did not expect."""
        return self._tree.counters

    @property
    def left_out(self) -> int:
        """Events and blocks not taken in, so that less is known than is held. Monotonic."""
        tree = self._tree.counters
        return (
            self.events.malformed
            + tree.conflicting_stores
            + tree.unknown_copies
            + tree.dropped_blocks
            + tree.refused_blocks
        )

    @property
    def unregistered(self) -> int:
        """Keys held but not registered, because there are too many."""
        return len(self._held) - len(self)

    @property
    def registered_length(self) -> int:
        """Longest length registered, tokens."""
        return self._registered_length

    def __len__(self) -> int:
        return self._digests.total

    def apply(self, events: Sequence[EngineNews]) -> tuple[ShardEdits, ...] | BlockSizeMismatch:
        """Take in one engine batch and return what changed, by shard, for shards where something did.

        Where removals may have been lost, everything before is forgotten (`docs/decisions/0506`).
        A `BlockSizeMismatch` stops the batch at the event that shows it; the worker is to be refused.
        """
        mismatch = self._intake.take(events)
        if mismatch is not None:
            return mismatch
        return self._edits()

    def clear(self) -> tuple[ShardEdits, ...]:
        """Forget everything; return the withdrawals."""
        self._intake.clear()
        return self._edits()

    def use_block_size(self, block_size: int) -> None:
        """The engine's blocks have so many tokens, which divide every length. Nothing is held."""
        self._intake.use_block_size(block_size)

    def use_tiers(self, *, told: bool) -> None:
        """Whether the engine says in which tier a block is; if not, all counts as DRAM. Nothing is held."""
        self._intake.use_tiers(told=told)

    def use_lengths(self, lengths: npt.NDArray[np.int32], keys_max: int) -> tuple[ShardEdits, ...]:
        """Register at other lengths, or under another bound of keys; return what changed, by shard.

        O(tokens held) when the lengths differ: 0.3 s for 10 million.
        """
        if (lengths.tolist(), keys_max) == (self._lengths, self._keys_max):
            return ()
        if lengths.tolist() != self._lengths:
            self._lengths = lengths.tolist()
            self._tree.use_lengths(self._lengths)
            self._intake.quantum = _quantum(lengths)
        self._keys_max = keys_max
        self._cap = LengthCap(self._lengths, keys_max)
        return self._capped_edits(self._changes())

    def digest(self, shard: int) -> int:
        """Return the digest of what is registered in a shard. O(changes since the last call)."""
        return self._digests.digest(shard)

    def count(self, shard: int) -> int:
        """Return the number of keys registered in a shard. O(1)."""
        return self._digests.count(shard)

    def report(self, shard: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        """Return everything registered in a shard: keys (uint64[n]) and tiers (uint8[n]). O(keys held)."""
        keys = np.fromiter(self._held.keys(), dtype=np.uint64, count=len(self._held))
        held = np.fromiter(self._held.values(), dtype=np.int64, count=len(self._held))
        here = (shard_of(keys, self._shards) == shard) & (held >> 2 <= self._registered_length)
        return keys[here], (held[here] & 3).astype(np.uint8)

    def _edits(self) -> tuple[ShardEdits, ...]:
        changes = self._changes()
        if not self._cap.stands(len(self._held)):
            return self._capped_edits(changes)
        return self._by_shard([(key, old & 3, new & 3) for key, old, new in changes]) if changes else ()

    def _changes(self) -> list[tuple[int, int, int]]:
        """Keys that are held otherwise than before: length << 2 | tier, then and now."""
        changes: list[tuple[int, int, int]] = []
        held, counts = self._held, self._counts
        for key, new in self._tree.take_touched().items():
            old = held.get(key, 0)
            if old == new:
                continue
            if not old:
                counts[new >> 2] += 1
            if new:
                held[key] = new
            else:
                counts[old >> 2] -= 1
                del held[key]
            changes.append((key, old, new))
        return changes

    def _capped_edits(self, changes: list[tuple[int, int, int]]) -> tuple[ShardEdits, ...]:
        """Register more lengths or fewer, if it is time to; O(keys held) then.

        `changes`: keys, what was held of each and what is.
        """
        self._cap.update(self._counts)
        before, after = self._registered_length, self._cap.length
        changed = {key for key, _, _ in changes}
        low, high = min(before, after), max(before, after)
        if low < high:
            moved = [(key, held) for key, held in self._held.items() if low < held >> 2 <= high]
            changes += [(key, held, held) for key, held in moved if key not in changed]
        self._registered_length = after
        reported = [(key, _up_to(before, old), _up_to(after, new)) for key, old, new in changes]
        return self._by_shard([change for change in reported if change[1] != change[2]])

    def _by_shard(self, changes: list[tuple[int, int, int]]) -> tuple[ShardEdits, ...]:
        """Make edits of keys, the tier that was reported of each and the tier that is."""
        by_shard: dict[int, dict[int, int]] = {}
        change = self._digests.change
        shards = shards_of([key for key, _, _ in changes], self._shards)
        for shard, (key, before, after) in zip(shards, changes, strict=True):
            change(shard, key, before, after)
            if shard in by_shard:
                by_shard[shard][key] = after
            else:
                by_shard[shard] = {key: after}
        return tuple([ShardEdits(shard, tiers) for shard, tiers in by_shard.items()])


def _quantum(lengths: npt.NDArray[np.int32]) -> int:
    """The largest number of tokens of which every length is a multiple."""
    return int(np.gcd.reduce(lengths))


def _up_to(length: int, held: int) -> int:
    """Tier that is reported of a held key, when no longer prefixes are registered."""
    return held & 3 if held >> 2 <= length else 0
