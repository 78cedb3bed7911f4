"""What verdicts of the self-test lead to: a refusal takes two, what is unheard refuses nobody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.self_test.explanation import FIELDS, FIXES, explained
from kvcompass.self_test.probe import LEAST_BLOCKS, LEAST_TEXT_TOKENS, probe_messages
from kvcompass.self_test.state import (
    CONFIRMATIONS,
    UNHEARD_MOST,
    Consequence,
    SelfTest,
    SelfTestResult,
    Untestable,
)
from kvcompass.self_test.verdict import Agreement, Cause, Difference, Unheard, Verdict

SAME, DIFFERENT = Agreement(64), Difference(Cause.BOS)
VERDICTS = st.sampled_from([SAME, DIFFERENT, Unheard.NOTHING, Unheard.AMBIGUOUS])


@given(st.lists(VERDICTS, max_size=40))
def test_a_worker_is_refused_after_two_differences_and_until_it_agrees(verdicts: list[Verdict]) -> None:
    test = SelfTest(enabled=True)
    refused, since = False, 0
    for verdict in verdicts:
        consequence = test.on_verdict(verdict)
        before = refused
        if verdict is SAME:
            refused, since = False, 0
        elif verdict is DIFFERENT:
            since += 1
            refused = refused or since >= CONFIRMATIONS
        wanted = Consequence.NONE
        if refused != before:
            wanted = Consequence.REFUSE if refused else Consequence.READMIT
        assert consequence is wanted
        assert (test.state.result is SelfTestResult.REFUSED) == refused
        assert (test.state.result is SelfTestResult.PASSED) == (verdict is SAME)
        assert (test.pause_ms is None) == (verdict is SAME)
    assert test.tests == len(verdicts)


def test_what_is_never_heard_is_not_tested_in_the_end_and_looked_at_seldom() -> None:
    test = SelfTest(enabled=True)
    pauses = []
    for _ in range(UNHEARD_MOST):
        assert test.state.result is SelfTestResult.PENDING
        test.on_verdict(Unheard.NOTHING)
        pauses.append(test.pause_ms or 0)
    assert test.state.reason.startswith(Untestable.UNTOLD.value)
    assert pauses == sorted(set(pauses)), "later each time"


def test_pauses_grow_to_a_bound_and_begin_anew_with_a_new_engine() -> None:
    test = SelfTest(enabled=True)
    pauses = []
    for _ in range(100):
        test.on_no_answer("an edge sleeps")
        pauses.append(test.pause_ms or 0)
    assert test.state.reason == "an edge sleeps"
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[1]
    assert pauses[-1] == pauses[-2] <= 60_000
    test.begin_anew()
    test.on_no_answer("an edge sleeps")
    assert test.pause_ms == pauses[0]


def test_nothing_but_agreement_ends_a_refusal() -> None:
    test = SelfTest(enabled=True)
    for _ in range(CONFIRMATIONS):
        test.on_verdict(DIFFERENT)
    test.on_no_answer("an edge sleeps")
    test.on_untestable(Untestable.OLD_EDGES)
    test.begin_anew()
    assert (test.state.result, test.state.difference) == (SelfTestResult.REFUSED, DIFFERENT)
    assert test.on_verdict(SAME) is Consequence.READMIT
    test.begin_anew()
    assert test.state.result is SelfTestResult.PENDING


def test_events_that_tell_of_others_and_never_of_the_probe_are_another_engines_until_it_is_heard() -> None:
    test = SelfTest(enabled=True)
    for _ in range(UNHEARD_MOST - 1):
        assert test.on_verdict(Unheard.NOTHING, others_told=True) is Consequence.NONE
    assert test.on_verdict(Unheard.NOTHING, others_told=True) is Consequence.REFUSE
    assert (test.state.result, test.state.is_foreign) == (SelfTestResult.REFUSED, True)
    assert test.on_verdict(Unheard.NOTHING, others_told=True) is Consequence.NONE
    assert test.on_verdict(Unheard.AMBIGUOUS) is Consequence.NONE
    assert test.state.is_foreign
    for heard in (SAME, Unheard.INCOMPLETE):
        again = SelfTest(enabled=True)
        for _ in range(UNHEARD_MOST):
            again.on_verdict(Unheard.NOTHING, others_told=True)
        assert again.on_verdict(heard) is Consequence.READMIT
        assert again.state.result is not SelfTestResult.REFUSED
    assert test.on_verdict(DIFFERENT) is Consequence.REFUSE, "it has another reason"
    assert (test.state.difference, test.state.is_foreign) == (DIFFERENT, False)


@pytest.mark.parametrize("other", [Unheard.INCOMPLETE, Unheard.AMBIGUOUS, Unheard.NOTHING])
def test_one_probe_that_may_have_been_missed_refuses_nobody(other: Unheard) -> None:
    test = SelfTest(enabled=True)
    for verdict, told in ((Unheard.NOTHING, True), (other, False), (Unheard.NOTHING, True)):
        test.on_verdict(verdict, others_told=told)
    assert test.state.reason.startswith(Untestable.UNTOLD.value)


def test_off_stays_off() -> None:
    test = SelfTest(enabled=False)
    assert (test.state.result, test.pause_ms) == (SelfTestResult.OFF, None)
    test.begin_anew()
    assert test.state.result is SelfTestResult.OFF


@given(st.integers(1, 8_192))
def test_a_probe_has_several_blocks_begins_with_its_nonce_and_takes_turns(block_size: int) -> None:
    messages = probe_messages("0123456789abcdef", block_size)
    assert messages[0].content.startswith("0123456789abcdef ")
    assert [message.role for message in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]
    assert len(messages) * LEAST_TEXT_TOKENS >= LEAST_BLOCKS * block_size
    assert len({message.content for message in messages}) == len(messages)


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_names_a_field_and_a_way_out(cause: Cause) -> None:
    assert FIELDS[cause]
    assert FIXES[cause] in explained(Difference(cause), {})


def test_an_explanation_shows_the_tokens_around_and_marks_the_first_that_differs() -> None:
    difference = Difference(Cause.CHAT_TEMPLATE, 7, 5, (1, 2, 3), (1, 2, 9), "two words")
    text = explained(difference, {1: "<|user|>", 2: "\n", 3: "Hi"})
    assert r"""'<|user|>' '\n' >'Hi'<""" in text
    assert r"""'<|user|>' '\n' >9<""" in text
    assert "token 7" in text
    assert "two words" in text
