"""Statements for the values of one tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from intarsia_loops.addresses import address, divides_axes, product
from intarsia_loops.index import ZERO, Atom, IndexExpr, axis, lift, lower, upper
from intarsia_loops.ops import FLOATS
from intarsia_loops.program import Buffer, Val
from intarsia_loops.rewrites import operands, postorder
from intarsia_triton.demand import Wanted, wanted
from intarsia_triton.index import index_text, needs_64_bits
from intarsia_triton.ops import BY_SUM, TYPES, constant, inverse_name, operation

__all__ = ["Points", "Tile"]

_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a tile: the names of its index tiles, and which points are inside.

    Args:
        names: Axis -> name of its index tile: `[XBLOCK, 1]` for rows, `[1, RBLOCK]` for inner axes.
        inner: The axes among them that are inner.
        row_mask: Name of the mask of valid rows; "" when all are.
        inner_mask: Name of the mask of valid inner points; "" when all are.
        shape: Text of the tile's shape.
        flat: Axis -> name of a number of the same remainder by the axis's extent.
        ranges: Axes, outermost first -> name of the row-major number of their point.
        aligned: Element offset -> the text of its tile that shows how it is aligned.
    """

    names: Mapping[Atom, str]
    inner: frozenset[Atom] = frozenset()
    row_mask: str = ""
    inner_mask: str = ""
    shape: str = "[XBLOCK, 1]"
    flat: Mapping[Atom, str] = field(default_factory=dict)
    ranges: Mapping[tuple[Atom, ...], str] = field(default_factory=dict)
    aligned: Mapping[IndexExpr, str] = field(default_factory=dict)

    def mask(self, *, rows: bool = True, inner: bool = True) -> str:
        """Return the mask of a tile that depends on rows, inner points or both; "" when all points are valid."""
        parts = [self.row_mask if rows else "", self.inner_mask if inner else ""]
        return " & ".join(filter(None, parts))


class Tile:
    """Writes the values of a body as assignments to `t0, t1, ...`, each value once.

    Args:
        buffers: Layout of every buffer in memory.
        points: Where the values are taken.
        scalars: Buffer -> name of the row scalar that holds it.
        pointers: Buffer -> name of its pointer; grows as buffers are touched.
        counter: Number of the next temporary; shared by the tiles of a kernel.
        policies: Buffer -> eviction policy of its loads and stores.
        alone: Only one body is written: what it loads at some points need not be loaded at the others.
    """

    def __init__(
        self,
        buffers: Mapping[str, Buffer],
        points: Points,
        scalars: Mapping[str, str],
        pointers: dict[str, str],
        counter: list[int],
        policies: Mapping[str, str],
        *,
        alone: bool = False,
    ) -> None:
        self._alone = alone
        self._wanted: Mapping[Val, Wanted] = {}
        self._buffers, self.points, self._scalars = buffers, points, scalars
        self._pointers, self._counter, self._policies = pointers, counter, policies
        self._known: dict[Val, str] = {}
        # no axis of a kernel has such a name
        self._numbers = {k: axis(f"all {n}", product([a.extent for a in k])) for k, n in points.ranges.items()}
        self.lines: list[str] = []

    def value(self, body: Val) -> str:
        """Write what is missing for `body` and return its name."""
        self._wanted = wanted(body) if self._alone else {}
        for v in postorder(body, self._known):
            self._known[v] = self._assign(self._text(v))
        return self._known[body]

    def store(self, buffer: str, index: tuple[IndexExpr, ...], value: str) -> None:
        """Write `value` to a buffer at an index."""
        place = address(index, self._buffers[buffer].strides)
        offset = self.points.aligned.get(place) or self._index(place)
        where = f"{self._pointer(buffer)} + ({offset} + tl.zeros({self.points.shape}, tl.int32))"
        # a value that is the same in all points is a smaller tile, which a store doesn't broadcast
        shaped = f"tl.broadcast_to({value}, {self.points.shape})"
        mask = self.points.mask()
        policy = f', eviction_policy="{self._policies[buffer]}"' if buffer in self._policies else ""
        self.lines.append(f"tl.store({where}, {shaped}{f', {mask}' if mask else ''}{policy})")

    def atomic(self, name: str, buffer: str, places: Sequence[str], value: str) -> None:
        """Fold `value` into the element of a buffer at a place, which other points may have too.

        Args:
            name: `"add"`, `"max"` or `"min"`.
            buffer: The buffer.
            places: Names of the indices, one a dimension.
            value: Name of the value.
        """
        terms = [f"{at} * ({self._index(s)})" for at, s in zip(places, self._buffers[buffer].strides, strict=True)]
        where = f"{self._pointer(buffer)} + ({' + '.join(terms)} + tl.zeros({self.points.shape}, tl.int32))"
        shaped = f"tl.broadcast_to({value}, {self.points.shape})"
        mask, dtype = self.points.mask(), self._buffers[buffer].dtype
        if dtype in FLOATS and name != "add":
            points = mask or f"tl.full({self.points.shape}, 1, tl.int1)"
            nan = {"f32": 0x7FC00000, "f64": 0x7FF8000000000000}[dtype]
            nan = nan if name == "max" else nan - (1 << int(dtype[1:]) - 1)  # with the sign bit
            types = f"tl.int{dtype[1:]}, tl.uint{dtype[1:]}, {nan}"
            self.lines.append(f"float_atomic_{name}({where}, {shaped}, {points}, {types})")
            return
        self.lines.append(f'tl.atomic_{name}({where}, {shaped}{f", {mask}" if mask else ""}, sem="relaxed")')

    def check(self, value: str, message: str) -> None:
        """Stop the GPU with a message unless `value` is true at every point."""
        mask = self.points.mask()
        self.lines.append(f"tl.device_assert({value}{f' | (({mask}) == 0)' if mask else ''}, {message!r})")

    def _text(self, v: Val) -> str:
        if v.op == "const":
            return constant(v.args[0], v.dtype)
        if v.op == "index":
            return f"({self._index(v.args[0])} + tl.full([1, 1], 0, tl.int64))"
        if v.op == "load" and v.args[0] in self._scalars:
            return self._scalars[v.args[0]]
        if v.op in ("load", "gather"):
            return self._load(v)
        if v.op in BY_SUM:
            return BY_SUM[v.op].format(*(self._known[o] for o in operands(v)), inverse_name(v.args[1].args[0]))
        if v.op in _COMPARISONS and all(map(_is_short_index, v.args)) and any(a.args[0].axes() for a in v.args):
            return f"({self._index(v.args[0].args[0])} {_COMPARISONS[v.op]} {self._index(v.args[1].args[0])})"
        return operation(v, [self._known[o] for o in operands(v)])

    def _load(self, v: Val) -> str:
        buffer, index = v.args
        axes, computed, terms = set(), False, []
        for position, stride in zip(index, self._buffers[buffer].strides, strict=True):
            if isinstance(position, Val):
                computed, at = True, self._known[position]
            else:
                axes |= set(position.axes())
                at = f"({self._index(position)})"
            terms.append(f"{at} * ({self._index(stride)})")
        inner = computed or not axes.isdisjoint(self.points.inner)
        rows = computed or not axes <= self.points.inner
        offset = " + ".join([*terms, "tl.zeros([1, 1], tl.int32)"])
        if not computed:
            place = address(index, self._buffers[buffer].strides)
            if (any(map(divides_axes, index)) and not divides_axes(place)) or self._in_one(place) is not place:
                offset = f"{self._index(place)} + tl.zeros([1, 1], tl.int32)"
            offset = self.points.aligned.get(place, offset)
        mask = " & ".join(filter(None, [self.points.mask(rows=rows, inner=inner), *self._conditions(v, rows, inner)]))
        masked = f", {mask}, other=0" if mask else ""
        policy = f', eviction_policy="{self._policies[buffer]}"' if inner and buffer in self._policies else ""
        text = f"tl.load({self._pointer(buffer)} + ({offset}){masked}{policy})"
        return f"{text}.to({TYPES[v.dtype]})" if v.dtype == "b8" else text

    def _conditions(self, v: Val, rows: bool, inner: bool) -> list[str]:
        """Return the masks of the points at which a load is wanted, of those that have the shape of its tile."""
        texts = []
        for condition, must in sorted(self._wanted.get(v, ()), key=str):
            axes = {axis for x in postorder(condition) if x.op == "index" for axis in x.args[0].axes()}
            on_inner, on_rows = not axes.isdisjoint(self.points.inner), not axes <= self.points.inner
            if condition in self._known and (rows or not on_rows) and (inner or not on_inner):
                texts.append(self._known[condition] if must else f"({self._known[condition]} == 0)")
        return texts

    def _in_one(self, place: IndexExpr) -> IndexExpr:
        """Return an address with axes that memory runs through as one replaced by the number of their point.

        Triton sees that neighbouring numbers are neighbours in memory. Of quotients and remainders it does so only as
        far as the extent is a multiple of a power of two: of 55 by 55 points it would move one at a time.
        """
        for axes, number in self._numbers.items():
            coefficient = place.coef(axes[-1]) if len(axes) > 1 else None
            if coefficient is None or coefficient[0] is ZERO:
                continue
            step, rest = coefficient[0], place
            below: IndexExpr = step
            for one in reversed(axes):
                coefficient = rest.coef(one)
                if coefficient is None or coefficient[0] is not below:
                    break
                rest, below = coefficient[1], below * one.extent
            else:
                place = rest + step * lift(number)
        return place

    def _index(self, expr: IndexExpr) -> str:
        expr = self._in_one(expr)
        numbers = {number: self.points.ranges[axes] for axes, number in self._numbers.items()}
        names, flat = {**self.points.names, **numbers}, self.points.flat
        if needs_64_bits(expr):
            names, flat = ({a: f"{name}.to(tl.int64)" for a, name in given.items()} for given in (names, flat))
        return index_text(expr, names, flat)

    def _pointer(self, buffer: str) -> str:
        return self._pointers.setdefault(buffer, f"p{len(self._pointers)}")

    def _assign(self, text: str) -> str:
        name = f"t{self._counter[0]}"
        self._counter[0] += 1
        self.lines.append(f"{name} = {text}")
        return name


def _is_short_index(v: Val) -> bool:
    """Tell whether a value is a position of at most 31 bits, which is compared as it is."""
    if v.op != "index":
        return False
    bounds = [bound.const() if bound is not None else None for bound in (lower(v.args[0]), upper(v.args[0]))]
    return all(bound is not None and abs(bound) < 1 << 31 for bound in bounds)
