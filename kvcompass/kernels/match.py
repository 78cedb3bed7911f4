"""The match of one prompt against every worker: what each holds of it without a gap (paper 3.2).

A table is read level by level while any of its workers is still *alive*: set at every level read so far. A
worker that holds a length holds every shorter one, so the first level at which its field is empty ends its
match (the prefix-consistency filter), and a claim is worth something only above a guard that is set too.
Most prompts end at the guard of most tables, so that is read first, of all tables at once; what is then
alive is read several levels at a time.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import I32, I64, U8, U64, Flags, Int, Words
from kvcompass.kernels.hashing import mix_bucket, mix_node
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.lookup import shard_index
from kvcompass.kernels.probes import PROBES, aim, name, read

TABLE: Final = 0
NEXT: Final = 1
"""Where in its region's list of levels the table is read next."""
TOKENS: Final = 2
"""Longest length read so far that counts, tokens; 0 for none."""
END: Final = 3
"""Past the last of its probes of this turn."""
RUN: Final = 4
"""Columns of a run: a table that is being read."""
ALIVE: Final = 0
"""Fields (bit 2s for slot s) set at every level read so far."""
VALUE: Final = 1
"""Value at the length of TOKENS."""

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_2: Final = np.uint64(2)
_3: Final = np.uint64(3)


@kernel
def match_keys(
    words: Words,
    directory: U64,
    present: Flags,
    keys: U64,
    rungs: I32,
    reads: I32,
    guard: I32,
    table_region: I32,
    table_fields: U64,
    field_worker: I32,
    probes: U64,
    mixes: U64,
    probe_level: I32,
    runs: I64,
    run_fields: U64,
    match_tokens: I32,
    tier: U8,
) -> None:
    """Set match_tokens[W] and tier[W]: the longest contiguous run of set levels of every worker, or 0.

    The directory has as many rows for each shard, at least as many as there are tables here.
    Table t belongs to region table_region[t]; table_fields[t] has bit 2s set for each slot s in use, and
    field_worker[t, s] is the worker there. keys[l] is the key of rungs[l]; levels beyond keys.size have none.
    reads[r] lists the levels read toward region r, ascending, -1 after the last. guard[r] (-1: none) is read
    as a filter and never credited; it is the first of them. Levels of absent shards are skipped.
    Scratch: probes uint64[PROBES, PROBE], mixes uint64[rungs, 2], probe_level int32[PROBES],
    runs int64[PROBES, RUN], run_fields uint64[PROBES, 2].
    """
    for worker in range(match_tokens.size):
        match_tokens[worker] = 0
        tier[worker] = 0
    levels = min(keys.size, rungs.size)
    for level in range(levels):
        mixes[level, 0] = mix_bucket(keys[level])
        mixes[level, 1] = mix_node(keys[level])
    for first in range(0, table_region.size, PROBES):
        running = 0
        for table in range(first, min(first + PROBES, table_region.size)):
            if table_fields[table] != _0:
                runs[running, TABLE] = table
                runs[running, NEXT] = 0
                runs[running, TOKENS] = 0
                run_fields[running, ALIVE] = table_fields[table]
                run_fields[running, VALUE] = _0
                running += 1
        depth = 1
        while running > 0:
            aimed: Int = 0
            for run in range(running):
                region = np.int64(table_region[runs[run, TABLE]])
                aimed = _aim_levels(
                    words, directory, present, keys, reads[region], levels, probes, mixes, probe_level,
                    runs[run], depth, aimed,
                )  # fmt: skip
            for probe in range(aimed):
                name(words, directory, probes, probe)
            kept = 0
            begin: Int = 0
            for run in range(running):
                table = runs[run, TABLE]
                end = runs[run, END]
                goes_on = _read_levels(
                    words, directory, probes, probe_level, rungs, np.int64(guard[table_region[table]]),
                    begin, runs[run], run_fields[run], field_worker[table], match_tokens, tier,
                )  # fmt: skip
                begin = end
                if goes_on and runs[run, NEXT] < reads.shape[1]:
                    for column in range(RUN):
                        runs[kept, column] = runs[run, column]
                    run_fields[kept, ALIVE] = run_fields[run, ALIVE]
                    run_fields[kept, VALUE] = run_fields[run, VALUE]
                    kept += 1
                elif goes_on:
                    _credit(
                        run_fields[run, ALIVE], runs[run], run_fields[run, VALUE], field_worker[table],
                        match_tokens, tier,
                    )  # fmt: skip
            running = kept
            depth = PROBES // max(1, running)


@kernel
def _aim_levels(
    words: Words,
    directory: U64,
    present: Flags,
    keys: U64,
    levels_read: I32,
    levels: Int,
    probes: U64,
    mixes: U64,
    probe_level: I32,
    run: I64,
    depth: Int,
    aimed: Int,
) -> Int:
    """Start probes of a table's next `depth` levels, less those of absent shards; the number aimed then."""
    width = directory.shape[0] // present.size
    most = aimed + depth
    at = run[NEXT]
    while at < levels_read.size and aimed < most:
        level = np.int64(levels_read[at])
        if level < 0 or level >= levels:
            at = levels_read.size
        else:
            at += 1
            shard = shard_index(keys[level], present.size)
            if present[shard]:
                row = shard * width + run[TABLE]
                aim(words, directory, probes, aimed, row, mixes[level, 0], mixes[level, 1])
                probe_level[aimed] = level
                aimed += 1
    run[NEXT] = at
    run[END] = aimed
    return aimed


@kernel
def _read_levels(
    words: Words,
    directory: U64,
    probes: U64,
    probe_level: I32,
    rungs: I32,
    guard: Int,
    begin: Int,
    run: I64,
    fields: U64,
    worker: I32,
    match_tokens: I32,
    tier: U8,
) -> bool:
    """Read a table's probes from `begin` on; whether any of its workers is alive after them."""
    alive: np.uint64 = fields[ALIVE]
    for probe in range(begin, run[END]):
        value = read(words, directory, probes, probe)
        ended = alive & ~(value | (value >> _1))
        if ended != _0:
            _credit(ended, run, fields[VALUE], worker, match_tokens, tier)
            alive ^= ended
            if alive == _0:
                return False
        level = np.int64(probe_level[probe])
        if level != guard:
            run[TOKENS] = np.int64(rungs[level])
            fields[VALUE] = value
    fields[ALIVE] = alive
    return True


@kernel
def _credit(fields: np.uint64, run: I64, value: np.uint64, worker: I32, match_tokens: I32, tier: U8) -> None:
    """Credit the workers of some fields with the last length at which they were all set.

    Both bits of a field are no tier that a writer sets; they are taken for DRAM, the dearer one.
    """
    if run[TOKENS] == 0:
        return
    for slot in range(worker.size):
        shift = np.uint64(2 * slot)
        if (fields >> shift) & _1 == _1:
            match_tokens[worker[slot]] = np.int32(run[TOKENS])
            tier[worker[slot]] = np.uint8(min((value >> shift) & _3, _2))
