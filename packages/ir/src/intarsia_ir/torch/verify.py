"""The rules of the torch dialect. This list is the specification; every rule has a test that carries its number.

T1: every argument is a node of the graph that comes earlier, and there is one output, at the end.
T2: placeholders come first, with distinct names and no defaults.
T3: the output is a flat tuple of nodes and constants.
T4: every call is a call_function of something callable, or a call_method (`normalise` turns call_module into these).
T5: a call_method has a node as `self`, and where that node's value is known it has the method.
T6: regions nest: what closes a region names the node that opened the innermost one, and none is open at the output.
T7: grad mode is switched by a constant bool.
T8: every get_attr names an attribute of the module.
T9: every computing node carries origins (not asked of graphs from other front ends: `origins=False`).
T10: a nested graph, reached by get_attr or held by a transform, obeys these rules too.
T11: a transform has its arguments for operands, and what else its graph takes.
T12: the graphs of a higher-order op obey these rules, take its operands, and give equally many results.
"""

from __future__ import annotations

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir._rules import Findings
from intarsia_ir.errors import VerifyError
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.torch.ops import REGIONS, set_grad_enabled
from intarsia_ir.torch.text import DIALECT
from intarsia_ir.torch.transforms import Transform

__all__ = ["verify"]

_CONSTANTS = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)


def verify(gm: fx.GraphModule, *, origins: bool = True) -> None:
    """Check `gm` against the rules above.

    Args:
        gm: The program.
        origins: Whether origins are demanded (T9).

    Raises:
        VerifyError: With all findings, and an excerpt around the first.
    """
    findings = Findings(gm, DIALECT)
    findings.check_topology("T1")
    findings.check_inputs("T2")
    findings.check_output("T3", _CONSTANTS)
    for node in gm.graph.nodes:
        _check_node(findings, node, origins)
    _check_regions(findings)
    findings.raise_if_any()


def _check_node(findings: Findings, node: fx.Node, origins: bool) -> None:
    if node.op == "get_attr":
        value = findings.check_attribute("T8", node)
        if isinstance(value, fx.GraphModule):
            _check_nested(findings, node, value, origins)
    elif node.op == "call_method":
        _check_method(findings, node)
    elif node.op == "call_module":
        findings.add("T4", node, f"calls the module {node.target!r}; run intarsia_ir.torch.normalise first")
    elif node.op == "call_function" and not callable(node.target):
        findings.add("T4", node, f"calls {node.target!r}, which isn't callable")
    elif isinstance(node.target, Transform):
        _check_transform(findings, node, node.target, origins)
    elif isinstance(node.target, HigherOrderOp):
        findings.check_subgraphs("T12", node, lambda program: verify(program, origins=origins))
    if origins and node.op in ("call_function", "call_method"):
        findings.check_origins("T9", node)


def _check_nested(findings: Findings, node: fx.Node, region: fx.GraphModule, origins: bool) -> None:
    try:
        verify(region, origins=origins)
    except VerifyError as error:
        for rule, inner, message in error.findings:
            findings.add("T10", node, f"in its graph, {rule} at {inner}: {message}")


def _check_transform(findings: Findings, node: fx.Node, transform: Transform, origins: bool) -> None:
    n_inputs = len(transform.program.graph.find_nodes(op="placeholder"))
    n_free = len(node.args) - transform.n_arguments
    if node.kwargs or n_free < 0 or n_inputs != transform.n_passed + n_free:
        findings.add("T11", node, f"has {len(node.args)} operands, and its graph {n_inputs} inputs")
    _check_nested(findings, node, transform.program, origins)


def _check_method(findings: Findings, node: fx.Node) -> None:
    owner = node.args[0] if node.args else None
    if not isinstance(node.target, str) or not isinstance(owner, fx.Node):
        findings.add("T5", node, f"calls the method {node.target!r} of {owner!r}, which is no node")
    elif meta.has_value(owner) and not callable(getattr(meta.value(owner), node.target, None)):
        findings.add("T5", node, f"a {type(meta.value(owner)).__name__} has no method {node.target!r}")


def _check_regions(findings: Findings) -> None:
    opened: list[fx.Node] = []
    for node in findings.gm.graph.nodes:
        if node.op == "output" and opened:
            findings.add("T6", node, f"the region {opened[-1].name} is still open")
        if node.op != "call_function":
            continue
        if node.target is set_grad_enabled and not (len(node.args) == 1 and isinstance(node.args[0], bool)):
            findings.add("T7", node, f"switches grad mode by {node.args}, not by a constant bool")
        if node.target in REGIONS:
            opened.append(node)
        elif node.target in REGIONS.values():
            _close(findings, node, opened)


def _close(findings: Findings, node: fx.Node, opened: list[fx.Node]) -> None:
    innermost = opened.pop() if opened else None
    if innermost is None or node.args[:1] != (innermost,):
        where = innermost.name if innermost is not None else "none"
        findings.add("T6", node, f"closes {node.args}, the innermost open region is {where}")
    elif REGIONS[innermost.target] is not node.target:
        findings.add("T6", node, f"closes {innermost.name} by the function of another kind of region")
