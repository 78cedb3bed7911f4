"""What a process takes of memory, by the kernel's own count. Linux."""

import ctypes
import gc
import os
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Of a process, as it is."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled_bytes() -> int:
    """Of this process, once what it has freed is given back. With glibc."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident_bytes(os.getpid())
