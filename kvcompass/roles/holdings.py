"""What a worker holds, as (key, tier) at the registered lengths: engine events in, absolute edits out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from kvcompass.engine_events import BlockRemoved, BlockStored, EngineNews, EventsLost
from kvcompass.keys import PrefixHasher, shard_of
from kvcompass.keys.digest import holdings_digest
from kvcompass.roles.block_tree import BlockTree, TreeCounters, TreeLimits
from kvcompass.roles.length_cap import LengthCap
from kvcompass.tier import Tier

_TIER_OF_MEDIUM: Final = {None: Tier.VRAM, "GPU": Tier.VRAM, "CPU_PINNED": Tier.DRAM, "CPU": Tier.DRAM}
_TOKEN: Final = np.dtype("<i4")


class RepeatedStores(Enum):
    """What a second store of a resident block means. It depends on the engine (`docs/decisions/0501`)."""

    COUNTED = "counted"
    """Another copy: as many removals are needed. SGLang: equal tokens of two adapters share a hash."""
    IDEMPOTENT = "idempotent"
    """The same news again. vLLM re-emits stores."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardEdits:
    """Absolute tiers of one worker at keys of one shard: distinct keys, in the order they changed."""

    shard: int
    keys: npt.NDArray[np.uint64]
    tiers: npt.NDArray[np.uint8]
    """0 where a prefix is no longer held."""


@dataclass(slots=True)
class EventCounters:
    """Events by what became of them. Monotonic."""

    stored_blocks: int = 0
    removed_blocks: int = 0
    clears: int = 0
    unknown_media: int = 0
    """Events about a medium that is no tier of the index (disk, remote store); ignored."""
    foreign_scopes: int = 0
    """Events about another salt or an adapter; ignored."""
    malformed: int = 0
    """Stores whose tokens are not hashes x block size; ignored."""


@dataclass(slots=True)
class _ShardDigest:
    digest: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class BlockSizeMismatch:
    """The engine's pages are not the plan's blocks: no key it could register would be asked for."""

    reported: int
    planned: int


class Holdings:
    """A worker's block tree and what of it was last reported, by shard. One writer: the worker agent.

    Every change is net: `apply` returns one set of edits for a whole batch, without the keys that ended where
    they began.
    """

    def __init__(
        self,
        namespace: bytes,
        *,
        salt: str,
        block_size: int,
        lengths: npt.NDArray[np.int32],
        shards: int,
        repeated_stores: RepeatedStores,
        limits: TreeLimits,
        keys_max: int = 1 << 62,
    ) -> None:
        """Start with nothing held.

        Args:
            namespace: Of the keys; from `kvcompass.keys.namespace` with `salt`.
            salt: Of the worker's sharing group. Events of another scope are ignored.
            block_size: Tokens a block, as the plan has it.
            lengths: int32[n], registered lengths.
            shards: Number of shards the keys are spread over.
            repeated_stores: The engine's habit.
            limits: Bounds on memory.
            keys_max: Keys registered, at most; above it the longest are not (`LengthCap`).
        """
        self._salt = salt
        self._block_size = block_size
        self._shards = shards
        self._tree = BlockTree(
            PrefixHasher(namespace),
            frozenset(int(length) for length in lengths),
            counted=repeated_stores is RepeatedStores.COUNTED,
            limits=limits,
        )
        self._held: dict[int, int] = {}
        """Length << 2 | tier by key, held keys only; those above the cap's length are not reported."""
        self._counts: Counter[int] = Counter()
        """Held keys by length."""
        self._cap = LengthCap(sorted(int(length) for length in lengths), keys_max)
        self._registered_length = self._cap.length
        self._registered = 0
        self._digests = [_ShardDigest() for _ in range(shards)]
        self.events = EventCounters()

    @property
    def blocks(self) -> int:
        """Resident blocks, detached ones too."""
        return len(self._tree)

    @property
    def detached(self) -> int:
        """Resident blocks that no prefix reaches."""
        return self._tree.detached

    @property
    def tree(self) -> TreeCounters:
        """What the block tree met and did not expect."""
        return self._tree.counters

    @property
    def left_out(self) -> int:
        """Events and blocks not taken in, so that less is known than is held. Monotonic."""
        tree = self._tree.counters
        return self.events.malformed + tree.conflicting_stores + tree.dropped_blocks + tree.refused_blocks

    @property
    def unregistered(self) -> int:
        """Keys held but not registered, because there are too many."""
        return len(self._held) - self._registered

    @property
    def registered_length(self) -> int:
        """Longest length registered, tokens."""
        return self._registered_length

    def __len__(self) -> int:
        return self._registered

    def apply(self, events: Sequence[EngineNews]) -> tuple[ShardEdits, ...] | BlockSizeMismatch:
        """Take in one engine batch and return what changed, by shard, for shards where something did.

        Where removals may have been lost, everything before is forgotten (`docs/decisions/0506`).
        A `BlockSizeMismatch` stops the batch at the event that shows it; the worker is to be refused.
        """
        for event in events:
            if isinstance(event, BlockStored):
                if event.block_size != self._block_size:
                    return BlockSizeMismatch(event.block_size, self._block_size)
                self._store(event)
            elif isinstance(event, BlockRemoved):
                self._remove(event)
            elif isinstance(event, EventsLost):
                if event.removals:
                    self._tree.clear()
            else:
                self.events.clears += 1
                self._tree.clear()
        return self._edits()

    def clear(self) -> tuple[ShardEdits, ...]:
        """Forget everything; return the withdrawals."""
        self._tree.clear()
        return self._edits()

    def digest(self, shard: int) -> int:
        """Return the digest of what is registered in a shard. O(1)."""
        return self._digests[shard].digest

    def count(self, shard: int) -> int:
        """Return the number of keys registered in a shard. O(1)."""
        return self._digests[shard].count

    def report(self, shard: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        """Return everything registered in a shard: keys (uint64[n]) and tiers (uint8[n]). O(keys held)."""
        keys = np.fromiter(self._held.keys(), dtype=np.uint64, count=len(self._held))
        held = np.fromiter(self._held.values(), dtype=np.int64, count=len(self._held))
        here = (shard_of(keys, self._shards) == shard) & (held >> 2 <= self._registered_length)
        return keys[here], (held[here] & 3).astype(np.uint8)

    def _store(self, event: BlockStored) -> None:
        tier = self._tier(event)
        if tier is None:
            return
        if not event.hashes or len(event.tokens) != len(event.hashes) * self._block_size:
            self.events.malformed += 1
            return
        data = event.tokens.astype(_TOKEN, copy=False).tobytes()
        step = self._block_size * _TOKEN.itemsize
        parent = event.parent
        for position, block_hash in enumerate(event.hashes):
            self._tree.store(block_hash, parent, data[position * step : (position + 1) * step], tier)
            parent = block_hash
        self.events.stored_blocks += len(event.hashes)

    def _remove(self, event: BlockRemoved) -> None:
        tier = self._tier(event)
        if tier is None:
            return
        for block_hash in event.hashes:
            self._tree.remove(block_hash, tier)
        self.events.removed_blocks += len(event.hashes)

    def _tier(self, event: BlockStored | BlockRemoved) -> Tier | None:
        if event.scope not in ("", self._salt):
            self.events.foreign_scopes += 1
            return None
        tier = _TIER_OF_MEDIUM.get(event.medium)
        if tier is None:
            self.events.unknown_media += 1
        return tier

    def _edits(self) -> tuple[ShardEdits, ...]:
        before: dict[int, int] = {}
        after: dict[int, int] = {}
        for key in self._tree.take_touched():
            old, tier = self._held.get(key, 0), self._tree.tier(key)
            new = self._tree.length(key) << 2 | tier if tier else 0
            if old == new:
                continue
            if old:
                self._counts[old >> 2] -= 1
            if new:
                self._counts[new >> 2] += 1
                self._held[key] = new
            else:
                del self._held[key]
            before[key], after[key] = self._reported(old), self._reported(new)
        self._move_cap(before, after)
        changed = [key for key in before if before[key] != after[key]]
        if not changed:
            return ()
        self._registered += sum((after[key] > 0) - (before[key] > 0) for key in changed)
        return self._by_shard(
            np.array(changed, dtype=np.uint64),
            np.array([before[key] for key in changed], dtype=np.uint8),
            np.array([after[key] for key in changed], dtype=np.uint8),
        )

    def _reported(self, held: int) -> int:
        """Tier that is reported of a held key."""
        return held & 3 if held >> 2 <= self._registered_length else 0

    def _move_cap(self, before: dict[int, int], after: dict[int, int]) -> None:
        """Register more lengths or fewer, if it is time to; O(keys held) then."""
        self._cap.update(self._counts)
        low, high = sorted((self._registered_length, self._cap.length))
        if low == high:
            return
        moved = {key: held for key, held in self._held.items() if low < held >> 2 <= high}
        for key, held in moved.items():
            before.setdefault(key, self._reported(held))
        self._registered_length = self._cap.length
        for key, held in moved.items():
            after[key] = self._reported(held)

    def _by_shard(
        self, keys: npt.NDArray[np.uint64], before: npt.NDArray[np.uint8], after: npt.NDArray[np.uint8]
    ) -> tuple[ShardEdits, ...]:
        shards = shard_of(keys, self._shards)
        edits = []
        for shard in np.unique(shards).tolist():
            here = shards == shard
            mine, old, new = keys[here], before[here], after[here]
            state = self._digests[shard]
            state.digest ^= holdings_digest(mine[old > 0], old[old > 0])
            state.digest ^= holdings_digest(mine[new > 0], new[new > 0])
            state.count += int(np.count_nonzero(new)) - int(np.count_nonzero(old))
            edits.append(ShardEdits(shard, mine, new))
        return tuple(edits)
