"""Of all streams that are open, the newest speaks for its sender, and each of the others has been told."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kvcompass.roles.turns import Superseded, Turn, Turns

SENDERS = ("a", "b", "c")
Actions = list[tuple[str, int, int]]
ACTIONS = st.lists(st.tuples(st.sampled_from(SENDERS), st.integers(0, 2), st.integers(0, 3)), max_size=60)


@dataclass
class Stream:
    turn: Turn
    told: int = 0

    def __post_init__(self) -> None:
        self.turn.on_end(self.note)

    def note(self) -> None:
        self.told += 1


@given(ACTIONS)
def test_the_newest_open_stream_of_a_sender_has_its_turn_alone(actions: Actions) -> None:
    """An action: a sender opens a stream in epoch 0 or 1, or (2) one of its open streams ends, any one."""
    turns, opened = Turns(), {sender: list[Stream]() for sender in SENDERS}
    newest: dict[str, Stream] = {}
    for sender, what, which in actions:
        streams = opened[sender]
        if what == 2:
            if streams:
                ended = streams.pop(which % len(streams))
                turns.give_up(ended.turn)
                if newest.get(sender) is ended:
                    del newest[sender]
        else:
            before = newest.get(sender)
            stream = newest[sender] = Stream(turns.take(sender, what))
            streams.append(stream)
            if before is None:
                assert stream.turn.instead_of is None
            else:
                same = before.turn.epoch == what
                assert stream.turn.instead_of is (Superseded.SAME if same else Superseded.ANOTHER)
        assert turns.senders() == newest.keys(), "a turn lasts as long as its stream is open"
        assert len(turns) == len(newest)
        for each in SENDERS:
            assert (each in turns) == (each in newest)
            for stream in opened[each]:
                over = stream is not newest.get(each)
                assert (stream.turn.is_over, stream.told) == (over, int(over))


def test_a_turn_that_is_ended_from_without_ends_once() -> None:
    stream = Stream(Turns().take("a", 1))
    stream.turn.end()
    stream.turn.end()
    assert (stream.turn.is_over, stream.told) == (True, 1)
