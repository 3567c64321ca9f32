"""The rules of the aten dialect. This list is the specification; every rule has a test that carries its number.

A1: every argument is a node of the graph that comes earlier, and there is one output, at the end.
A2: placeholders come first, with distinct names and no defaults.
A3: the output is a flat tuple of nodes and constants.
A4: every call is a call_function of an operator overload, a higher-order op, operator.getitem, or a scalar function.
A5: the arguments fit the schema: known names, none twice, none missing, each of its kind.
A6: every node carries a value (`meta.value`), of the number and kinds that its schema returns.
A7: operator.getitem picks an existing item of a node with several results, and its value is that item's.
A8: scalar functions take numbers, never tensors.
A9: every get_attr names an attribute of the module.
A10: every computing node carries origins (not asked of graphs from other front ends: `origins=False`).
A11: in a functional program no node writes (`functional=True`).
A12: shape, strides, dtype and device of a value are what the op gives for its arguments' values (`values=True`).
A13: the graphs of a higher-order op obey these rules, take its operands, and give what the call gives.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from intarsia_ir import meta
from intarsia_ir._fx import node_arguments
from intarsia_ir._rules import Findings
from intarsia_ir.aten.ops import SCALAR_FUNCTIONS, node_effects, row
from intarsia_ir.aten.text import DIALECT
from intarsia_ir.higher_order import HigherOrderOp

__all__ = ["verify"]

_CONSTANTS = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)


def verify(
    gm: fx.GraphModule,
    *,
    functional: bool = False,
    origins: bool = True,
    values: bool = False,
    described: bool = True,
) -> None:
    """Check `gm` against the rules above.

    Args:
        gm: The program.
        functional: Whether writes are forbidden (A11).
        origins: Whether origins are demanded (A10).
        values: Whether every value is computed again and compared (A12); costs a run on fake tensors.
        described: Whether values are demanded (A6): below FX(aten), graphs of higher-order ops have none.

    Raises:
        VerifyError: With all findings, and an excerpt around the first.
    """
    findings = Findings(gm, DIALECT)
    findings.check_topology("A1")
    findings.check_inputs("A2")
    findings.check_output("A3", _CONSTANTS)
    for node in gm.graph.nodes:
        if node.op != "output":
            _check_node(findings, node, described)
        if node.op == "call_function":
            if origins:
                findings.check_origins("A10", node)
            if isinstance(node.target, HigherOrderOp):
                how: dict[str, Any] = {
                    "functional": functional,
                    "origins": origins,
                    "values": values,
                    "described": described,
                }
                findings.check_subgraphs("A13", node, functools.partial(verify, **how))
            if functional and node_effects(node).writes:
                findings.add("A11", node, f"writes {', '.join(node_effects(node).writes)}")
    if values and not findings.found:
        from intarsia_ir.aten._values import check_values

        check_values(findings, "A12")
    findings.raise_if_any()


def _check_node(findings: Findings, node: fx.Node, described: bool) -> None:
    if node.op == "get_attr":
        findings.check_attribute("A9", node)
    elif node.op not in ("placeholder", "call_function"):
        findings.add("A4", node, f"{node.op} of {node.target!r}; only calls of operator overloads are allowed")
        return
    if not meta.has_value(node):
        if described:
            findings.add("A6", node, "no value; see intarsia_ir.meta.set_value")
    elif node.op == "call_function":
        _check_call(findings, node)
    if node.op == "call_function" and isinstance(node.target, OpOverload):
        _check_arguments(findings, node)


def _check_call(findings: Findings, node: fx.Node) -> None:
    if isinstance(node.target, OpOverload):
        _check_results(findings, node)
    elif node.target is operator.getitem:
        _check_getitem(findings, node)
    elif isinstance(node.target, HigherOrderOp):
        return
    elif node.target in SCALAR_FUNCTIONS:
        tensors = [a for a in node_arguments(node) if isinstance(_value(a), torch.Tensor)]
        if tensors:
            findings.add("A8", node, f"applies {node.target!r} to the tensor {tensors[0]}")
    else:
        findings.add("A4", node, f"calls {node.target!r}, which is no operator overload")


# ---- A5: arguments ---------------------------------------------------------------------------------------------


def _check_arguments(findings: Findings, node: fx.Node) -> None:
    assert isinstance(node.target, OpOverload)
    operands = row(node.target).operands
    positional = [o for o in operands if not o.keyword_only]
    if len(node.args) > len(positional):
        findings.add("A5", node, f"{len(node.args)} positional arguments, {node.target} takes {len(positional)}")
    given: dict[str, Any] = {o.name: value for o, value in zip(positional, node.args)}
    by_name = {o.name: o for o in operands}
    for name, value in node.kwargs.items():
        if name not in by_name:
            findings.add("A5", node, f"{node.target} has no parameter {name!r}")
        elif name in given:
            findings.add("A5", node, f"the parameter {name!r} is given twice")
        given[name] = value
    for operand in operands:
        if operand.name not in given:
            if operand.default is None:
                findings.add("A5", node, f"the parameter {operand.name!r} is missing")
        elif not _fits(operand.kind, given[operand.name]):
            findings.add("A5", node, f"{operand.name} is {_shown(given[operand.name])}, the schema says {operand.kind}")


def _fits(kind: str, value: Any) -> bool:
    """Tell whether an argument can stand for a parameter of a kind; a single item may stand for a list."""
    if kind.endswith("?"):
        return value is None or _fits(kind[:-1], value)
    if kind.endswith("[]"):
        if isinstance(value, (list, tuple)):
            return all(_fits(kind[:-2], v) for v in value)
        # a node may produce the whole list; the dispatcher accepts one number for `int[2]`
        return isinstance(_value(value), (list, tuple)) or _fits(kind[:-2], value)
    actual = _value(value)
    if actual is _UNKNOWN:
        return True
    expected = _KINDS.get(kind)
    return expected is None or isinstance(actual, expected)


_NUMBER = (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)
_INTEGER = (int, torch.SymInt)
# a tensor of no dimensions may stand for a number; a dtype for an `int` in schemas that spell it so
_KINDS: Mapping[str, tuple[type, ...]] = {
    "Tensor": (torch.Tensor, *_NUMBER),
    "int": (*_INTEGER, torch.SymBool, torch.dtype, torch.layout, torch.memory_format, torch.Tensor),
    "float": (float, torch.SymFloat, *_INTEGER, torch.Tensor),
    "complex": (*_NUMBER, torch.Tensor),
    "bool": (bool, torch.SymBool, int, torch.Tensor),
    "Scalar": (*_NUMBER, torch.Tensor),
    "str": (str,),
    "ScalarType": (torch.dtype, int),
    "Layout": (torch.layout, int),
    "MemoryFormat": (torch.memory_format, int),
    "Device": (torch.device, str, int),
    "Generator": (torch.Generator,),
}


class _Unknown:
    """What isn't known of a node without a value."""


_UNKNOWN = _Unknown()


def _value(argument: Any) -> Any:
    if not isinstance(argument, fx.Node):
        return argument
    return meta.value(argument) if meta.has_value(argument) else _UNKNOWN


def _shown(argument: Any) -> str:
    return f"a {type(_value(argument)).__name__} ({argument})"


# ---- A6, A7: results -------------------------------------------------------------------------------------------


def _check_results(findings: Findings, node: fx.Node) -> None:
    assert isinstance(node.target, OpOverload)
    kinds, value = row(node.target).results, meta.value(node)
    if not kinds:
        if value is not None:
            findings.add("A6", node, f"has a value, but {node.target} returns nothing")
        return
    if len(kinds) == 1:
        results: Sequence[Any] = (value,)
    elif isinstance(value, (tuple, list)) and len(value) == len(kinds):
        results = value
    else:
        findings.add("A6", node, f"its value isn't a tuple of {len(kinds)}, as {node.target} returns")
        return
    for kind, result in zip(kinds, results):
        # an optional output (a gradient that wasn't asked for) is None
        if result is not None and not _fits_result(kind, result):
            findings.add("A6", node, f"its value has a {type(result).__name__} where the schema says {kind}")


def _fits_result(kind: str, result: Any) -> bool:
    if kind.endswith("[]"):
        return isinstance(result, (list, tuple)) and all(_fits_result(kind[:-2], r) for r in result)
    if kind == "Tensor":
        return isinstance(result, torch.Tensor)
    return kind not in ("int", "float", "bool", "Scalar") or isinstance(result, (*_NUMBER, torch.dtype))


def _check_getitem(findings: Findings, node: fx.Node) -> None:
    source, index = (*node.args, None, None)[:2]
    items = _value(source)
    if not isinstance(source, fx.Node) or not isinstance(items, (tuple, list)):
        findings.add("A7", node, f"picks from {source}, which doesn't have several results")
    elif type(index) is not int or not -len(items) <= index < len(items):
        findings.add("A7", node, f"picks item {index!r} of {len(items)}")
    elif not _same_kind(items[index], meta.value(node)):
        findings.add("A7", node, f"its value isn't that of item {index} of {source}")


def _same_kind(a: Any, b: Any) -> bool:
    """Compare what can be compared without asking a symbolic size anything."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return (a.dtype, a.device, a.dim()) == (b.dtype, b.device, b.dim())
    return type(a) is type(b)
