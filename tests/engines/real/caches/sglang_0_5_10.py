"""The caches of SGLang 0.5.10: RadixCache, and HiRadixCache with a host tier that moves no bytes."""

from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.hiradix_cache import HiRadixCache
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

DEVICE_TOKENS = 256
HOST_TOKENS = 512
"""More than the device's, as HiCache wants it."""


class Device:
    """A GPU's pool: only what is used of it counts."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.used = 0
        """Tokens."""

    def free(self, indices: Any) -> None:
        self.used -= len(indices)

    def take(self, tokens: int) -> Any:
        self.used += tokens
        return torch.arange(tokens)


class Done:
    """A copy that has ended as soon as it is asked for."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class Controller:
    """What HiCache's controller does, but for the bytes: a host pool of so many tokens, and copies."""

    def __init__(self, device: Device, policy: str, host_tokens: int) -> None:
        self.write_policy = policy
        self._host_tokens = host_tokens
        self.mem_pool_device_allocator = device
        self.ack_write_queue: list[Any] = []
        self.ack_load_queue: list[Any] = []
        self._device = device
        self._used = 0

    def reset(self) -> None:
        self._used = 0
        self.ack_write_queue.clear()
        self.ack_load_queue.clear()

    def write(self, device_indices: Any, node_id: int = -1) -> Any:
        if self._used + len(device_indices) > self._host_tokens:
            return None
        self._used += len(device_indices)
        self.ack_write_queue.append((None, Done(), [node_id]))
        return torch.arange(len(device_indices))

    def load(self, host_indices: Any, node_id: int = -1) -> Any:
        self.ack_load_queue.append((None, Done(), [node_id]))
        return self._device.take(len(host_indices))

    def evict_device(self, indices: Any) -> int:
        self._device.free(indices)
        return len(indices)

    def evict_host(self, indices: Any) -> int:
        self._used -= len(indices)
        return len(indices)


class HostPool:
    """Is only ever emptied."""

    def clear(self) -> None:
        pass


class Tiered(HiRadixCache):
    """Its own constructor wants a GPU: what that sets is set here."""

    def __init__(self, page_tokens: int, device: Device, controller: Controller) -> None:
        self.page_size = page_tokens
        self.cache_controller = controller
        self.token_to_kv_pool_host = HostPool()
        self.ongoing_write_through: dict[int, Any] = {}
        self.ongoing_load_back: dict[int, Any] = {}
        self.ongoing_prefetch: dict[str, Any] = {}
        self.ongoing_backup: dict[int, Any] = {}
        self.prefetch_loaded_tokens_by_reqid: dict[str, int] = {}
        self.evictable_host_leaves: set[Any] = set()
        self.write_through_threshold = 1
        self.load_back_threshold = 1
        self.enable_storage = self.enable_storage_metrics = False
        self.tp_group, self.tp_world_size = None, 1
        self.pp_rank, self.pp_size = 0, 1
        RadixCache.__init__(
            self,
            CacheInitParams(
                disable=False,
                req_to_token_pool=None,
                token_to_kv_pool_allocator=device,
                page_size=page_tokens,
                enable_kv_cache_events=True,
            ),
        )


class Plain:
    """As `drive.Cache` has it, without a host tier."""

    def __init__(self, page_tokens: int) -> None:
        self._device = Device()
        self._cache: Any = RadixCache.create_simulated(
            mock_allocator=self._device, page_size=page_tokens, enable_kv_cache_events=True
        )

    def _match(self, tokens: list[int]) -> Any:
        return self._cache.match_prefix(MatchPrefixParams(key=RadixKey(list(tokens))))

    def store(self, tokens: list[int], *, reload: bool) -> None:
        self._room_for(len(tokens) - len(self._match(tokens).device_indices))
        value = self._device.take(len(tokens))
        result = self._cache.insert(InsertParams(key=RadixKey(list(tokens)), value=value))
        self._device.free(value[: result.prefix_len])  # of a prefix that was there, the request's copy goes

    def _room_for(self, tokens: int) -> None:
        lacking = self._device.used + tokens - DEVICE_TOKENS
        if lacking > 0:
            self.settle()
            self.evict(lacking)

    def found(self, tokens: list[int]) -> tuple[int, int]:
        match = self._match(tokens)
        return len(match.device_indices), match.host_hit_length

    def evict(self, tokens: int) -> None:
        self._cache.evict(EvictParams(num_tokens=tokens))

    def settle(self) -> None:
        pass

    def flush(self) -> None:
        self._cache.reset()
        self._device.used = 0

    def events(self) -> list[Any]:
        events: list[Any] = self._cache.take_events()
        return events


class WithHost(Plain):
    """The same with one; blocks are copied there when they are stored, or when they are evicted."""

    policy = "write_through"
    host_tokens = HOST_TOKENS

    def __init__(self, page_tokens: int) -> None:
        self._device = Device()
        controller = Controller(self._device, self.policy, self.host_tokens)
        self._cache = Tiered(page_tokens, self._device, controller)

    def store(self, tokens: list[int], *, reload: bool) -> None:
        match = self._match(tokens)
        if match.host_hit_length and reload:
            self._room_for(match.host_hit_length)
            self._cache.load_back(self._match(tokens).last_host_node)
        super().store(tokens, reload=reload)

    def settle(self) -> None:
        self._cache.writing_check()
        self._cache.loading_check()

    def flush(self) -> None:
        super().flush()
        self._cache.ongoing_write_through.clear()
        self._cache.ongoing_load_back.clear()


class WithHostLate(WithHost):
    """The same, copied when they are evicted. The host never fills: this version evicts a parent from it
    while a child is about to be copied there, and then fails an assertion of its own."""

    policy = "write_back"
    host_tokens = 1 << 30


CACHES = {"plain": Plain, "write_through": WithHost, "write_back": WithHostLate}
