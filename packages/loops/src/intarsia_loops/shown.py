"""Size symbols that no input has: which extern call makes them, where they are read from its results, who needs them.

A call makes the symbols that stand alone as a size or stride of one of its results, such as `u0` of `%y: i64[u0, 2] =
extern aten.nonzero.default(%x)`, and the numbers among its results: `u0 = extern aten._local_scalar_dense.default(%n)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from intarsia_loops.called import Called
from intarsia_loops.index import IndexExpr
from intarsia_loops.program import Buffer, Condition, Extern, Item, Kernel, Nest, Program, TensorRef, Val
from intarsia_loops.rewrites import postorder

__all__ = ["Shown", "makers", "needed_symbols", "returned_symbols", "shown_by", "symbols_of"]


@dataclass(frozen=True, slots=True)
class Shown:
    """Where the value of a size symbol is read.

    Args:
        symbol: The symbol.
        name: The buffer that shows it; the symbol itself where a call gives the number.
        kind: `"size"`, `"stride"` or `"itself"`.
        dim: The dimension of the buffer.
    """

    symbol: str
    name: str
    kind: str
    dim: int = 0


def shown_by(names: Iterable[str], buffers: Mapping[str, Buffer]) -> Iterator[Shown]:
    """Yield what inputs, constants or results show, in order; a name that is no buffer is a symbol itself."""
    for name in filter(None, names):
        buffer = buffers.get(name)
        if buffer is None:
            yield Shown(name, name, "itself")
            continue
        for kind, numbers in (("size", buffer.shape), ("stride", buffer.strides)):
            for dim, number in enumerate(numbers):
                symbol = _alone(number)
                if symbol is not None:
                    yield Shown(symbol, name, kind, dim)


def makers(program: Program | Called) -> dict[str, int]:
    """Return the size symbols that calls make -> the position of the call.

    Example:
        >>> from intarsia_loops import from_fx, loops
        >>> text = '''// dialect: loops 2
        ... symbol u0 in [0, inf]
        ... graph(%x: f32[4]) {
        ...   %y: i64[u0, 1]@(1, u0) = extern aten.nonzero.default(%x)
        ...   return (%y,)
        ... }
        ... '''
        >>> makers(from_fx(loops.parse_ir(text)))
        {'u0': 0}
    """
    calls = [(k, item) for k, item in enumerate(program.items) if isinstance(item, Extern)]
    positions: dict[str, int] = {}
    for position, item in calls:
        for shown in shown_by(item.outs, program.buffers):
            positions.setdefault(shown.symbol, position)
    if positions:
        for shown in shown_by((*program.inputs, *program.constants), program.buffers):
            positions.pop(shown.symbol, None)
    return positions


def needed_symbols(item: Item, buffers: Mapping[str, Buffer]) -> frozenset[str]:
    """Return the size symbols that must be known before an item runs, those of the memory that it touches included."""
    if isinstance(item, Extern):
        shown_here = {shown.symbol for shown in shown_by(item.outs, buffers)}
        of_results = symbols_of(buffers[out] for out in item.outs if out in buffers)
        return frozenset({*_in_arguments((item.args, item.kwargs)), *(of_results - shown_here)})
    nests = item.steps if isinstance(item, Kernel) else (item,)
    needed: set[str] = set()
    for nest in nests:
        needed |= _in_nest(nest, buffers)
    return frozenset(needed)


def returned_symbols(program: Program) -> set[str]:
    """Return the size symbols that the results of a program need."""
    results = {out.buffer for out in program.outputs if isinstance(out, TensorRef)}
    returned = symbols_of(program.buffers[name] for name in results if name in program.buffers)
    return returned | _in_arguments(program.outputs)


def symbols_of(buffers: Iterable[Buffer]) -> set[str]:
    """Return the names of all size symbols in sizes and strides of these buffers."""
    return {name for b in buffers for e in (*b.shape, *b.strides) for name in e.symbols()}


def _in_nest(nest: Nest, buffers: Mapping[str, Buffer]) -> set[str]:
    symbols = symbols_of(buffers[name] for name in (nest.out, *nest.reads()) if name in buffers)
    for axis in (*nest.axes, *nest.red):
        symbols |= axis.extent.symbols()
    for value in postorder(nest.body):
        entries = value.args[1] if value.op in ("load", "gather") else value.args[:1] if value.op == "index" else ()
        for entry in entries:
            if isinstance(entry, IndexExpr):
                symbols |= entry.symbols()
    return symbols


def _in_arguments(value: object) -> set[str]:
    if isinstance(value, TensorRef):
        return {name for e in (*value.shape, *value.strides, value.offset) for name in e.symbols()}
    if isinstance(value, IndexExpr):
        return value.symbols()
    if isinstance(value, Condition):
        return value.left.symbols() | value.right.symbols()
    if isinstance(value, (tuple, list)):
        return {name for v in value for name in _in_arguments(v)}
    assert not isinstance(value, Val)
    return set()


def _alone(number: IndexExpr) -> str | None:
    """Return the symbol that an expression is; None for any other."""
    if len(number.terms) != 1:
        return None
    monomial, factor = number.terms[0]
    return str(monomial[0].key) if factor == 1 and len(monomial) == 1 and monomial[0].kind == "sym" else None
