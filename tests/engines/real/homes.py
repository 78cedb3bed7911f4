"""Where real engines are installed, and what each is made of. `make test-engines` fills the folders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
HOMES = ROOT / ".venv-engines"
"""Ignored by git; some 3 GB for each engine. Deleting it is all there is to uninstalling."""


@dataclass(frozen=True, slots=True)
class Release:
    """One version of an engine that can be installed."""

    name: str
    """Of its folder and of the parameter of the tests: `sglang-0.5.10`."""
    package: str
    version: str
    torch: str
    """Version of torch; any build of it, of which the one for CPUs is smallest."""
    stand_ins: tuple[str, ...] = ()
    """Top-level packages it imports that are of no use without a GPU (`stand_ins/sitecustomize.py`)."""

    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variables that it is run with."""

    @property
    def version_numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))

    @property
    def home(self) -> Path:
        """Its virtual environment."""
        return HOMES / self.name

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def lock(self) -> Path:
        """Everything but torch and the engine itself, with hashes."""
        return ROOT / "requirements" / "engines" / f"{self.name}.lock"


_MEDIA = ("torchvision", "torchaudio", "torchcodec", "decord", "soundfile", "timm")
_KERNELS = ("sgl_kernel", "flashinfer", "quack", "cuda", "tvm_ffi", "torch_memory_saver")
_NOTEBOOKS = ("IPython",)
_TORCH = "2.13.0"
"""Neither the version that 0.5.10 asks for (2.9.1) nor that of 0.5.23 (2.14.1): both run on it."""

_SGLANG_ON_CPUS = {"SGLANG_USE_CPU_ENGINE": "1", "TRITON_INTERPRET": "1"}
_VLLM_ON_CPUS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_SERVER_DEV_MODE": "1",  # has the route that empties the cache
    "VLLM_NO_USAGE_STATS": "1",
}

RELEASES = {
    release.name: release
    for release in (
        *(
            Release(
                f"sglang-{version}",
                "sglang",
                version,
                _TORCH,
                _MEDIA + _KERNELS + _NOTEBOOKS,
                _SGLANG_ON_CPUS,
            )
            for version in ("0.5.10", "0.5.23")
        ),
        Release("vllm-0.32.0", "vllm", "0.32.0", _TORCH, (), _VLLM_ON_CPUS),
    )
}
