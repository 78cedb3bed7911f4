"""User-Mode Linux is refused the registers it cannot keep, and nothing else is."""

import platform
import subprocess
import sys
from typing import Final

import pytest

_TRACED: Final = """\
import ctypes, errno, os, signal, sys
from lab.netem.trial.uml_registers import refuse_wide_registers

if sys.argv[1] == "refused":
    refuse_wide_registers()
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
libc.ptrace.restype = ctypes.c_long
child = os.fork()
if child == 0:
    libc.ptrace(0, 0, None, None)  # PTRACE_TRACEME
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, 0)


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


area = ctypes.create_string_buffer(65_536)
vector = Vector(ctypes.addressof(area), len(area))
wide = libc.ptrace(0x4204, child, 0x202, ctypes.addressof(vector))  # PTRACE_GETREGSET, NT_X86_XSTATE
wide_errno = ctypes.get_errno() if wide else 0
legacy = libc.ptrace(14, child, None, ctypes.addressof(area))  # PTRACE_GETFPREGS
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(errno.errorcode.get(wide_errno, "ok"), "ok" if legacy == 0 else "failed")
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="User-Mode Linux is for x86-64"
)
@pytest.mark.parametrize(("way", "seen"), [("refused", "EIO ok"), ("free", "ok ok")])
def test_only_the_wide_registers_are_refused(way: str, seen: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _TRACED, way], capture_output=True, text=True, timeout=30, check=True
    )
    assert ran.stdout.strip() == seen
