"""One kernel while it is being emitted: names of its parameters, its local arrays, its flat steps."""

from __future__ import annotations

import re
from collections.abc import Mapping

from intarsia_cpp._index import c_text, size_symbols
from intarsia_cpp._ops import HEAVY, element
from intarsia_ir.records import Target
from intarsia_loops.index import Atom, IndexExpr, lift
from intarsia_loops.program import Buffer, Kernel, Val
from intarsia_loops.rewrites import operands, postorder
from intarsia_loops.vectors.steps import Block, Step, flat_steps, lanes_of, local_arrays

__all__ = ["Context", "size_name"]


def size_name(symbol: str) -> str:
    """Return the C parameter that holds the value of a size symbol."""
    return f"size_{symbol}"


class Context:
    """What all scopes of one kernel share. Names are given out in the order in which text asks for them."""

    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target, block: Block | None = None
    ) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.target = target
        self.threads = target.threads
        for v in (v for s in kernel.steps for v in postorder(s.body)):
            element(v.dtype)  # which refuses a type that C++ hasn't
        self.lanes = lanes_of(kernel, target.machine.vector_bytes)
        self.block = block
        self.arrays = local_arrays(kernel, block)
        self.steps = flat_steps(kernel, buffers, self.arrays)
        self.params: dict[str, str] = {}
        self._sizes: set[str] = set()
        self._axis_names: dict[Atom, str] = {}
        self._taken = {"l", "n"}
        self._temps = 0
        self._axes: dict[Val, frozenset[Atom]] = {}

    @property
    def sizes(self) -> tuple[str, ...]:
        """Size symbols used so far, sorted."""
        return tuple(sorted(self._sizes))

    def share_parameters(self, other: Context) -> None:
        """Be a part of the function of another kernel: take, and add to, its parameters."""
        self.params, self._sizes = other.params, other._sizes

    def temp(self, prefix: str = "t") -> str:
        """Return a fresh C name."""
        self._temps += 1
        return f"{prefix}{self._temps}"

    def pointer(self, buffer: str) -> str:
        """Return the C name of a parameter or local array."""
        if buffer in self.arrays:
            return f"local_{buffer}"
        return self.params.setdefault(buffer, f"b{len(self.params)}")

    def c(self, expr: IndexExpr) -> str:
        """Return an index expression as C text."""
        self._sizes |= size_symbols(expr)
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

    def cost(self, steps: tuple[Step, ...]) -> int:
        """Return the work at one point of the steps' loops, in additions."""
        distinct = {v for s in steps for v in postorder(s.body) if v.op != "const"}
        return len(steps) + sum(HEAVY.get(v.op, 1) for v in distinct)
