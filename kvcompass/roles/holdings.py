"""What a worker holds, as (key, tier) at the registered lengths: engine events in, absolute edits out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from kvcompass.engine_events import BlockRemoved, BlockStored, EngineNews, EventsLost
from kvcompass.keys import PrefixHasher, shard_of, shards_of
from kvcompass.roles.block_tree import BlockTree, TreeCounters, TreeLimits
from kvcompass.roles.length_cap import LengthCap
from kvcompass.roles.shard_digest import ShardDigests
from kvcompass.tier import Tier

_TIER_OF_MEDIUM: Final = {None: Tier.VRAM, "GPU": Tier.VRAM, "CPU_PINNED": Tier.DRAM, "CPU": Tier.DRAM}
_UNTOLD_TIERS: Final = dict.fromkeys(_TIER_OF_MEDIUM, Tier.DRAM)
"""Of an engine that does not say what moves to its host tier: what it holds may be there."""
_TOKEN: Final = np.dtype("<i4")


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


@dataclass(frozen=True, slots=True)
class BlockSizeMismatch:
    """A block has another size than those of this engine have."""

    reported: int
    known: int


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
            block_size: Tokens a block of the engine; it divides every length. The plan's, until it is known.
            lengths: int32[n], registered lengths.
            shards: Number of shards the keys are spread over.
            repeated_stores: The engine's habit.
            limits: Bounds on memory.
            keys_max: Keys registered, at most; above it the longest are not (`LengthCap`).
        """
        self._salt = salt
        self._tiers: Mapping[str | None, Tier] = _TIER_OF_MEDIUM
        self._block_size = block_size
        self._shards = shards
        self._tree = BlockTree(
            PrefixHasher(namespace),
            lengths.tolist(),
            block_size=block_size,
            counted=repeated_stores is RepeatedStores.COUNTED,
            limits=limits,
        )
        self._held: dict[int, int] = {}
        """Length << 2 | tier by key, held keys only; those above the cap's length are not reported."""
        self._counts: Counter[int] = Counter()
        """Held keys by length."""
        self._lengths: list[int] = lengths.tolist()
        self._cap = LengthCap(self._lengths, keys_max)
        self._keys_max = keys_max
        self._registered_length = self._cap.length
        self._digests = ShardDigests(shards)
        self.events = EventCounters()

    @property
    def block_size(self) -> int:
        """Tokens a block of the engine."""
        return self._block_size

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

    def use_block_size(self, block_size: int) -> None:
        """The engine's blocks have so many tokens, which divide every length. Nothing is held."""
        self._block_size = block_size
        self._tree.use_block_size(block_size)

    def use_tiers(self, *, told: bool) -> None:
        """Whether the engine says in which tier a block is; if not, all counts as DRAM. Nothing is held."""
        self._tiers = _TIER_OF_MEDIUM if told else _UNTOLD_TIERS

    def use_lengths(self, lengths: npt.NDArray[np.int32], keys_max: int) -> tuple[ShardEdits, ...]:
        """Register at other lengths, or under another bound of keys; return what changed, by shard.

        O(tokens held) when the lengths differ: 0.3 s for 10 million.
        """
        if (lengths.tolist(), keys_max) == (self._lengths, self._keys_max):
            return ()
        if lengths.tolist() != self._lengths:
            self._lengths = lengths.tolist()
            self._tree.use_lengths(self._lengths)
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

    def _store(self, event: BlockStored) -> None:
        tier = self._tier(event)
        if tier is None:
            return
        if not event.hashes or len(event.tokens) != len(event.hashes) * self._block_size:
            self.events.malformed += 1
            return
        data = event.tokens.astype(_TOKEN, copy=False).tobytes()
        self._tree.store(event.hashes, event.parent, data, tier)
        self.events.stored_blocks += len(event.hashes)

    def _remove(self, event: BlockRemoved) -> None:
        tier = self._tier(event)
        if tier is None:
            return
        self._tree.remove(event.hashes, tier)
        self.events.removed_blocks += len(event.hashes)

    def _tier(self, event: BlockStored | BlockRemoved) -> Tier | None:
        if event.scope not in ("", self._salt):
            self.events.foreign_scopes += 1
            return None
        tier = self._tiers.get(event.medium)
        if tier is None:
            self.events.unknown_media += 1
        return tier

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


def _up_to(length: int, held: int) -> int:
    """Tier that is reported of a held key, when no longer prefixes are registered."""
    return held & 3 if held >> 2 <= length else 0
