"""Edits, full reports, clearing, growth, shrinking and copies in the middle of one another."""

import pytest

from kvcompass.index import build_beside, bulk_build, frozen_shard, open_report, table_writer
from kvcompass.kernels.jit import JIT
from tests.models.index_churn import LAYOUTS, TableLayout
from tests.models.index_life import Lived, ShardLife


@pytest.fixture(autouse=True, params=[1, 12])
def _small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes many parts, so that much else falls between two of them."""
    monkeypatch.setattr(table_writer, "_SLICE", request.param)
    monkeypatch.setattr(table_writer, "_SPLITS_AN_EDIT", min(8, request.param))
    monkeypatch.setattr(build_beside, "_BUCKETS", 7)
    monkeypatch.setattr(build_beside, "_NOTED", 4)
    monkeypatch.setattr(open_report, "_BUCKETS", 7)
    monkeypatch.setattr(open_report, "_KEYS", 4)
    monkeypatch.setattr(bulk_build, "_KEYS", 50)
    monkeypatch.setattr(bulk_build, "_BUCKETS", 9)
    monkeypatch.setattr(bulk_build, "_WORDS", 3)
    monkeypatch.setattr(frozen_shard, "_LINES", 5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_view_is_exact_whatever_happens_in_the_middle_of_what(layout: TableLayout) -> None:
    lived = Lived()
    for seed in range(4 if JIT else 1):
        lived.add(ShardLife(seed, layout).live(90 if JIT else 12))
    assert all(vars(lived).values()) or not JIT, lived
