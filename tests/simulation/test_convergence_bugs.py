"""The convergence simulation notices every planted bug within a few seeds."""

import pytest

from tests.models.convergence_bugs import BUGS, first_to_notice


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_noticed(name: str) -> None:
    bug = BUGS[name]
    with bug.planted():
        assert first_to_notice(range(bug.seeds)) is not None, f"{bug.what}: {bug.seeds} seeds saw nothing"
