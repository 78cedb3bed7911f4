"""How User-Mode Linux runs on every x86-64 processor: its guest keeps to the registers of SSE.

That kernel keeps a program's registers in an area of 2,696 bytes (Linux 6.1, HOST_FP_SIZE), while a processor
with AMX has 11,008; the host takes them back only whole, so the guest would end at its first program. Where
PTRACE_GETREGSET fails, it keeps the 512 bytes of PTRACE_GETFPREGS, x87 and SSE: `refuse_wide_registers` makes
it fail, and `SSE_ONLY` tells the guest's C library not to use what is then lost at a page fault.
"""

import ctypes
import os
from typing import Final

SSE_ONLY: Final = "GLIBC_TUNABLES=glibc.cpu.hwcaps=" + ",".join(
    f"-{feature}" for feature in ("AVX", "AVX2", "AVX512F", "AVX512VL", "AVX512BW", "AVX_Fast_Unaligned_Load")
)
"""For the kernel's command line, from which it goes to the environment of the guest's programs."""

_PTRACE: Final = 101
_GETREGSET: Final = 0x4204
_EIO: Final = 5

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_FAIL: Final = 0x00050000  # SECCOMP_RET_ERRNO
_ALLOW: Final = 0x7FFF0000
_NUMBER: Final = 0
_FIRST_ARGUMENT: Final = 16

_SET_NO_NEW_PRIVS: Final = 38
_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("true", ctypes.c_ubyte),
        ("false", ctypes.c_ubyte),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


_INSTRUCTIONS: Final = (_Instruction * 6)(
    _Instruction(_LOAD, 0, 0, _NUMBER),
    _Instruction(_EQUAL, 0, 3, _PTRACE),
    _Instruction(_LOAD, 0, 0, _FIRST_ARGUMENT),
    _Instruction(_EQUAL, 0, 1, _GETREGSET),
    _Instruction(_RETURN, 0, 0, _FAIL | _EIO),
    _Instruction(_RETURN, 0, 0, _ALLOW),
)
_FILTER: Final = _Program(len(_INSTRUCTIONS), _INSTRUCTIONS)
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def refuse_wide_registers() -> None:
    """Makes PTRACE_GETREGSET fail in this process and its children, for good.

    Raises:
        OSError: the kernel has no seccomp filters.
    """
    for order in (
        (_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_SET_SECCOMP, _MODE_FILTER, ctypes.byref(_FILTER), 0, 0),
    ):
        if _LIBC.prctl(*order) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {order[0]}: {os.strerror(ctypes.get_errno())}")
