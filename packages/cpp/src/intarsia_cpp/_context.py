"""One kernel while it is being emitted: names of its parameters, sizes, loop variables and temporaries."""

from __future__ import annotations

import re
from collections.abc import Mapping

from intarsia_cpp._index import c_text, size_symbols
from intarsia_loops.index import Atom, IndexExpr, lift
from intarsia_loops.program import Val
from intarsia_loops.rewrites import operands, postorder
from intarsia_loops.vectors.steps import Array
from intarsia_loops.vectors.walks import Part, Rows

__all__ = ["Context", "Parameters", "size_name"]


def size_name(symbol: str) -> str:
    """Return the C parameter that holds the value of a size symbol."""
    return f"size_{symbol}"


class Parameters:
    """Parameters of a function, by the order in which its text asks for them: buffers, then the sizes of shapes."""

    def __init__(self) -> None:
        self.buffers: dict[str, str] = {}
        self.symbols: set[str] = set()

    def pointer(self, buffer: str) -> str:
        """Return the C name of a buffer."""
        return self.buffers.setdefault(buffer, f"b{len(self.buffers)}")

    @property
    def sizes(self) -> tuple[str, ...]:
        """Size symbols used so far, sorted."""
        return tuple(sorted(self.symbols))


class Context:
    """What all scopes of one part of a kernel share. Names are given out in the order in which text asks for them."""

    def __init__(self, part: Part, parameters: Parameters) -> None:
        self.parameters = parameters
        self.lanes, self.manner = part.lanes, part.manner
        self.block = part.block if isinstance(part, Rows) else None
        self.arrays: Mapping[str, Array] = part.arrays if isinstance(part, Rows) else {}
        self._axis_names: dict[Atom, str] = {}
        self._taken = {"l", "n"}
        self._temps = 0
        self._axes: dict[Val, frozenset[Atom]] = {}

    def temp(self, prefix: str = "t") -> str:
        """Return a fresh C name."""
        self._temps += 1
        return f"{prefix}{self._temps}"

    def pointer(self, buffer: str) -> str:
        """Return the C name of a parameter or local array."""
        if buffer in self.arrays:
            return f"local_{buffer}"
        return self.parameters.pointer(buffer)

    def c(self, expr: IndexExpr) -> str:
        """Return an index expression as C text."""
        self.parameters.symbols |= size_symbols(expr)
        return c_text(expr, self.name_of)

    def name_of(self, atom: Atom) -> str:
        """Return the C variable of an axis or size symbol."""
        if atom.kind == "sym":
            return size_name(atom.key)
        name = self._axis_names.get(atom)
        if name is None:
            name = base = atom.key if re.fullmatch(r"[ir]\d\w*|[lk]|start", atom.key) else f"x{len(self._axis_names)}"
            k = 1
            while name in self._taken and name != "l":
                k += 1
                name = f"{base}_{k}"
            self._taken.add(name)
            self._axis_names[atom] = name
        return name

    def axes_of(self, v: Val) -> frozenset[Atom]:
        """Return the loop variables that a flat value depends on."""
        if v not in self._axes:
            # asked bottom-up, operands are known already and nothing needs to be walked
            below = (v,) if all(a in self._axes for a in operands(v)) else postorder(v)
            for u in below:
                if u not in self._axes:
                    self._axes[u] = self._own_axes(u)
        return self._axes[v]

    def _own_axes(self, v: Val) -> frozenset[Atom]:
        if v.op == "index":
            return frozenset(v.args[0].axes())
        if v.op == "const":
            return frozenset()
        entries = v.args[1] if v.op in ("load", "gather") else v.args
        below = [self._axes[a] if type(a) is Val else frozenset(a.axes()) for a in entries]
        return frozenset[Atom]().union(*below)

    def is_padded(self, buffer: str, address: IndexExpr, lane: Atom | None) -> bool:
        """Whether whole vectors may be moved at the end of a local array, because it has room past the end."""
        return buffer in self.arrays and (self.block is not None or (lane is not None and address is lift(lane)))
