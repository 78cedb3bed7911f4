"""Taking a payload of patch groups in one call: checked whole, and applied if it is sound."""

from kvcompass.kernels.arrays import I64, U32, U64, Int, Words
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.patch_apply import apply_groups
from kvcompass.kernels.patch_check import SOUND, check_groups


@kernel
def take_groups(
    payload: U32,
    count: Int,
    skip: Int,
    words: Words,
    directory: U64,
    first_row: Int,
    tables: Int,
    value_slots: Int,
    wide: U64,
    growth: I64,
    state: I64,
    buckets_most: Int,
    work_most: Int,
) -> tuple[Int, Int]:
    """Arguments are those of `check_groups`; what is not sound changes nothing.

    Returns what is found of the payload, and where `apply_groups` stopped: its end, or a GROW group.
    """
    found = check_groups(
        payload, count, skip, words, directory, first_row, tables, value_slots, wide, growth, state,
        buckets_most, work_most,
    )  # fmt: skip
    if found != SOUND:
        return found, 0
    return found, apply_groups(payload, 0, skip, words, directory, first_row, wide, growth)
