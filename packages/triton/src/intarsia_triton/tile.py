"""Statements for the values of one tile."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.program import Buffer, Val
from intarsia_loops.rewrites import operands, postorder
from intarsia_triton.index import address, index_text
from intarsia_triton.ops import TYPES, constant, operation

__all__ = ["Tile"]


class Tile:
    """Writes the values of a body as assignments to `t0, t1, ...`, each value once.

    Args:
        buffers: Layout of every buffer in memory.
        names: Axis -> name of its index tile.
        scalars: Buffer -> name of the row scalar that holds it.
        pointers: Buffer -> name of its pointer; grows as buffers are touched.
        mask: Text of the mask of valid points.
        counter: Number of the next temporary; shared by the tiles of a kernel.
    """

    def __init__(
        self,
        buffers: Mapping[str, Buffer],
        names: Mapping[Atom, str],
        scalars: Mapping[str, str],
        pointers: dict[str, str],
        mask: str,
        counter: list[int],
    ) -> None:
        self._buffers, self._names, self._scalars = buffers, names, scalars
        self._pointers, self._mask, self._counter = pointers, mask, counter
        self._known: dict[Val, str] = {}
        self.lines: list[str] = []

    def value(self, body: Val) -> str:
        """Write what is missing for `body` and return its name."""
        for v in postorder(body, self._known):
            self._known[v] = self._assign(self._text(v))
        return self._known[body]

    def store(self, buffer: str, index: tuple[IndexExpr, ...], value: str) -> None:
        """Write `value` to a buffer at an index."""
        offset = index_text(address(index, self._buffers[buffer].strides), self._names)
        # a value that is the same in all points is a smaller tile, which a store doesn't broadcast
        shaped = f"tl.broadcast_to({value}, ({self._mask}).shape)"
        self.lines.append(f"tl.store({self._pointer(buffer)} + ({self._broadcast(offset)}), {shaped}, {self._mask})")

    def _text(self, v: Val) -> str:
        if v.op == "const":
            return constant(v.args[0], v.dtype)
        if v.op == "index":
            return f"({index_text(v.args[0], self._names)} + tl.full([1, 1], 0, tl.int64))"
        if v.op == "load" and v.args[0] in self._scalars:
            return self._scalars[v.args[0]]
        if v.op in ("load", "gather"):
            return self._load(v)
        return operation(v, [self._known[o] for o in operands(v)])

    def _load(self, v: Val) -> str:
        buffer, index = v.args
        terms = []
        for position, stride in zip(index, self._buffers[buffer].strides, strict=True):
            at = self._known[position] if isinstance(position, Val) else f"({index_text(position, self._names)})"
            terms.append(f"{at} * ({index_text(stride, self._names)})")
        offset = self._broadcast(" + ".join(terms) or "0")
        text = f"tl.load({self._pointer(buffer)} + ({offset}), {self._mask}, other=0)"
        return f"{text}.to({TYPES[v.dtype]})" if v.dtype == "b8" else text

    def _broadcast(self, offset: str) -> str:
        """Give an offset the shape of the mask."""
        return f"{offset} + tl.zeros_like({self._mask}.to(tl.int32))"

    def _pointer(self, buffer: str) -> str:
        return self._pointers.setdefault(buffer, f"p{len(self._pointers)}")

    def _assign(self, text: str) -> str:
        name = f"t{self._counter[0]}"
        self._counter[0] += 1
        self.lines.append(f"{name} = {text}")
        return name
