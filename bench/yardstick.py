"""A fixed piece of interpreted work: how long it takes tells how busy the machine is."""

from time import thread_time


def yardsticks_us(times: int) -> list[float]:
    """This thread's processor time for it, so many times in a row, us each."""
    return [_once_us() for _ in range(times)]


def _once_us() -> float:
    began = thread_time()
    table: dict[int, int] = {}
    for i in range(1_000):
        table[i * 7_919 % 1_009] = i
    return 1e6 * (thread_time() - began)
