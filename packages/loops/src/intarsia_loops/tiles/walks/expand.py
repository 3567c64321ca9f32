"""A walk -> the statements that it stands for: vector by vector as C++ runs it, tile by tile as Triton does.

    maps       loops, the last in vectors; in pieces for threads; or in squares that are turned in registers
    rows       loops over rows; in each, nests of loops of which the last is in vectors; sums in chains
    columns    loops over blocks of rows, one row in each lane; in each, nests of plain loops around the block's vectors
    points     updates, in order but along loops whose points have elements of their own
    grid       programs, in `grids`

One thing is decided while the code runs and isn't here: blocks of an unknown number of rows may be narrower than the
widest. Whether threads are woken for little work has no meaning, and neither has the manner in which values are had.
"""

from __future__ import annotations

from dataclasses import replace

from intarsia_loops.tiles.grids.statements import grid
from intarsia_loops.tiles.names import index_width, touched
from intarsia_loops.tiles.program import GridWalk, Launch, Statement, Tiles, VectorWalk
from intarsia_loops.tiles.walks.columns import columns
from intarsia_loops.tiles.walks.maps import maps, points
from intarsia_loops.tiles.walks.points import Names
from intarsia_loops.tiles.walks.rows import rows
from intarsia_loops.vectors.walks import Maps, Part, Points

__all__ = ["expand", "expanded", "written_out"]


def expand(walk: VectorWalk | GridWalk) -> tuple[Statement, ...]:
    """Return the statements that a walk stands for."""
    if isinstance(walk, GridWalk):
        return tuple(grid(walk))
    names = Names()
    return tuple(s for part in walk.parts for s in _part(part, names))


def expanded(tiles: Tiles) -> Tiles:
    """Return a program with every walk written out."""
    items = []
    for item in tiles.items:
        walk = item.body[0] if isinstance(item, Launch) and item.body else None
        if isinstance(walk, VectorWalk | GridWalk) and isinstance(item, Launch):
            item = written_out(item, walk)
        items.append(item)
    return replace(tiles, items=tuple(items))


def written_out(launch: Launch, walk: VectorWalk | GridWalk) -> Launch:
    """Return the launch of the statements that a walk stands for, without parameters that none of them touches."""
    written = replace(launch, body=expand(walk))
    if isinstance(walk, GridWalk):
        written = replace(written, width=index_width(written.body))  # a grid widens what needs it
    used = set().union(*touched(written))
    kept = [k for k, p in enumerate(launch.params) if p in used]
    sets = tuple(tuple(names[k] for k in kept) for names in launch.sets)
    return replace(written, params=tuple(launch.params[k] for k in kept), sets=sets)


def _part(part: Part, names: Names) -> list[Statement]:
    if isinstance(part, Maps):
        return maps(part, names)
    if isinstance(part, Points):
        return points(part, names)
    return rows(part, names) if part.block is None else columns(part, part.block, names)
