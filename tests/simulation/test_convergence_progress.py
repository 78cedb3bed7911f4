"""What the convergence simulation takes for a step back of a view."""

import pytest

from simulator.convergence.progress import Progress

FINE = (
    [(1, 0), (1, 0), (1, 5), (1, 5), (1, 9)],
    [(1, 9), (2, 0), (2, 3)],
    [(1, 9), (0, 0), (1, 9)],
    [(1, 9), (0, 0), (1, 8)],
    [(0, 0), (4, 2), (0, 0), (5, 0)],
)
BACK = (
    [(1, 9), (1, 8)],
    [(1, 9), (0, 0), (1, 8), (1, 7)],
    [(1, 9), (2, 0), (1, 9)],
    [(1, 9), (2, 0), (3, 0), (1, 10)],
    [(1, 9), (2, 0), (0, 0), (1, 10)],
)


@pytest.mark.parametrize("steps", FINE)
def test_a_view_may_go_on_or_follow_another_life_of_the_unit(steps) -> None:
    progress = Progress()
    assert [progress.step_back(*step) for step in steps] == [None] * len(steps)


@pytest.mark.parametrize("steps", BACK)
def test_a_view_may_go_back_neither_at_an_epoch_nor_to_one_that_it_left(steps) -> None:
    progress = Progress()
    *before, last = [progress.step_back(*step) for step in steps]
    assert before == [None] * len(before)
    assert last is not None
