"""What items wait for besides buffers: sizes that calls give, and checks of those sizes.

An item that needs a size runs after the call that gives it, and after every check of that size which came before it in
the program: what a check refuses must not be used to address memory. Each is a name of its own, no buffer's.
"""

from __future__ import annotations

from intarsia_fuser.effects import has_effect
from intarsia_loops.program import Extern, Item, Program
from intarsia_loops.shown import makers, needed_symbols

__all__ = ["Waits"]


class Waits:
    """The names that the items of a program wait for.

    Args:
        program: A loops program; ranks are positions in it.
    """

    def __init__(self, program: Program) -> None:
        self._buffers = program.buffers
        self._made_at = makers(program)
        self._checks: dict[int, frozenset[str]] = {}  # rank of a check -> the sizes that it asks about
        if not self._made_at:
            return
        for rank, item in enumerate(program.items):
            if isinstance(item, Extern) and not any(item.outs) and has_effect(item.target):
                asked = needed_symbols(item, program.buffers) & self._made_at.keys()
                self._checks |= {rank: frozenset(asked)} if asked else {}

    def ended_by(self, rank: int) -> tuple[str, ...]:
        """Return the names that what is at `rank` ends the waiting for."""
        if not self._made_at:
            return ()
        sizes = sorted(_size(name) for name, at in self._made_at.items() if at == rank)
        return (*sizes, *([_check(rank)] if rank in self._checks else ()))

    def of(self, item: Item, rank: int) -> tuple[str, ...]:
        """Return the names that an item at `rank` waits for."""
        if not self._made_at:
            return ()
        needed = needed_symbols(item, self._buffers) & self._made_at.keys()
        checks = [_check(at) for at, asked in self._checks.items() if at < rank and asked & needed]
        return (*sorted(map(_size, needed)), *checks)


def _size(symbol: str) -> str:
    return f"size {symbol}"


def _check(rank: int) -> str:
    return f"check @{rank}"
