"""The op table of the aten dialect: rows derived from operator schemas, and the corrections that schemas need.

Nobody types three thousand rows: operands, alias sets and write sets are read from the schema, the shape and dtype
rules are torch's meta functions, the meaning is the eager call. What a schema doesn't say, or says wrongly, is a
correction below.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket

from intarsia_ir import meta
from intarsia_ir.aten import point_to_point
from intarsia_ir.aten.functional_forms import NAMESPACE, form_named
from intarsia_ir.choices import instance_of
from intarsia_ir.effects import Effects
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.higher_order import HigherOrderOp, effects_of

__all__ = [
    "SCALAR_FUNCTIONS",
    "SCHEMA",
    "Operand",
    "Row",
    "counts_from_storage",
    "draws_random",
    "effects",
    "is_op",
    "node_effects",
    "overload_named",
    "row",
    "viewed_nodes",
    "written_nodes",
]

SCHEMA = 2  # 1, where each node has the user's lines in whole, is read as well

SCALAR_FUNCTIONS: frozenset[Any] = frozenset(
    [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
    + [operator.neg, operator.pos, operator.abs, operator.and_, operator.or_, operator.xor, operator.not_]
    + [operator.lshift, operator.rshift, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
    + [math.ceil, math.floor, math.trunc, math.sqrt, abs, min, max, round]
    + [torch.sym_int, torch.sym_float, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_ite, torch.sym_sum]
)
"""Python functions that may be applied to symbolic numbers (and to numbers only)."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One parameter of an op.

    Args:
        name: As in the schema.
        kind: Type as in the schema, such as `"Tensor?"`, `"SymInt[]"`, `"ScalarType"`.
        keyword_only: Whether it must be given by name.
        default: Text of its default, or None when it has none.
        written: Whether the op writes it.
        viewed: Whether a result may share its memory.
    """

    name: str
    kind: str
    keyword_only: bool = False
    default: str | None = None
    written: bool = False
    viewed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One op of the dialect.

    Args:
        name: `"aten.add.Tensor"`.
        operands: Its parameters, in order.
        results: Types of its results, in order, as in the schema.
        effects: What else it does, corrections included.
        doc: The schema.
    """

    name: str
    operands: tuple[Operand, ...]
    results: tuple[str, ...]
    effects: Effects
    doc: str


# Libraries that torch itself brings and whose schemas are trusted; of others more must be assumed.
_KNOWN_LIBRARIES = frozenset(["aten", "prims"])
# Libraries whose calls exchange data with other processes, or wait for that.
_OF_PROCESSES = frozenset(
    ["_c10d_functional", "_c10d_functional_autograd", "c10d", "c10d_functional", point_to_point.NAMESPACE]
)

# ---- corrections: what schemas leave out -----------------------------------------------------------------------

# Written although the schema doesn't say so: running statistics, when the op is told to train.
_HIDDEN_WRITES: dict[str, tuple[str, ...]] = {
    "aten.native_batch_norm.default": ("running_mean", "running_var"),
    "aten.cudnn_batch_norm.default": ("running_mean", "running_var"),
    "aten.miopen_batch_norm.default": ("running_mean", "running_var"),
    "aten._batch_norm_impl_index.default": ("running_mean", "running_var"),
    "aten.batch_norm.default": ("running_mean", "running_var"),
    "aten.instance_norm.default": ("running_mean", "running_var"),
    "aten.batch_norm_gather_stats.default": ("running_mean", "running_var"),
    "aten.batch_norm_gather_stats_with_counts.default": ("running_mean", "running_var"),
    "aten.batch_norm_update_stats.default": ("running_mean", "running_var"),
}

# The argument that switches a hidden write on; when it is constantly False nothing is written.
_TRAINING_ARGUMENT = ("training", "use_input_stats")

# Hidden writes that no flag switches off.
_ALWAYS_UPDATES = frozenset(name for name in _HIDDEN_WRITES if "gather_stats" in name or "update_stats" in name)

# Results that may be the argument itself, or a view of it, without an annotation.
_HIDDEN_VIEWS: dict[str, tuple[str, ...]] = {
    "aten._unsafe_view.default": ("self",),
    "aten.unsafe_split.Tensor": ("self",),
    "aten.unsafe_split_with_sizes.default": ("self",),
    "aten.unsafe_chunk.default": ("self",),
    "aten.dropout.default": ("input",),
    "aten.feature_dropout.default": ("input",),
    "aten.alpha_dropout.default": ("input",),
    "aten.feature_alpha_dropout.default": ("input",),
    "aten.broadcast_tensors.default": ("tensors",),
    "aten.meshgrid.default": ("tensors",),
    "aten.meshgrid.indexing": ("tensors",),
    "aten.atleast_1d.default": ("self",),
    "aten.atleast_1d.Sequence": ("tensors",),
    "aten.atleast_2d.default": ("self",),
    "aten.atleast_2d.Sequence": ("tensors",),
    "aten.atleast_3d.default": ("self",),
    "aten.atleast_3d.Sequence": ("tensors",),
    "aten.type_as.default": ("self",),
    "aten.conj_physical.default": ("self",),
    "aten.pad.default": ("self",),
    "aten.einsum.default": ("tensors",),
    "aten.sum_to_size.default": ("self",),
    "aten.combinations.default": ("self",),
    "aten._autocast_to_reduced_precision.default": ("self",),
    "aten._autocast_to_full_precision.default": ("self",),
    "aten.cartesian_prod.default": ("tensors",),
    "aten.lift.default": ("self",),
}

# Ops that look at tensor values to decide whether they raise.
_MAY_RAISE_PACKETS = frozenset(
    [
        "index",
        "index_select",
        "gather",
        "take",
        "take_along_dim",
        "embedding",
        "embedding_bag",
        "_embedding_bag",
        "one_hot",
        "index_put",
        "_unsafe_index_put",
        "index_add",
        "index_copy",
        "index_fill",
        "index_reduce",
        "put",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "select_scatter",
        "nll_loss",
        "nll_loss_forward",
        "nll_loss2d",
        "nll_loss2d_forward",
        "nll_loss_nd",
        "cross_entropy_loss",
        "multi_margin_loss",
        "multi_margin_loss_backward",
        "multilabel_margin_loss",
        "multilabel_margin_loss_forward",
        "binary_cross_entropy",
        "ctc_loss",
        "_ctc_loss",
        "bincount",
        "cholesky",
        "inverse",
        "item",
        "equal",
        "_local_scalar_dense",
        "repeat_interleave",
        "segment_reduce",
        "max_unpool2d",
        "max_unpool3d",
        "masked_scatter",
        "histc",
        "tensor_split",
        "quantile",
        "nanquantile",
        "_histogramdd_bin_edges",
        "_histogramdd_from_bin_cts",
        "_linalg_svd",
        "_linalg_eigh",
        "_linalg_eigvals",
        "_linalg_solve_ex",
        "_linalg_check_errors",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "histogram",
        "searchsorted",
    ]
)

# The same, but only for integers: division by zero.
_DIVISION_PACKETS = frozenset(["floor_divide", "remainder", "fmod", "div", "divide"])

# Ops that exist for their check, their message or another effect outside tensors.
_CHECK_PACKETS = frozenset(
    [
        "_assert_async",
        "_assert_scalar",
        "_assert_tensor_metadata",
        "_functional_assert_async",
        "_functional_assert_scalar",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
        "_functional_sym_constrain_range",
        "_functional_sym_constrain_range_for_size",
        "_linalg_check_errors",
        "_print",
        "record_stream",
    ]
)

# Random without the tag that says so.
_RANDOM_PACKETS = frozenset(
    ["dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "rrelu", "_fused_dropout"]
)


# ---- derived rows ----------------------------------------------------------------------------------------------


def checked_table(what: str, given: Mapping[Any, Any], *kinds: type) -> dict[OpOverload, Any]:
    """Return a copy of a table of the caller's that goes by operators, with overloads for its keys.

    Args:
        what: What it is called, for messages.
        given: Overload, or the object that `torch.library.custom_op` gives -> function, instance of `kinds`, or None.
        kinds: What a value may be besides.

    Raises:
        InvalidArgumentError: `aten.table`: it is no mapping, a key is no overload, or a value none of these.

    Example:
        >>> checked_table("lowerings", {torch.ops.aten.relu: abs})
        Traceback (most recent call last):
        ...
        intarsia_ir.errors.InvalidArgumentError: a key of lowerings is aten.relu, ... [aten.table]
          hint: an overload is meant: torch.ops.aten.relu.default, torch.ops.aten.relu.out
    """
    instance_of(what, given, Mapping)
    table: dict[OpOverload, Any] = {}
    for key, value in given.items():
        op = key._opoverload if isinstance(key, CustomOpDef) else key
        if not isinstance(op, OpOverload):
            packet = isinstance(op, OpOverloadPacket)
            names = [f"torch.ops.{op}.{name}" for name in op.overloads()] if packet else ["torch.ops.aten.relu.default"]
            raise InvalidArgumentError(
                f"a key of {what} is {op}, which is no operator overload",
                code="aten.table",
                hints=(f"an overload is meant{'' if packet else ', such as'}: {', '.join(names)}",),
            )
        if not (value is None or callable(value) or isinstance(value, kinds)):
            raise InvalidArgumentError(f"{what} has {value!r} for {op}, which is no function", code="aten.table")
        table[op] = value
    return table


def is_op(target: Any) -> bool:
    """Tell whether `target` is an overload of any operator library, a higher-order op, or a scalar function."""
    return isinstance(target, (OpOverload, HigherOrderOp)) or target is operator.getitem or target in SCALAR_FUNCTIONS


@functools.cache
def row(target: OpOverload) -> Row:
    """Return the row of an operator overload.

    Example:
        >>> r = row(torch.ops.aten.add_.Tensor)
        >>> r.name, r.effects.writes, [o.kind for o in r.operands]
        ('aten.add_.Tensor', ('self',), ['Tensor', 'Tensor', 'Scalar'])
    """
    schema = target._schema
    views = _views(target)
    operands = tuple(_operand(argument, views) for argument in schema.arguments)
    results = tuple(_kind(result) for result in schema.returns)
    return Row(str(target), operands, results, effects(target), str(schema))


def effects(target: Any) -> Effects:
    """Return the effects of a call_function target, assuming nothing about its arguments.

    Args:
        target: An operator overload, a higher-order op, a Python function of `SCALAR_FUNCTIONS`, or operator.getitem.
    """
    return effects_of(target, node_effects) if isinstance(target, HigherOrderOp) else _effects(target)


@functools.cache
def _effects(target: Any) -> Effects:
    if not isinstance(target, OpOverload):
        return Effects(opaque=not is_op(target))
    packet = _packet(target)
    ours = target.namespace in _KNOWN_LIBRARIES
    writes = _declared_writes(target) + _HIDDEN_WRITES.get(str(target), ())
    return Effects(
        writes=writes,
        views=_views(target),
        random=_draws(target) or (ours and packet in _RANDOM_PACKETS),
        may_raise=not ours or _may_raise(packet),
        checks=(ours and packet in _CHECK_PACKETS) or not (target._schema.returns or writes),
        communicates=target.namespace in _OF_PROCESSES,
    )


def _draws(target: OpOverload) -> bool:
    """Whether an op advances a generator: not where it repeats draws, whose seed it is given."""
    repeats = any(argument.name in ("philox_seed", "rng_state") for argument in target._schema.arguments)
    return torch.Tag.nondeterministic_seeded in target.tags and not repeats


def node_effects(node: fx.Node) -> Effects:
    """Return the effects of one call: those of its op, less what its constant arguments rule out."""
    if node.op != "call_function":
        return Effects(opaque=node.op in ("call_method", "call_module"))
    effects_of_target = effects(node.target)
    if not isinstance(node.target, OpOverload):
        return effects_of_target
    name = str(node.target)
    if name in _HIDDEN_WRITES and name not in _ALWAYS_UPDATES and _is_inference(node):
        return replace(effects_of_target, writes=_declared_writes(node.target))
    if (
        effects_of_target.may_raise
        and _packet(node.target).rstrip("_") in _DIVISION_PACKETS
        and not _is_integer_division(node)
    ):
        return replace(effects_of_target, may_raise=False)
    return effects_of_target


def draws_random(gm: fx.GraphModule) -> bool:
    """Tell whether running a graph of ATen operations advances a random generator."""
    return any(n.op == "call_function" and node_effects(n).random for n in gm.graph.nodes)


def written_nodes(node: fx.Node) -> tuple[fx.Node, ...]:
    """Return the nodes whose tensors a call writes, in the order of the op's parameters."""
    return _nodes_of(node, node_effects(node).writes)


def viewed_nodes(node: fx.Node) -> tuple[fx.Node, ...]:
    """Return the nodes whose memory the result of a call may share."""
    if node.target is operator.getitem:
        return (node.args[0],) if isinstance(node.args[0], fx.Node) else ()
    return _nodes_of(node, node_effects(node).views)


def counts_from_storage(target: Any) -> bool:
    """Tell whether an op addresses the storage of its operand, as `as_strided` does, and not the operand.

    Where the operand begins in its storage then decides what the op reads and writes.

    Example:
        >>> counts_from_storage(torch.ops.aten.as_strided.default), counts_from_storage(torch.ops.aten.t.default)
        (True, False)
    """
    schema = getattr(target, "_schema", None)
    return schema is not None and any(argument.name == "storage_offset" for argument in schema.arguments)


def overload_named(name: str) -> OpOverload:
    """Return the overload with a name such as `"aten.add.Tensor"`.

    Raises:
        LookupError: There is none.
    """
    parts = name.split(".")
    if len(parts) != 3:
        raise LookupError(name)
    if parts[0] == NAMESPACE:
        return form_named(parts[1], parts[2])
    try:
        overload = getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])
    except AttributeError:
        raise LookupError(name) from None
    if not isinstance(overload, OpOverload):
        raise LookupError(name)
    return overload


def argument_of(node: fx.Node, name: str) -> Any:
    """Return the argument that a call gives to the parameter `name` of its op; None when it's left out."""
    if name in node.kwargs:
        return node.kwargs[name]
    names = [argument.name for argument in _overload(node)._schema.arguments if not argument.kwarg_only]
    if name in names and names.index(name) < len(node.args):
        return node.args[names.index(name)]
    return None


def _overload(node: fx.Node) -> OpOverload:
    assert isinstance(node.target, OpOverload)
    return node.target


def _nodes_of(node: fx.Node, names: tuple[str, ...]) -> tuple[fx.Node, ...]:
    nodes: list[fx.Node] = []
    for name in names:
        value = argument_of(node, name)
        items = value if isinstance(value, (list, tuple)) else (value,)
        nodes += [item for item in items if isinstance(item, fx.Node)]
    return tuple(nodes)


def _packet(target: OpOverload) -> str:
    """Return the op's name without library and overload."""
    return target._schema.name.partition("::")[2]


def _may_raise(packet: str) -> bool:
    plain = packet if packet in _MAY_RAISE_PACKETS else packet.rstrip("_")
    return plain in _MAY_RAISE_PACKETS or plain in _DIVISION_PACKETS or packet.startswith("linalg_")


def _is_integer_division(node: fx.Node) -> bool:
    """Whether a division may be one of integers that rounds; true without a value to look at."""
    value = meta.value(node) if meta.has_value(node) else None
    return not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex())


def _is_inference(node: fx.Node) -> bool:
    """Whether a normalisation op is told not to update its statistics, or has none."""
    flag = next((argument_of(node, name) for name in _TRAINING_ARGUMENT if argument_of(node, name) is not None), None)
    return flag is False or not _nodes_of(node, ("running_mean", "running_var"))


def _declared_writes(target: OpOverload) -> tuple[str, ...]:
    arguments = target._schema.arguments
    return tuple(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)


def _views(target: OpOverload) -> tuple[str, ...]:
    """Arguments that a result may alias. Lists carry empty alias sets in Python, so sets can't be compared."""
    if str(target) in _HIDDEN_VIEWS:
        return _HIDDEN_VIEWS[str(target)]
    if not any(result.alias_info is not None for result in target._schema.returns):
        return ()
    arguments = target._schema.arguments
    return tuple(a.name for a in arguments if a.alias_info is not None and not a.alias_info.is_write)


def _operand(argument: Any, views: tuple[str, ...]) -> Operand:
    return Operand(
        name=argument.name,
        kind=_kind(argument),
        keyword_only=argument.kwarg_only,
        default=repr(argument.default_value) if argument.has_default_value() else None,
        written=argument.alias_info is not None and argument.alias_info.is_write,
        viewed=argument.name in views,
    )


def _kind(argument: Any) -> str:
    """Type as schemas write it, without alias annotations: `Tensor?[]`, `SymInt[]?`, `ScalarType`."""
    return _type_text(argument.real_type)


def _type_text(kind: Any) -> str:
    name = type(kind).__name__
    if name == "OptionalType":
        return _type_text(kind.getElementType()) + "?"
    if name == "ListType":
        return _type_text(kind.getElementType()) + "[]"
    return {"number": "Scalar"}.get(str(kind), str(kind))
