"""FX(aten) -> FX(loops): one family of lowerings a module, and `lower`, which walks the graph.

Every op with a lowering becomes one nest, or a few for reductions; views become index maps; anything else becomes an
extern call of the ATen op on whole tensors. In a graph over the CPU and a CUDA device, nests are for the device: what
has tensors on the CPU is an extern call, and what a nest reads from there is copied first.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.aten import SCALAR_FUNCTIONS
from intarsia_ir.aten import verify as verify_aten
from intarsia_ir.choices import one_of
from intarsia_ir.dtypes import dtype_name
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.higher_order import HigherOrderOp, without_values
from intarsia_ir.records import SizeFacts, Target
from intarsia_loops.graph import to_fx
from intarsia_loops.index import IndexExpr, row_major
from intarsia_loops.layout import elements_overlap
from intarsia_loops.loops.verify import verify as verify_loops
from intarsia_loops.ops import ALL_TYPES
from intarsia_loops.program import Extern, Nest, Program, TensorRef, Val
from intarsia_lowering import (
    creation,
    data_sizes,
    indexing,
    normalisations,
    pointwise,
    pooling,
    random,
    reductions,
    scattering,
    views,
)
from intarsia_lowering._builder import Builder, Spec
from intarsia_lowering._devices import Devices
from intarsia_lowering._sizes import Sizes
from intarsia_lowering._table import Lowering, Lowerings, given_rows
from intarsia_lowering._values import Tensor

__all__ = ["coverage", "lower", "lower_to_program"]

_FAMILIES = (creation, indexing, normalisations, pointwise, pooling, reductions, scattering, views)
_LOWERINGS: Mapping[Any, Lowering] = MappingProxyType(
    {overload: row for family in _FAMILIES for overload, row in family.TABLE.rows.items()}
)


def lower(
    graph_module: fx.GraphModule,
    *,
    facts: SizeFacts | None = None,
    fuel: int | None = None,
    rng: str | None = None,
    deterministic: bool = False,
    nan_gelu: Collection[str] = (),
    target: Target | None = None,
    lowerings: Lowerings | None = None,
    check: bool = True,
) -> fx.GraphModule:
    """Lower a functional ATen graph to loop nests: FX(aten) -> FX(loops).

    Args:
        graph_module: FX(aten) with a value on every node; unchanged.
        facts: Size facts that the graph relies on; carried along.
        fuel: Number of nodes to lower; the rest become extern calls. Views are lowered in any case. None: all.
        rng: `"eager"`: random ops stay extern calls, which draw eager's numbers. `"philox"`: a seed is drawn instead,
            and the numbers are a function of it and of the element: they can be fused, and are the same whatever
            emitter is used. None: `"philox"` for results on a target that is a GPU, `"eager"` for others.
        deterministic: Leave what a GPU adds up in any order to library calls, which then have an order; uninitialised
            memory too, which they fill.
        nan_gelu: Element types for which eager's exact gelu of infinity, in a dense tensor on the CPU, is NaN: which
            library computes it there depends on the machine and on torch's settings, so the caller asks.
        target: What the program is compiled for; None: a plain CPU.
        lowerings: Overload -> how it is lowered, over the rows that are there (`coverage`), written with
            `intarsia_lowering.writing`; None in place of a function: it isn't, it becomes a call.
        check: Whether both programs are verified.

    Returns:
        The GraphModule view of the program; `from_fx` gives the program itself.

    Raises:
        UnsupportedError: An op has a result that is neither a tensor nor a size (`loops.scalar_result`), or a
            size can't be written as an index expression; or tensors are on devices other than the CPU and one more.
        InvalidArgumentError: `aten.table`: a key of `lowerings` is no overload, or a value no function;
            `loops.lowering`: one gave something else than the op does.
        VerifyError: The graph breaks the rules of the aten dialect.

    Example:
        >>> from intarsia_ir.aten import parse_ir
        >>> aten = parse_ir('''// dialect: aten 2
        ... graph(%x: f32[2]) {
        ...   # model.py:1 in forward
        ...   %0: f32[2] = aten.mul.Tensor(%x, 2)  #1
        ...   return (%0,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 1
        ... ''')
        >>> lower(aten)(torch.tensor([1.0, 3.0]))
        (tensor([2., 6.]),)
    """
    one_of("rng", rng, (None, "eager", "philox"))
    if check:
        verify_aten(graph_module, functional=True, origins=False)
    walk = _Walk(graph_module, facts or SizeFacts(), fuel, rng, deterministic, nan_gelu, target, given_rows(lowerings))
    program = walk.program()
    if check:
        verify_loops(program)
    return to_fx(program, values=walk.values)


def coverage() -> Mapping[str, tuple[str, ...]]:
    """Return the lowered overloads of each family, sorted; everything else becomes an extern call.

    Example:
        >>> "aten.native_layer_norm.default" in coverage()["normalisations"]
        True
    """
    by_family: dict[str, list[str]] = {}
    for overload, row in _LOWERINGS.items():
        by_family.setdefault(row.family, []).append(str(overload))
    return MappingProxyType({family: tuple(sorted(names)) for family, names in sorted(by_family.items())})


def lower_to_program(
    graph_module: fx.GraphModule, *, facts: SizeFacts | None = None, fuel: int | None = None
) -> Program:
    """Return what `lower` returns, as the program itself."""
    return _Walk(graph_module, facts or SizeFacts(), fuel).program()


class _Walk:
    """One pass over the graph, node by node in order."""

    def __init__(
        self,
        graph_module: fx.GraphModule,
        facts: SizeFacts,
        fuel: int | None,
        rng: str | None = None,
        deterministic: bool = False,
        nan_gelu: Collection[str] = (),
        target: Target | None = None,
        given: Mapping[Any, Lowering | None] = MappingProxyType({}),
    ) -> None:
        self.given = given
        self.graph_module, self.rng, self.target = graph_module, rng, target or Target()
        self.facts = facts
        self.fuel = fuel
        self.values: dict[str, Any] = {}
        self.sizes = Sizes(facts)
        self.builder = Builder(self.sizes, {n.name for n in graph_module.graph.nodes}, deterministic, nan_gelu)
        self.devices = Devices(graph_module)
        self.copied: dict[TensorRef, Tensor] = {}
        self.env: dict[fx.Node, Any] = {}
        self.inputs: list[str] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.outputs: tuple[Any, ...] = ()

    def program(self) -> Program:
        for node in self.graph_module.graph.nodes:
            getattr(self, f"_{node.op}")(node)
        return _without_dead_nests(
            Program(
                MappingProxyType(self.builder.buffers),
                tuple(self.inputs),
                tuple(self.builder.items),
                self.outputs,
                self.facts,
                None,
                MappingProxyType(self.constants),
            )
        )

    def _placeholder(self, node: fx.Node) -> None:
        value = meta.value(node)
        if isinstance(value, torch.Tensor):
            self.env[node] = self._resolved(node, self._declared(node, value), value)
            self.values[node.name] = value
            self.inputs.append(node.name)
        else:
            self.env[node] = size = self.sizes(value) if isinstance(value, torch.SymInt) else value
            # a number that turned out to be a constant, or equal to an earlier one, has no name of its own
            named = isinstance(size, IndexExpr) and size.const() is None and repr(size) not in self.inputs
            self.inputs.append(repr(size) if named else node.name)

    def _get_attr(self, node: fx.Node) -> None:
        value: Any = self.graph_module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            raise UnsupportedError(
                f"the attribute {node.target} is a {type(value).__name__}, not a tensor",
                code="loops.attribute",
                where=meta.origins(node),
            )
        self.constants[node.name] = value
        self.env[node] = self._declared(node, value)

    def _declared(self, node: fx.Node, value: torch.Tensor) -> Tensor:
        self.builder.inputs.add(node.name)
        device = self.devices.of(node) or str(value.device)
        return self.builder.declare(replace(self.builder.spec_of(value), device=device), node.name)

    def _resolved(self, node: fx.Node, declared: Tensor, value: torch.Tensor) -> Tensor:
        """Return an input as nests may read it: its memory holds other numbers where a negative or conjugate bit is."""
        if not node.users or not (value.is_neg() or value.is_conj()):
            return declared
        self.builder.begin(node.name, value, meta.origins(node), None, self.devices.of(node))
        ref = self.builder.tensor_ref(declared)
        strides = row_major(ref.shape) if elements_overlap(ref.shape, ref.strides) else ref.strides
        spec = Spec(ref.shape, strides, declared.dtype, self.builder.buffers[ref.buffer].device)
        return self.builder.call(torch.ops.aten._to_copy.default, (ref,), spec, "resolved")

    def _output(self, node: fx.Node) -> None:
        self.builder.begin(node.name, None, meta.origins(node))
        results = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
        self.outputs = tuple([self._result(self._argument(r)) for r in results])

    def _result(self, value: Any) -> Any:
        return self.builder.tensor_ref(value) if isinstance(value, Tensor) else value

    def _call_function(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            self.env[node] = self._argument(node.args[0])[node.args[1]]
            return
        value = meta.value(node)
        if node.target in data_sizes.HANDLED and not isinstance(value, (torch.SymFloat, torch.SymBool)):
            self.builder.begin(node.name, value, meta.origins(node))
            self.env[node] = data_sizes.lowered(self.builder, node, self._argument)
            return
        if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool) and not _is_tensor_op(node):
            self.env[node] = value  # written as an expression where it is used
            return
        if isinstance(value, (torch.SymFloat, torch.SymBool)) or node.target in SCALAR_FUNCTIONS:
            self.env[node] = value
            return
        if isinstance(value, torch.Tensor):
            self.values[node.name] = value
        used, device, meets = _used_results(node), self.devices.of(node), self._meets_nests(node)
        self.builder.begin(node.name, value, meta.origins(node), used, device, meets)
        args = [self._argument(a) for a in node.args]
        kwargs = {k: self._argument(v) for k, v in node.kwargs.items()}
        row = self._row(node.target, value)
        result = None
        has_fuel = self.fuel != 0 or (row is not None and row.any_dtype)
        if row is not None and not _takes_computed_numbers(node.target, args, kwargs):
            row = None
        if self.devices.runs_on_host(node):
            self.env[node] = self._host_view(row, args, kwargs) or self._extern(node, args, kwargs)
            return
        if row is not None and self.devices.device.type != "cpu":
            args, kwargs = self._near(args), {k: self._near(v) for k, v in kwargs.items()}
        if row is not None and has_fuel and (row.any_dtype or (_computable(args) and _computable(value))):
            result = self._lowered(row, args, kwargs)
            if node.target in self.given and result is not None:
                _check_result(node, result, self.builder)
            if self.fuel and result is not None and not row.any_dtype:
                self.fuel -= 1
        self.env[node] = self._extern(node, args, kwargs) if result is None else result

    def _lowered(self, row: Lowering, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not self.sizes.may_be_zero:
            return row.function(self.builder, *args, **kwargs)
        return self.builder.or_nothing(lambda: row.function(self.builder, *args, **kwargs))

    def _row(self, target: Any, value: Any) -> Lowering | None:
        """Return the lowering of an op: random ops are library calls on torch's generator unless `rng` differs."""
        if target in self.given:
            return self.given[target]
        first = next(iter(value), None) if isinstance(value, (tuple, list)) else value
        by_us = self.rng == "philox" or (self.rng is None and self._is_on_gpu(first))
        drawn = random.TABLE.rows.get(target) if by_us else None
        return drawn or _LOWERINGS.get(target)

    def _meets_nests(self, node: fx.Node) -> bool:
        """Whether a reader of the node, or of a view of it, has a lowering of its own."""
        for user in node.users:
            row = self._row(user.target, meta.value(user)) if user.op == "call_function" else None
            if row is not None and (self._meets_nests(user) if row.any_dtype else True):
                return True
        return False

    def _is_on_gpu(self, value: Any) -> bool:
        return self.target.is_gpu and isinstance(value, torch.Tensor) and value.device.type == self.target.device

    def _host_view(self, row: Lowering | None, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return a view of memory on the host; None where it would take a copy, which no kernel can make there."""
        result = row.function(self.builder, *args, **kwargs) if row is not None and row.any_dtype else None
        views = result if isinstance(result, tuple) else () if result is None else (result,)
        return result if all(self.builder.as_strided(v, v.strides or ()) for v in views) else None

    def _near(self, value: Any) -> Any:
        """Return an operand where nests can read it: what is on the host is copied to the device, once."""
        if isinstance(value, list):
            return [self._near(v) for v in value]
        if not isinstance(value, Tensor) or self.builder.buffers[value.buffer].device == str(self.devices.device):
            return value
        ref = self.builder.tensor_ref(value)
        if ref not in self.copied:
            strides = ref.strides if value.direct else row_major(ref.shape)
            spec = Spec(ref.shape, strides, value.dtype, str(self.devices.device))
            self.copied[ref] = self.builder.call(torch.ops.aten._to_copy.default, (ref,), spec, "near")
        return self.copied[ref]

    def _extern(self, node: fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        value, target = meta.value(node), cast(Any, node.target)
        many = isinstance(value, (tuple, list))
        sizes: dict[int, Any] = {}
        returns: Any = target._schema.returns if many else ()
        for k, v in enumerate(value if many else (value,)):
            if many and k < len(returns) and str(returns[k].type) == "int":
                sizes[k] = v  # a size of an operand, such as the longest sequence of an attention: known already
            elif not (v is None or isinstance(v, torch.Tensor)):
                raise UnsupportedError(
                    f"{node.target} gives a {type(v).__name__}, which is not a tensor",
                    code="loops.scalar_result",
                    where=meta.origins(node),
                )
        if node in self.devices.carried and kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": self.devices.device}
        if self.devices.must_wait(node):
            kwargs = {**kwargs, "non_blocking": False}
        target = without_values(target) if isinstance(target, HigherOrderOp) else _without_alias(target)
        results = self.builder.extern(target, args, kwargs)
        return tuple(sizes.get(k, m) for k, m in enumerate(results)) if sizes else results

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self._argument(self.env[value])
        if isinstance(value, (list, tuple)):
            return [self._argument(v) for v in value]
        if isinstance(value, torch.SymInt):
            size = self.sizes(value)
            constant = size.const()
            return size if constant is None else constant
        if isinstance(value, torch.SymFloat):
            expr = value.node.expr
            return float(expr) if expr.is_number else self.sizes.number(value)
        return value


def _check_result(node: fx.Node, result: Any, builder: Builder) -> None:
    """Check what a lowering of the caller's gave against the values that the op has."""
    value = meta.value(node)
    many = isinstance(value, (tuple, list))
    results = result if isinstance(result, (tuple, list)) else (result,)
    wanted = [builder.spec_of(v) if isinstance(v, torch.Tensor) else None for v in (value if many else (value,))]
    for position, (tensor, spec) in enumerate(itertools.zip_longest(results, wanted)):
        fits = (
            isinstance(tensor, Tensor) and spec is not None and (tensor.shape, tensor.dtype) == (spec.shape, spec.dtype)
        )
        if not fits and not (tensor is None and (spec is None or not builder.is_used(position))):
            shown = f"{tensor.dtype}{list(tensor.shape)}" if isinstance(tensor, Tensor) else repr(tensor)
            needed = f"{spec.dtype}{list(spec.shape)}" if spec is not None else "no tensor there"
            raise InvalidArgumentError(
                f"the lowering of {node.target} gave {shown}, the operator gives {needed}",
                code="loops.lowering",
                where=meta.origins(node),
                hints=("what its fake gives is what a lowering must give; `b.spec()` has it",),
            )


_COMPUTED_NUMBERS = frozenset(
    [
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "full",
        "full_like",
        "new_full",
        "scalar_tensor",
        "fill",
        "where",
        "masked_fill",
        "arange",
    ]
)
"""Operators whose lowerings take numbers that are computed from sizes, where others take plain numbers."""


def _takes_computed_numbers(target: Any, args: list[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the lowering takes what its arguments are; sizes and positions may be computed anywhere."""
    schema = target._schema
    if schema.name.removeprefix("aten::") in _COMPUTED_NUMBERS:
        return True
    given = {**dict(zip([a.name for a in schema.arguments], args, strict=False)), **kwargs}
    kinds = {a.name: str(a.type) for a in schema.arguments}
    for name, x in given.items():
        is_scalar = any(kind in kinds[name] for kind in ("number", "float", "Tensor"))
        if isinstance(x, Val) or (isinstance(x, IndexExpr) and is_scalar):
            return False
    return True


def _is_tensor_op(node: fx.Node) -> bool:
    """Whether a number is read from a tensor's elements."""
    return node.target is torch.ops.aten._local_scalar_dense.default


def _used_results(node: fx.Node) -> frozenset[int] | None:
    """Positions of a multiple result that anybody takes; None when it is used whole."""
    used = set()
    for user in node.users:
        if user.target is not operator.getitem:
            return None
        if user.users:
            used.add(user.args[1])
    return frozenset(used)  # type: ignore[arg-type]


def _computable(value: Any) -> bool:
    """Whether bodies can hold every tensor in a (nested) argument or recorded value."""
    if isinstance(value, Tensor):
        return value.dtype in ALL_TYPES
    if isinstance(value, torch.Tensor):
        return dtype_name(value.dtype) in ALL_TYPES and value.layout is torch.strided
    if isinstance(value, (list, tuple)):
        return all(_computable(v) for v in value)
    return not isinstance(value, complex)


def _without_alias(target: Any) -> Any:
    """An extern result is a buffer of its own: a view op is called in its copying form."""
    returns = target._schema.returns
    if not any(r.alias_info is not None and not r.alias_info.is_write for r in returns):
        return target
    namespace, name = target._schema.name.split("::")
    copying = getattr(getattr(torch.ops, namespace), name + "_copy", None)
    if copying is None or target._overloadname not in copying.overloads():
        raise UnsupportedError(f"{target} returns a view and has no copying form", code="loops.view")
    return getattr(copying, target._overloadname)


def _without_dead_nests(program: Program) -> Program:
    """Drop nests that nobody reads, with their buffers. Extern calls stay: they may have effects."""
    live = {r.buffer for r in program.outputs if isinstance(r, TensorRef)}
    kept: list[Any] = []
    for item in reversed(program.items):
        if isinstance(item, Nest) and item.out not in live:
            continue
        kept.append(item)
        live |= item.reads()
    kept.reverse()
    written = {out for item in kept for out in (item.outs if isinstance(item, Extern) else (item.out,))}
    fixed = {*program.inputs, *program.constants}
    buffers = {name: b for name, b in program.buffers.items() if name in written or name in fixed}
    return Program(
        MappingProxyType(buffers), program.inputs, tuple(kept), program.outputs, program.facts, None, program.constants
    )
