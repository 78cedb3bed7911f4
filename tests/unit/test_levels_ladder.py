"""The ladder: its laws, and its default rungs."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kvcompass.levels import ladder
from kvcompass.plan.model import LengthRule

RULES = st.builds(
    LengthRule,
    policy=st.just("ladder"),
    quantum=st.integers(1, 512),
    stretch=st.floats(min_value=0.05, max_value=1.4),
)


@given(RULES, st.integers(1, 50_000))
def test_rungs_are_multiples_of_the_quantum_within_the_context(rule: LengthRule, context: int) -> None:
    context = max(context, 2 * rule.quantum + 1)
    context = min(context, 2_000 * rule.quantum)
    rungs = ladder(rule, context)
    assert rungs[:2] == (rule.quantum, 2 * rule.quantum)
    assert all(rung % rule.quantum == 0 and rung < context for rung in rungs)


@given(RULES)
def test_neighbours_part_with_the_square_root_of_their_length(rule: LengthRule) -> None:
    for low, high in pairwise(ladder(rule, 500 * rule.quantum)):
        quanta = (high - low) / rule.quantum
        assert quanta == 1 or abs(quanta - rule.stretch * (low / rule.quantum) ** 0.5) <= 0.5 + 1e-6
        assert quanta >= 1


@given(RULES, st.integers(3, 300), st.integers(0, 300))
def test_a_longer_context_only_adds_rungs(rule: LengthRule, blocks: int, more: int) -> None:
    short = ladder(rule, blocks * rule.quantum)
    assert ladder(rule, (blocks + more) * rule.quantum)[: len(short)] == short


def test_no_match_is_credited_with_much_less_than_it_is() -> None:
    rungs = ladder(LengthRule(), 32_768)
    assert all(low / (high - 1) >= 2 / 3 for low, high in pairwise(rungs) if low >= 256)
    assert all(low / (high - 1) >= 0.85 for low, high in pairwise(rungs) if low >= 2_304)


def test_default_rungs_of_a_4k_prompt() -> None:
    rungs = (128, 256, 384, 512, 768, 1_024, 1_280, 1_536, 1_920, 2_304, 2_688, 3_072, 3_584)
    assert ladder(LengthRule(), 4_096) == rungs


def test_a_rung_of_the_whole_context_can_never_be_reused() -> None:
    assert ladder(LengthRule(quantum=128), 512) == (128, 256, 384)
