"""What else the tiles and cuts of a grid may be: the search space of a launch, as data of its plan.

Each value gives the same results beside what was chosen for the other words. A search that changes several words at
once may ask for what can't be, such as parts of more than one row; `walk_of` refuses that.
"""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_ir.records import Machine
from intarsia_loops.addresses import product
from intarsia_loops.launches import Blocks
from intarsia_loops.program import Kernel
from intarsia_scheduler.grid.split import Cut, cut_steps
from intarsia_scheduler.measured.limits import most_programs, most_warps

__all__ = ["other_chunks", "other_cuts", "other_tiles"]

Others = tuple[str | int, ...]
# points of a program: what its registers hold, and what is worth starting it
MOST_POINTS, LEAST_POINTS = 8192, 128
MOST_ROWS, MOST_TILE = 64, 16384
# a tile in two dimensions has sides of so many points
SIDES = (16, 128)
# parts into which a reduction may be cut, and the fewest points of one
CUTS, LEAST_PART = (2, 4, 8, 16, 32, 64, 128, 256), 128


def other_tiles(kind: str, blocks: Blocks, joins: str, rows: int | None, machine: Machine) -> Mapping[str, Others]:
    """Return, for words of a plan, the values that they may have instead.

    Args:
        kind: How a launch is walked, as `Walk` has it.
        blocks: Its tile.
        joins: What shares a walk, as the plan has it.
        rows: How many there are; None where that isn't known.
        machine: What it will run on.
    """
    found: dict[str, Others] = {"warps": _powers(1, most_warps(machine), blocks.warps)}
    if kind == "points":
        found["block"] = _powers(*SIDES, blocks.rows) if blocks.rows > 1 else ()
        low, high = SIDES if blocks.rows > 1 else (LEAST_POINTS, MOST_POINTS // 2)
        found["tile"] = _powers(low, high, blocks.inner)
        return found
    most = MOST_ROWS if rows is None else min(MOST_ROWS, _above(rows))
    if kind == "rows" and blocks.inner == 1:
        found["block"] = _powers(LEAST_POINTS, MOST_POINTS // 2, blocks.rows)
    elif kind == "rows" and blocks.persistent:
        found["block"] = _powers(1, min(most, max(1, MOST_POINTS // blocks.inner)), blocks.rows)
        found["persistent"] = (0,)
    elif kind == "rows":
        found |= _walked(blocks, joins, most)
    elif kind == "scan":
        found["block"] = _powers(1, min(most, max(1, MOST_POINTS // blocks.inner)), blocks.rows)
    return found


def _walked(blocks: Blocks, joins: str, most: int) -> Mapping[str, Others]:
    """Rows that are walked tile by tile."""
    return {
        "block": _powers(1, most, blocks.rows) if blocks.parts == 1 else (),
        "tile": _powers(max(blocks.parts, blocks.inner // 8), min(MOST_TILE, 4 * blocks.inner), blocks.inner),
        "parts": tuple(n for n in (1, 2, 4, 8) if n != blocks.parts and n <= blocks.inner) if blocks.rows == 1 else (),
        "joins": tuple(text for text in ("", "exp", "exp squares") if text != joins),
        "stages": tuple(n for n in (1, 2, 3) if n != blocks.stages),
    }


def other_cuts(kernel: Kernel, chosen: Cut | None, programs: int | None, machine: Machine) -> Others:
    """Return how else the reductions of a kernel may be cut.

    Args:
        kernel: One of which `cut_steps` gives something.
        chosen: How they are; None: they aren't.
        programs: How many programs its rows are for; None where that isn't known.
        machine: What it will run on.
    """
    red = cut_steps(kernel)[0].red
    outer, points = red[0].extent.const(), product([a.extent for a in red]).const()
    if not outer or not points or not programs:
        return ("whole",) if chosen is not None else ()
    most = min(most_programs(machine) // programs, points // LEAST_PART)
    lengths = [outer // n for n in CUTS if n <= most and outer % n == 0]
    found = tuple(f"0 {n}" for n in lengths if chosen != Cut(0, n))
    return ("whole", *found) if chosen is not None else found


def other_chunks(chosen: int) -> Others:
    """Return of how many points the chunks of a scan may be instead; 0: it is whole."""
    return (0, chosen // 2, 2 * chosen) if chosen > 1 else ()


def _powers(low: int, high: int, but: int) -> Others:
    """Return the powers of two from `low` to `high`, which are positive, without one."""
    first = _above(low)
    return tuple(n for n in (first << k for k in range(max(0, (high // first).bit_length()))) if n != but)


def _above(n: int) -> int:
    """Return the least power of two from `n` on."""
    return 1 << max(0, n - 1).bit_length()
