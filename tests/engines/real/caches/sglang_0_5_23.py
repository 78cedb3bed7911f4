"""The cache of SGLang 0.5.23: UnifiedRadixCache, in Rust as it is served and in Python, alone or with a host
tier that moves no bytes."""

from array import array
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

DEVICE_TOKENS = 256
HOST_TOKENS = 512
"""More than the device's, as HiCache wants it."""


class Device:
    """A GPU's pool: only what is used of it counts."""

    device = torch.device("cpu")
    page_size = 1

    def __init__(self) -> None:
        self.used = 0
        """Tokens."""

    def available_size(self) -> int:
        return DEVICE_TOKENS - self.used

    def free(self, indices: Any) -> None:
        self.used -= len(indices)

    def free_segment(self, indices: Any, start_pos: int) -> None:
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


class HostPool:
    """Counts what is used of so many tokens."""

    def __init__(self) -> None:
        self._used = 0
        self.anchor_entry = SimpleNamespace(
            host_pool=SimpleNamespace(shared_allocation_domain=None), host_evict_fn=None
        )

    def available_size(self) -> int:
        return HOST_TOKENS - self._used

    def take(self, tokens: int) -> Any:
        self._used += tokens
        return torch.arange(tokens)

    def free(self, indices: Any, pool: Any = None) -> None:
        self._used -= len(indices)

    def clear(self) -> None:
        self._used = 0


class Controller:
    """What HiCache's controller does, but for the bytes."""

    enable_storage = False

    def __init__(self, device: Device, policy: str) -> None:
        self.write_policy = policy
        self.mem_pool_host = HostPool()
        self.ack_write_queue: list[Any] = []
        self.ack_load_queue: list[Any] = []
        self._device = device

    def reset(self) -> None:
        self.ack_write_queue.clear()
        self.ack_load_queue.clear()

    def write(self, device_indices: Any, node_id: int, **_: Any) -> Any:
        if self.mem_pool_host.available_size() < len(device_indices):
            return None
        self.ack_write_queue.append(_ack(node_id))
        return self.mem_pool_host.take(len(device_indices))

    def load(self, host_indices: Any, node_id: int, **_: Any) -> Any:
        self.ack_load_queue.append(_ack(node_id))
        return self._device.take(len(host_indices))

    def start_writing(self) -> None:
        pass


def _ack(node_id: int) -> Any:
    return SimpleNamespace(finish_event=Done(), node_ids=[node_id])


class Plain:
    """As `drive.Cache` has it, without a host tier."""

    core = "rust"

    def __init__(self, page_tokens: int) -> None:
        self._device = Device()
        self._cache: Any = UnifiedRadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=None,
                token_to_kv_pool_allocator=self._device,
                page_size=page_tokens,
                enable_kv_cache_events=True,
                tree_components=(ComponentType.FULL,),
                tree_core_backend=self.core,
            )
        )
        assert ("Rust" in type(self._cache.tree_core).__name__) == (self.core == "rust")

    def _match(self, tokens: list[int]) -> Any:
        return self._cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", tokens))))

    def store(self, tokens: list[int], *, reload: bool) -> None:
        self._room_for(len(tokens) - self._match(tokens).device_prefix_len)
        value = self._device.take(len(tokens))
        self._cache.insert(InsertParams(key=RadixKey(array("q", tokens)), value=value))

    def _room_for(self, tokens: int) -> None:
        lacking = self._device.used + tokens - DEVICE_TOKENS
        if lacking > 0:
            self.settle()
            self.evict(lacking)

    def found(self, tokens: list[int]) -> tuple[int, int]:
        match = self._match(tokens)
        return match.device_prefix_len, match.host_hit_length

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


class PlainPython(Plain):
    core = "python"


class WithHost(Plain):
    """The same with one; blocks are copied there when they are stored, or when they are evicted."""

    policy = "write_through"

    def __init__(self, page_tokens: int) -> None:
        super().__init__(page_tokens)
        cache = self._cache
        cache.cache_controller = Controller(self._device, self.policy)
        cache.host_pool_group = cache.cache_controller.mem_pool_host
        cache.components[ComponentType.FULL]._full_kv_pool_host = cache.host_pool_group
        cache.tree_core.set_hicache_enabled()
        cache.write_through_threshold = 1
        cache.is_write_back = self.policy == "write_back"
        cache.load_back_threshold = 1

    def store(self, tokens: list[int], *, reload: bool) -> None:
        match = self._match(tokens)
        if match.host_hit_length and reload:
            self._room_for(match.host_hit_length)
            self._cache.load_back(self._match(tokens).best_match_node)
        super().store(tokens, reload=reload)

    def settle(self) -> None:
        self._cache.writing_check()
        self._cache.loading_check()


class WithHostPython(WithHost):
    core = "python"


class WithHostLate(WithHost):
    policy = "write_back"


class WithHostLatePython(WithHostLate):
    core = "python"


CACHES = {
    "plain": Plain,
    "plain-python": PlainPython,
    "write_through": WithHost,
    "write_through-python": WithHostPython,
    "write_back": WithHostLate,
    "write_back-python": WithHostLatePython,
}
