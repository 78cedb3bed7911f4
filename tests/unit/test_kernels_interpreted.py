"""The laws of index, score and load hold for the same kernels as plain Python with every index checked."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvcompass.kernels import jit
from kvcompass.kernels.checked import checked

ROOT = Path(__file__).parents[2]
LAWS = (
    "test_index_laws.py",
    "test_index_growth.py",
    "test_index_rebuild.py",
    "test_index_snapshot.py",
    "test_index_entries.py",
    "test_index_life.py",
    "test_index_match.py",
    "test_index_fleets.py",
    "test_index_malformed.py",
    "test_index_view_tables.py",
    "test_score_joint.py",
    "test_fleet_vectors.py",
)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("law", LAWS)
def test_laws_hold_interpreted_and_bounds_checked(law: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/unit/{law}"],
        cwd=ROOT,
        env=os.environ | {"KVCOMPASS_JIT": "0"},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]


def test_checked_arrays_refuse_what_numpy_would_wrap() -> None:
    array = checked(np.arange(6, dtype=np.uint32).reshape(2, 3))
    assert array[1, 2] == 5
    array[0, 0] = 7
    for index in (-1, (0, -1), (2, 0), (0, 3)):
        with pytest.raises(IndexError):
            array[index]
    with pytest.raises(IndexError):
        array[np.int64(-1), 0] = 1
    assert array[1][2] == 5
    with pytest.raises(IndexError):
        array[1][-1]


def test_a_cache_folder_is_named_by_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_FOLDER", tmp_path)
    monkeypatch.setenv("KVCOMPASS_KERNEL_CACHE", "/cache")
    folder = jit.cache_folder.__wrapped__
    (tmp_path / "leaf.py").write_text("X = 1\n")
    (tmp_path / "other.py").write_text("Y = 1\n")
    (tmp_path / "entry.py").write_text("from kvcompass.kernels.leaf import X\n")
    first, other = folder("entry"), folder("other")
    assert first.parent == Path("/cache") and first.name.startswith("entry-")
    (tmp_path / "leaf.py").write_text("X = 2\n")
    assert folder("entry") != first
    assert folder("other") == other


def test_kernels_import_only_kernels() -> None:
    """Else the digest of the sources would miss what they depend on."""
    for source in (ROOT / "kvcompass" / "kernels").glob("*.py"):
        for line in source.read_text().splitlines():
            if line.startswith(("from kvcompass", "import kvcompass")):
                assert line.startswith("from kvcompass.kernels."), f"{source.name}: {line}"
