"""Writers broken on purpose, each in one place: the laws must notice.

KVCOMPASS_JIT=0 python -m tests.models.index_mutants NAME

Exit status 0: the laws noticed. 1: they did not. `none` breaks nothing, and must exit with 1.
"""

import argparse
import sys
from collections.abc import Callable

from kvcompass.index import table_writer
from kvcompass.kernels import cuckoo, forest, insertion, writer
from kvcompass.kernels.arrays import Int
from kvcompass.kernels.jit import JIT
from kvcompass.kernels.state import Scratch, Table
from tests.models.index_churn import crowded, growing, nearly_full


def _flip_nothing() -> None:
    """A key moves to its other bucket and its Othello bit stays."""

    def flip(table: Table, scratch: Scratch, side: Int, count: Int) -> bool:
        return True

    cuckoo.flip_side = insertion.flip_side = flip


def _flip_one_node_less() -> None:
    """The last node of a walked side is left out: keys at it change their bit."""
    whole = forest.flip_side

    def flip(table: Table, scratch: Scratch, side: Int, count: Int) -> bool:
        return whole(table, scratch, side, max(1, count - 1))

    cuckoo.flip_side = insertion.flip_side = flip


def _ignore_pins() -> None:
    """Flips that part the ends of a pinned edge are made."""

    def legal(table: Table, scratch: Scratch, side: Int, count: Int) -> bool:
        return True

    cuckoo.flip_is_legal = insertion.flip_is_legal = legal


def _forget_no_edge() -> None:
    """A removed key's edge stays in the forest."""

    def drop(table: Table, scratch: Scratch, edge: Int) -> None:
        return

    insertion.drop_edge = drop


def _split_once() -> None:
    """A bucket that is edited after it was split is not split again."""

    def follow(
        table: Table, wide: Table, bucket: Int, table_id: Int, out: object, at: Int
    ) -> tuple[Int, Int]:
        return at, 0

    writer._follow = follow


def _keep_edges_of_the_gone() -> None:
    """A key removed while its table grows stays an edge of the doubled one."""

    def forget(wide: Table, entry: Int) -> None:
        return

    writer.forget_entry = forget


MUTANTS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "flip_nothing": _flip_nothing,
    "flip_one_node_less": _flip_one_node_less,
    "ignore_pins": _ignore_pins,
    "forget_no_edge": _forget_no_edge,
    "split_once": _split_once,
    "keep_edges_of_the_gone": _keep_edges_of_the_gone,
}


def main() -> None:
    """Break the writer, then run the churn that the laws are made of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutant", choices=MUTANTS)
    assert not JIT, "compiled kernels cannot be broken from outside"
    MUTANTS[parser.parse_args().mutant]()
    table_writer._SLICE, table_writer._SPLITS_AN_EDIT, table_writer._SPLITS_AN_INSERT = 1, 1, 2
    try:
        for seed in range(1):
            growing(seed, edits=110)
            crowded(seed, edits=80)
            nearly_full(seed, expected=30, turnovers=1)
    except (AssertionError, IndexError) as error:
        print(f"noticed: {error!r}"[:200])  # noqa: T201
        return
    sys.exit(1)


if __name__ == "__main__":
    main()
