"""The rules that every FX dialect shares: topology, inputs, outputs, attributes, origins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir._fx import attribute, node_arguments
from intarsia_ir._print import Dialect, excerpt
from intarsia_ir.dialects import dialect_of, step_between
from intarsia_ir.errors import VerifyError
from intarsia_ir.higher_order import HigherOrderOp, n_inputs, n_results

__all__ = ["Findings"]


@dataclass(slots=True)
class Findings:
    """The violations found so far in one graph, each under the number of its rule."""

    gm: fx.GraphModule
    dialect: Dialect
    found: list[tuple[str, fx.Node | None, str]] = field(default_factory=list)

    def add(self, rule: str, node: fx.Node | None, message: str) -> None:
        """Note one violation."""
        self.found.append((rule, node, message))

    def raise_if_any(self) -> None:
        """Raise `VerifyError` with all violations, in program order, and an excerpt around the first."""
        if not self.found:
            return
        order = {node: i for i, node in enumerate(self.gm.graph.nodes)}
        findings = sorted(self.found, key=lambda f: order.get(f[1], -1) if f[1] is not None else -1)
        first = findings[0][1]
        raise VerifyError(
            self.dialect.name,
            [(rule, node.name if node is not None else "graph", message) for rule, node, message in findings],
            excerpt=excerpt(self.gm, self.dialect, first),
            where=meta.origins(first) if first is not None else (),
            hints=step_between(dialect_of(self.gm), self.dialect.name),
        )

    def check_topology(self, rule: str) -> None:
        """Every argument node belongs to the graph and comes before its use; one output, at the end."""
        nodes = list(self.gm.graph.nodes)
        seen: set[fx.Node] = set()
        for node in nodes:
            for used in node_arguments(node):
                if isinstance(used, fx.Node) and used not in seen:
                    self.add(rule, node, f"uses {used.name}, which {self._where(used)}")
            seen.add(node)
        n_outputs = sum(node.op == "output" for node in nodes)
        if n_outputs != 1 or nodes[-1].op != "output":
            self.add(rule, nodes[-1] if nodes else None, f"the graph has {n_outputs} outputs; it needs one, at its end")

    def _where(self, used: fx.Node) -> str:
        inside = used.graph is self.gm.graph and used in set(self.gm.graph.nodes)
        return "comes later" if inside else "isn't in the graph"

    def check_inputs(self, rule: str) -> None:
        """Placeholders come first, have distinct names and no default."""
        started, names = False, set()
        for node in self.gm.graph.nodes:
            if node.op != "placeholder":
                started = True
                continue
            if started:
                self.add(rule, node, "a placeholder after the first computing node")
            if node.args:
                self.add(rule, node, f"a placeholder with the default {node.args[0]!r}")
            if node.target in names:
                self.add(rule, node, f"a second placeholder named {node.target!r}")
            names.add(node.target)

    def check_output(self, rule: str, constants: Sequence[type]) -> None:
        """The output is a flat tuple or list of nodes and constants."""
        for node in self.gm.graph.find_nodes(op="output"):
            value = node.args[0] if len(node.args) == 1 else None
            if not isinstance(value, (tuple, list)):
                self.add(rule, node, f"returns {value!r}, not a flat tuple")
                continue
            for item in value:
                if not isinstance(item, (fx.Node, *constants)) and item is not None:
                    self.add(rule, node, f"returns {item!r} inside its tuple")

    def check_subgraphs(self, rule: str, node: fx.Node, verify: Callable[[fx.GraphModule], None]) -> None:
        """The graphs of a higher-order op obey the rules, take its operands, and give what the call gives."""
        op = node.target
        assert isinstance(op, HigherOrderOp)
        if node.kwargs:
            self.add(rule, node, f"has the keyword operands {sorted(node.kwargs)}")
        n_before = len(self.found)
        for name, program, wanted in zip(op.row.graphs, op.programs, op.row.n_inputs(op.options, len(node.args))):
            try:
                verify(program)
            except VerifyError as error:
                for inner_rule, inner, message in error.findings:
                    self.add(rule, node, f"in its graph {name}, {inner_rule} at {inner}: {message}")
                continue
            if n_inputs(program) != wanted:
                self.add(rule, node, f"its graph {name} has {n_inputs(program)} inputs, not {wanted}")
        if len(self.found) > n_before:
            return
        counts = [n_results(program) for program in op.programs]
        value = meta.value(node) if meta.has_value(node) else None
        n_results_of_op = op.row.n_results(op.options, counts)
        if n_results_of_op is None or (
            value is not None and not (isinstance(value, tuple) and len(value) == n_results_of_op)
        ):
            given = f", and its value is {value!r}" if value is not None else ""
            self.add(rule, node, f"its graphs give {counts} results{given}")

    def check_attribute(self, rule: str, node: fx.Node) -> Any:
        """A get_attr names something that the module has; return it."""
        try:
            return attribute(self.gm, str(node.target))
        except AttributeError:
            self.add(rule, node, f"the module has no attribute {node.target!r}")
            return None

    def check_origins(self, rule: str, node: fx.Node) -> None:
        """A computing node says where in the user's program it comes from."""
        if not meta.origins(node):
            self.add(rule, node, "no origins; see intarsia_ir.meta.set_origins")
