"""Room of an arena: zero when it is taken, nobody else's while it is in use, and the system's again after."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.index import arena as arena_module
from kvcompass.index.arena import Arena
from kvcompass.index.image_bytes import new_row
from kvcompass.index.layout import LAYOUTS, Layout
from kvcompass.index.shape import table_size
from kvcompass.kernels.arrays import U64
from kvcompass.kernels.image import BASE
from kvcompass.kernels.jit import JIT


class Images:
    """Images in an arena, each filled with a number of its own."""

    def __init__(self, layout: Layout) -> None:
        self.arena = Arena(layout)
        self.layout = layout
        self.held: dict[int, U64] = {}
        self.made = 0

    def take(self, entries: int) -> None:
        row = new_row(table_size(entries, self.layout), 0, 1)
        size = self.arena.image_words(row)
        self.arena.make_room(size, list(self.held.values()))
        row[BASE] = self.arena.take(size)
        assert not self.words(row).any(), "room that is taken is zero"
        self.made += 1
        self.words(row)[:] = self.made
        self.held[self.made] = row

    def leave(self, which: int) -> None:
        if self.held:
            self.arena.leave(self.held.pop(list(self.held)[which % len(self.held)]))

    def words(self, row: U64) -> np.ndarray:
        return self.arena.words[int(row[BASE]) : int(row[BASE]) + self.arena.image_words(row)]

    def assert_sound(self) -> None:
        for number, row in self.held.items():
            assert (self.words(row) == number).all(), "an image is as it was left"
        assert self.arena.used_bytes >= self.size()

    def size(self) -> int:
        return self.arena.words.itemsize * sum(self.arena.image_words(row) for row in self.held.values())


@settings(max_examples=150 if JIT else 20, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    addresses=st.sampled_from([1, 1 << 36]),
    part=st.sampled_from([64, 5_000, 16 << 20]),
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 3_000)),
            st.tuples(st.just("leave"), st.integers(0, 50)),
            st.tuples(st.just("give back"), st.just(0)),
        ),
        max_size=40,
    ),
)
def test_images_keep_their_room_and_leave_it_zero(
    layout: Layout, addresses: int, part: int, moves: list[tuple[str, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arena_module, "_ADDRESSES", addresses)
        patch.setattr(arena_module, "_GIVEN_BACK", part)
        images = Images(layout)
        for move, number in moves:
            {"take": images.take, "leave": images.leave}.get(move, lambda _: images.arena.give_back())(number)
            images.assert_sound()
        while images.held:
            images.leave(0)
        for _ in range(2 + (8 << 20) // part):
            images.arena.give_back()
        assert images.arena.used_bytes == 0


def test_nothing_moves_while_there_are_addresses() -> None:
    images = Images(LAYOUTS[0])
    words = images.arena.words
    for number in range(200):
        images.take(1_000 + 37 * (number % 50))
        if number >= 3:
            images.leave(0)
        images.arena.give_back()
        images.assert_sound()
        assert images.arena.used_bytes <= 4 * images.size()
    assert images.arena.words is words


def test_memory_is_given_back_a_part_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "_GIVEN_BACK", 1 << 16)
    images = Images(LAYOUTS[0])
    images.take(200_000 if JIT else 20_000)
    size = images.size()
    images.leave(0)
    assert images.arena.used_bytes == size, "what was left is counted until it is given back"
    calls = 0
    while images.arena.used_bytes:
        images.arena.give_back()
        calls += 1
    assert calls == -(-size // (1 << 16))
    images.take(1)


def test_where_addresses_are_few_less_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = arena_module.mmap.mmap

    def limited(number: int, size: int, **options: int) -> object:
        asked.append(size)
        if size > 1 << 22:
            raise OSError("no addresses")
        return real(number, size, **options)

    monkeypatch.setattr(arena_module.mmap, "mmap", limited)
    images = Images(LAYOUTS[0])
    assert asked == [(1 << 36) >> n for n in range(15)]
    for number in range(10):
        images.take(20_000)
        images.leave(number)
        images.arena.give_back()
        images.assert_sound()
    with pytest.raises(MemoryError):
        images.arena.make_room(1 << 22, list(images.held.values()))
    images.assert_sound()
