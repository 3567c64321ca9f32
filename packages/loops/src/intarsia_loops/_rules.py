"""The rules that both dialects share, checked on programs. Their numbers are those of `loops/verify.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch._ops import OpOverload

from intarsia_ir.aten import verify as verify_aten
from intarsia_ir.dialects import step_between
from intarsia_ir.errors import VerifyError
from intarsia_ir.higher_order import HigherOrderOp, n_inputs, n_results
from intarsia_ir.records import SizeFacts
from intarsia_loops.index import ZERO, Atom, IndexExpr, atom_expr, less
from intarsia_loops.layout import elements_overlap
from intarsia_loops.ops import INTEGERS, NEST_KINDS, SCALAR_OPS, result_type
from intarsia_loops.program import Buffer, Extern, Item, Kernel, Nest, Program, TensorRef, Val, scatter_of
from intarsia_loops.rewrites import postorder
from intarsia_loops.shown import makers, needed_symbols
from intarsia_loops.symbols import symbol

__all__ = ["Findings", "check_program"]

_DIVISIONS = ("floordiv", "mod", "truncdiv", "fmod")


@dataclass(slots=True)
class Findings:
    """Violations found so far, as (rule, buffer or item, message)."""

    dialect: str
    found: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, rule: str, where: str, message: str) -> None:
        """Note one violation."""
        self.found.append((rule, where, message))

    def raise_if_any(self, program: Program) -> None:
        """Raise `VerifyError` with all violations and the text of the first item concerned."""
        if not self.found:
            return
        from intarsia_loops._text import item_text  # the text needs no valid program, the verifier no text before here

        first = self.found[0][1]
        item = next((i for i in program.items if first in _made(i)), None)
        excerpt = "\n".join(item_text(item, program.buffers).splitlines()[:10]) if item is not None else ""
        kinds = {type(i) for i in program.items}
        given = "kernels" if Kernel in kinds else "loops" if Nest in kinds else ""
        hints = step_between(given, self.dialect)
        raise VerifyError(self.dialect, self.found, excerpt=excerpt, where=item.origins if item else (), hints=hints)


def check_program(program: Program, findings: Findings, *, origins: bool) -> None:
    """Check everything that holds in both dialects: names, order, nests, extern calls, outputs."""
    defined = {n for n in (*program.inputs, *program.constants) if n in program.buffers}
    _check_inputs(program, findings)
    for name, buffer in program.buffers.items():
        _check_buffer(name, buffer, program.facts, findings)
    places: dict[str, str] = {}
    made_at = makers(program)
    for position, item in enumerate(program.items):
        _check_reads(item, defined, findings)
        if made_at:
            _check_symbols(item, position, made_at, program.buffers, findings)
        if not isinstance(item, Extern):
            places |= {program.buffers[n].device: n for n in (*_made(item), *item.reads()) if n in program.buffers}
        for nest in item.steps if isinstance(item, Kernel) else (item,):
            if isinstance(nest, Nest):
                check_nest(nest, program.buffers, findings)
        if isinstance(item, Extern):
            _check_extern(item, program.buffers, findings)
        if origins and not item.origins:
            findings.add("L12", _made(item)[0] if _made(item) else "item", "no origins")
        _define(item, program.buffers, defined, findings)
    if len(places) > 1:
        where = ", ".join(f"{name} on {device}" for device, name in sorted(places.items()))
        findings.add("L15", max(places.values()), f"nests touch several devices: {where}")
    for k, value in enumerate(program.outputs):
        _check_output(k, value, program.buffers, defined, findings)


# ---- names and order ----------------------------------------------------------------------------------------


def _check_inputs(program: Program, findings: Findings) -> None:
    names = (*program.inputs, *program.constants)
    for name in names:
        if not name.isidentifier():
            findings.add("L1", name, "the name is no identifier")
    for name in {n for n in names if names.count(n) > 1}:
        findings.add("L1", name, "is an input twice")


def _made(item: Item) -> tuple[str, ...]:
    if isinstance(item, Extern):
        return tuple(o for o in item.outs if o)
    return tuple(s.out for s in item.steps) if isinstance(item, Kernel) else (item.out,)


def _define(item: Item, buffers: Mapping[str, Buffer], defined: set[str], findings: Findings) -> None:
    for name in _made(item):
        if not name.isidentifier():
            findings.add("L1", name, "the name is no identifier")
        if name in defined:
            findings.add("L1", name, "is written a second time")
        elif name not in buffers and isinstance(item, Extern) and _gives_number(item, name):
            pass  # a size symbol
        elif name not in buffers:
            findings.add("L1", name, "has no buffer")
        else:
            _check_distinct_addresses(name, buffers[name], findings)
        defined.add(name)


def _check_reads(item: Item, defined: set[str], findings: Findings) -> None:
    for name in sorted(item.reads() - defined):
        findings.add("L2", name, f"is read by {', '.join(_made(item)) or 'an item'} before it is defined")


def _gives_number(item: Extern, name: str) -> bool:
    """Tell whether a result of a call is a number, as its schema says."""
    returns = getattr(getattr(item.target, "_schema", None), "returns", ())
    kinds = [str(r.type) for r, out in zip(returns, item.outs, strict=False) if out == name]
    return bool(kinds) and kinds[0] in ("int", "number", "SymInt", "Scalar")


def _check_symbols(
    item: Item, position: int, made_at: Mapping[str, int], buffers: Mapping[str, Buffer], findings: Findings
) -> None:
    for name in sorted(needed_symbols(item, buffers)):
        if made_at.get(name, -1) >= position:
            findings.add("L17", _made(item)[0] if _made(item) else "item", f"needs the size {name} before it is made")


def _check_buffer(name: str, buffer: Buffer, facts: SizeFacts, findings: Findings) -> None:
    if len(buffer.shape) != len(buffer.strides):
        findings.add("L11", name, f"{len(buffer.shape)} sizes but {len(buffer.strides)} strides")
    if any(e.axes() for e in (*buffer.shape, *buffer.strides)):
        findings.add("L11", name, "a size or stride depends on a loop variable")
    if any(n.hi < 0 for n in buffer.shape):
        findings.add("L11", name, "a size is negative")
    for a in {a for e in (*buffer.shape, *buffer.strides) for a in e.atoms() if a.kind == "sym"}:
        if atom_expr(a) is not symbol(a.key, facts):
            findings.add("L11", name, f"the facts give {a.key} another range than [{a.lo}, {a.hi}]")


def _check_distinct_addresses(name: str, buffer: Buffer, findings: Findings) -> None:
    if elements_overlap(buffer.shape, buffer.strides):
        findings.add("L11", name, f"elements overlap: strides {list(buffer.strides)} for {list(buffer.shape)}")


# ---- nests --------------------------------------------------------------------------------------------------


def check_nest(nest: Nest, buffers: Mapping[str, Buffer], findings: Findings) -> None:
    """Rules L3 to L8 for one nest."""
    if nest.kind not in NEST_KINDS:
        findings.add("L4", nest.out, f"no nest kind is called {nest.kind!r}")
        return
    _check_axes(nest, buffers, findings)
    _check_kind(nest, buffers, findings)
    for part, axes in _parts(nest, findings):
        bound = frozenset(axes)
        for v in postorder(part):
            if check_value(v, nest.out, findings):
                _check_index(v, nest.out, bound, buffers, findings)


def _parts(nest: Nest, findings: Findings) -> list[tuple[Val, tuple[Atom, ...]]]:
    """The values of a body, each with the axes that it may depend on: one, but for scatters (rule L16)."""
    parts = scatter_of(nest)
    if not NEST_KINDS[nest.kind].scatter:
        return [(nest.body, nest.axes + nest.red)]
    if parts is None:
        findings.add("L16", nest.out, f"a {nest.kind} of {nest.body.op}")
        return []
    if not nest.axes or len(parts.places) != len(nest.axes):
        findings.add("L16", nest.out, f"{len(parts.places)} places in a buffer of {len(nest.axes)} dimensions")
    if any(p.dtype != "i64" for p in parts.places):
        findings.add("L16", nest.out, f"places of {', '.join(p.dtype for p in parts.places)}")
    if parts.initial.dtype != nest.body.dtype or parts.value.dtype != nest.body.dtype:
        findings.add("L16", nest.out, f"adds {parts.value.dtype} to {parts.initial.dtype} for {nest.body.dtype}")
    return [(parts.initial, nest.axes), *((v, nest.red) for v in (parts.value, *parts.places))]


def _check_axes(nest: Nest, buffers: Mapping[str, Buffer], findings: Findings) -> None:
    kind = NEST_KINDS[nest.kind]
    names = [a.key for a in (nest.axes if kind.scan else nest.axes + nest.red)]
    if len(set(names)) != len(names):
        findings.add("L3", nest.out, f"axes {names} are not distinct")
    if any(a.extent.axes() for a in nest.axes + nest.red):
        findings.add("L3", nest.out, "the extent of an axis depends on another axis")
    if kind.scan and not (len(nest.red) == 1 and nest.red[0] in nest.axes):
        findings.add("L3", nest.out, f"a {nest.kind} needs one scanned axis, which is in its axes")
    if nest.kind == "map" and nest.red:
        findings.add("L3", nest.out, "a map reduces nothing")
    if not kind.scan and not kind.scatter and nest.kind != "map" and not nest.red:
        findings.add("L3", nest.out, f"a {nest.kind} needs an axis to reduce")
    if kind.needs_elements and any(r.extent is ZERO for r in nest.red):
        findings.add("L3", nest.out, f"a {nest.kind} of nothing has no value")
    buffer = buffers.get(nest.out)
    if buffer is not None and tuple(a.extent for a in nest.axes) != buffer.shape:
        findings.add("L3", nest.out, f"axes {[a.extent for a in nest.axes]} for a buffer of {list(buffer.shape)}")


def _check_kind(nest: Nest, buffers: Mapping[str, Buffer], findings: Findings) -> None:
    kind = NEST_KINDS[nest.kind]
    if nest.body.dtype not in kind.types:
        findings.add("L4", nest.out, f"a {nest.kind} of {nest.body.dtype}")
    if (kind.out_type or nest.body.dtype) != nest.dtype:
        findings.add("L4", nest.out, f"a {nest.kind} of {nest.body.dtype} gives no {nest.dtype}")
    buffer = buffers.get(nest.out)
    if buffer is not None and buffer.dtype != nest.dtype:
        findings.add("L4", nest.out, f"gives {nest.dtype} for a buffer of {buffer.dtype}")


def check_value(v: Val, where: str, findings: Findings) -> bool:
    """Rules L5 and L8; whether the value is sound enough to look inside."""
    row = SCALAR_OPS.get(v.op)
    if row is None:
        findings.add("L5", where, f"no scalar op is called {v.op!r}")
        return False
    if len(v.args) != len(row.operands):
        findings.add("L5", where, f"{v.op} takes {len(row.operands)} operands, not {len(v.args)}")
        return False
    kinds = {"value": Val, "buffer": str, "index": tuple, "number": (bool, int, float), "expr": IndexExpr}
    for kind, arg in zip(row.operands, v.args, strict=True):
        if not isinstance(arg, kinds[kind]):  # type: ignore[arg-type]
            findings.add("L5", where, f"operand {arg!r} of {v.op} is no {kind}")
            return False
    types = [a.dtype for a in v.args if isinstance(a, Val)]
    expected = result_type(v.op, types, v.dtype)
    if expected != v.dtype:
        findings.add("L5", where, f"{v.op} of ({', '.join(types)}) gives {expected or 'nothing'}, not {v.dtype}")
    if v.op in _DIVISIONS and v.dtype in INTEGERS and not _is_safe_divisor(v.args[1]):
        findings.add("L8", where, f"integer {v.op} needs a constant divisor other than 0 and -1")
    return True


def _is_safe_divisor(v: Val) -> bool:
    return v.op == "const" and v.args[0] not in (0, -1)


def _check_index(v: Val, where: str, bound: frozenset[Atom], buffers: Mapping[str, Buffer], findings: Findings) -> None:
    """Rules L6 and L7 for a load, gather or index."""
    if v.op == "index":
        if not v.args[0].axes() <= bound:
            findings.add("L7", where, f"index({v.args[0]}) uses a loop variable that the nest doesn't have")
        return
    if v.op not in ("load", "gather"):
        return
    name, entries = v.args
    buffer = buffers.get(name)
    if buffer is None:
        return  # rule L2 has found it
    if buffer.dtype != v.dtype:
        findings.add("L6", where, f"loads {v.dtype} from {name}, which holds {buffer.dtype}")
    if len(entries) != len(buffer.shape):
        findings.add("L6", where, f"{len(entries)} indices for {name}, which has {len(buffer.shape)} dimensions")
        return
    data = [i for i in entries if isinstance(i, Val)]
    if bool(data) != (v.op == "gather") or any(i.dtype != "i64" for i in data):
        findings.add("L6", where, f"a {v.op} of {name} with indices {list(entries)}")
    for i, n in zip(entries, buffer.shape, strict=True):
        if isinstance(i, IndexExpr):
            _check_bounds(name, i, n, where, bound, findings)


def _check_bounds(
    name: str, i: IndexExpr, n: IndexExpr, where: str, bound: frozenset[Atom], findings: Findings
) -> None:
    if not i.axes() <= bound:
        findings.add("L7", where, f"index {i} of {name} uses a loop variable that the nest doesn't have")
    elif not less(i, n) and not any(a.extent is ZERO for a in bound):
        findings.add("L7", where, f"index {i} of {name} is not provably inside a dimension of {n}")


# ---- extern calls and outputs -------------------------------------------------------------------------------


def _check_extern(item: Extern, buffers: Mapping[str, Buffer], findings: Findings) -> None:
    where = next((o for o in item.outs if o), str(item.target))
    if isinstance(item.target, HigherOrderOp):
        _check_higher_order(item, item.target, where, findings)
    elif not isinstance(item.target, OpOverload):
        findings.add("L9", where, f"{item.target!r} is no operator overload")
        return
    if any(a.alias_info is not None and a.alias_info.is_write for a in item.target._schema.arguments):
        findings.add("L9", where, f"{item.target} writes to an operand")
    if any(r.alias_info is not None for r in item.target._schema.returns):
        findings.add("L9", where, f"{item.target} returns a view")
    returns = item.target._schema.returns
    is_list = len(returns) == 1 and "List" in str(returns[0].type)
    if not is_list and len(returns) != len(item.outs):
        findings.add("L9", where, f"{item.target} has {len(returns)} results, not {len(item.outs)}")
    if [k for k, _ in item.kwargs] != sorted({k for k, _ in item.kwargs}):
        findings.add("L9", where, "keyword arguments are not sorted")
    for ref in item.refs():
        check_ref(ref, where, buffers, findings, "L9")


def _check_higher_order(item: Extern, op: HigherOrderOp, where: str, findings: Findings) -> None:
    for name, program, wanted in zip(op.row.graphs, op.programs, op.row.n_inputs(op.options, len(item.args))):
        try:
            verify_aten(program, functional=True, origins=False, described=False)
        except VerifyError as error:
            for rule, inner, message in error.findings:
                findings.add("L9", where, f"in the graph {name}, {rule} at {inner}: {message}")
        if n_inputs(program) != wanted:
            findings.add("L9", where, f"the graph {name} has {n_inputs(program)} inputs, not {wanted}")
    if op.row.n_results(op.options, [n_results(program) for program in op.programs]) != len(item.outs):
        findings.add("L9", where, f"its graphs don't give {len(item.outs)} results")


def check_ref(ref: TensorRef, where: str, buffers: Mapping[str, Buffer], findings: Findings, rule: str) -> None:
    """Whether a strided view stays inside its buffer."""
    buffer = buffers.get(ref.buffer)
    if buffer is None:
        return
    if len(ref.shape) != len(ref.strides):
        findings.add(rule, where, f"{len(ref.shape)} sizes but {len(ref.strides)} strides in a view of {ref.buffer}")
        return
    last, end = _last(ref.shape, ref.strides, ref.offset), _last(buffer.shape, buffer.strides, ZERO)
    if last is None or end is None:
        return  # no elements
    if ref.offset.lo < 0 or ((last - end).hi > 0 and not (end - last).lo >= 0):
        findings.add(rule, where, f"a view of {ref.buffer} reaches element {last}; the last one is {end}")


def _last(shape: Sequence[IndexExpr], strides: Iterable[IndexExpr], start: IndexExpr) -> IndexExpr | None:
    if any(n is ZERO for n in shape):
        return None
    for n, s in zip(shape, strides, strict=True):
        start = start + (n - 1) * s
    return start


def _check_output(k: int, value: Any, buffers: Mapping[str, Buffer], defined: set[str], findings: Findings) -> None:
    where = f"output {k}"
    if isinstance(value, TensorRef):
        if value.buffer not in defined or value.buffer not in buffers:
            findings.add("L10", where, f"{value.buffer} is not defined")
        check_ref(value, where, buffers, findings, "L10")
    elif not (value is None or isinstance(value, (bool, int, float, complex, str, IndexExpr))):
        findings.add("L10", where, f"{type(value).__name__} is neither a tensor nor a constant")
