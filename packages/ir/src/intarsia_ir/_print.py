"""Writing a graph as text: the part that the torch and aten dialects share.

    // dialect: aten 2
    graph(%x: f32[2, 3]) {
      # model.py:12 in forward
      %0: f32[2, 3] = aten.add.Tensor(%x, 1, alpha=2)  #12 add
      return (%0,)
    }
    origins
      1 model.py
        forward: 12

Nodes are named by position, inputs by their own name; the user's lines are as in `intarsia_ir.origin_text`.
In braces is what a training step has to know of a node:
`backward`, `kept` (autograd's own formulas keep its memory), the marked region. Effects after `!` are derived from the
op and not read back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir._fx import attribute
from intarsia_ir._literals import Opaque, literal, value_type
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.origin_text import OriginTable, OriginWriter
from intarsia_ir.records import SizeFacts

__all__ = ["Dialect", "collect_constants", "excerpt", "graph_lines", "lines_of_nodes", "print_graph"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What printing and parsing need to know about a dialect.

    Args:
        name: As in the header.
        schema: Version of the dialect that is written; older ones are read.
        target_name: Text of a call_function target, or None when it has none.
        target_named: The target with this text; LookupError when there is none.
        effect_marks: What to print after `!` for a node.
    """

    name: str
    schema: int
    target_name: Callable[[Any], str | None]
    target_named: Callable[[str], Any]
    effect_marks: Callable[[fx.Node], tuple[str, ...]]


def print_graph(
    gm: fx.GraphModule,
    dialect: Dialect,
    *,
    facts: SizeFacts | None = None,
    made_by: str = "",
    origins: OriginWriter | None = None,
) -> str:
    """Return the text of `gm`, ending in a newline; its footer is that of `origins`, where these are given."""
    table = OriginTable()
    head = f"// dialect: {dialect.name} {dialect.schema}"
    lines = [f"{head}          made by: {made_by}" if made_by else head]
    if facts is not None and facts.symbols:
        lines.append("symbols: " + ", ".join(_symbol(name, facts) for name in facts.symbols))
    lines += _Printer(gm, dialect, Opaque(), origins or table).lines()
    return "\n".join([*lines, *table.lines()]) + "\n"


def collect_constants(gm: fx.GraphModule, dialect: Dialect) -> dict[str, Any]:
    """Return what the text of `gm` refers to by name: attributes, functions of the user, objects without a text."""
    printer = _Printer(gm, dialect, Opaque(), OriginWriter())
    for _ in printer.lines():
        pass
    return {**printer.outside, **printer.opaque.named}


def graph_lines(
    gm: fx.GraphModule, dialect: Dialect, opaque: Opaque, origins: OriginWriter
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of a graph with its header, and what they refer to by name besides opaque objects.

    Nodes have their own names: other parts of a value, and plans, speak of them by these.
    """
    printer = _Printer(gm, dialect, opaque, origins, named=True)
    return [f"// dialect: {dialect.name} {dialect.schema}", *printer.lines()], printer.outside


def lines_of_nodes(gm: fx.GraphModule, dialect: Dialect) -> dict[fx.Node, str]:
    """Return the line of each node; nodes have their own names, and nested programs are left out."""
    printer = _Printer(gm, dialect, Opaque(), OriginWriter(), named=True)
    return {node: printer.line(node) for node in gm.graph.nodes}


def excerpt(gm: fx.GraphModule, dialect: Dialect, around: fx.Node | None, *, n_lines: int = 10) -> str:
    """Return at most `n_lines` lines around a node, marked; works on broken graphs."""
    printer = _Printer(gm, dialect, Opaque(), OriginWriter())
    lines, marked = [], 0
    for position, node in enumerate(gm.graph.nodes):
        try:
            text = printer.line(node)
        except (UnsupportedError, AttributeError, KeyError, TypeError):
            text = node.format_node() or node.name
        if node is around:
            marked = position
        lines.append((">" if node is around else " ") + " " + text)
    start = max(0, min(marked - n_lines // 2, len(lines) - n_lines))
    return "\n".join(lines[start : start + n_lines])


def _symbol(name: str, facts: SizeFacts) -> str:
    low, high = facts.ranges.get(name, (None, None))
    return f"{name} in [{'-inf' if low is None else low}, {'inf' if high is None else high}]"


@dataclass(slots=True)
class _Printer:
    gm: fx.GraphModule
    dialect: Dialect
    opaque: Opaque
    origins: OriginWriter
    depth: int = 0
    prefix: str = ""
    named: bool = False
    n_named: int = 0
    names: dict[fx.Node, str] = field(default_factory=dict)
    outside: dict[str, Any] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        nodes = list(self.gm.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        pad = "  " * self.depth
        yield from self._head(inputs)
        for node in nodes:
            if node.op == "placeholder":
                continue
            region = self._region(node)
            for line in self.origins.group(meta.origins(node)):
                yield f"{pad}  {line}"
            if region is not None:
                yield from self._region_lines(node, region)
            elif isinstance(node.target, HigherOrderOp):
                yield from self._higher_order_lines(node, node.target)
            else:
                yield f"{pad}  {self.line(node)}"
        yield pad + "}"

    def _head(self, inputs: list[fx.Node]) -> Iterator[str]:
        texts = [self._input(node) for node in inputs]
        if len(inputs) <= 4 and not any(meta.origins(node) for node in inputs):
            yield f"graph({', '.join(texts)}) {{"
            return
        yield "graph("
        pad = "  " * (self.depth + 2)
        for node, text in zip(inputs, texts, strict=True):
            for line in self.origins.group(meta.origins(node)):
                yield pad + line
            yield f"{pad}{text},{self._origins(node)}"
        yield "  " * self.depth + ") {"

    def _input(self, node: fx.Node) -> str:
        self.names[node] = f"%{node.target}"
        return self.names[node] + self._type(node) + self._attributes(node)

    def _type(self, node: fx.Node) -> str:
        return f": {value_type(meta.value(node), self.opaque)}" if meta.has_value(node) else ""

    def _origins(self, node: fx.Node) -> str:
        return self.origins.comment(meta.origins(node))

    def line(self, node: fx.Node) -> str:
        """Return the line of one node, without indentation."""
        if node.op == "placeholder":
            return self._input(node) + self._origins(node)
        if node.op == "output":
            return f"return {self.literal(node.args[0])}{self._origins(node)}"
        return f"{self._name(node)}{self._type(node)} = {self._call(node)}{self._after_call(node)}"

    def _after_call(self, node: fx.Node) -> str:
        marks = "".join(f" !{mark}" for mark in self.dialect.effect_marks(node))
        return self._attributes(node) + marks + self._origins(node)

    def _attributes(self, node: fx.Node) -> str:
        """Text of what a training step has to know of a node, where it isn't what it is by default."""
        attributes = [meta.phase(node)] if meta.phase(node) != "forward" else []
        attributes += ["kept"] if meta.is_kept(node) else []
        mark = meta.region(node)
        attributes += [f"region={self.literal(mark)}"] if mark is not None else []
        return f" {{{', '.join(attributes)}}}" if attributes else ""

    def _name(self, node: fx.Node) -> str:
        if node not in self.names:
            self.names[node] = f"%{node.name}" if self.named else f"%{self.n_named}"
            self.n_named += 1
        return self.names[node]

    def _call(self, node: fx.Node) -> str:
        if node.op in ("get_attr", "call_module"):
            self.outside[self.prefix + str(node.target)] = attribute(self.gm, str(node.target))
        if node.op == "get_attr":
            return f"get_attr({node.target!r})"
        if node.op == "call_method":
            return f".{node.target}({self._arguments(node)})"
        if node.op == "call_module":
            return f"call_module({', '.join([repr(node.target), *self._argument_list(node)])})"
        return f"{self._target(node)}({self._arguments(node)})"

    def _target(self, node: fx.Node) -> str:
        if isinstance(node.target, HigherOrderOp):
            return f"{node.target.name}[...]"  # a line of an excerpt
        name = self.dialect.target_name(node.target)
        if name is None:
            return self.opaque.name(node.target)
        try:
            self.dialect.target_named(name)
        except LookupError:
            self.outside[name] = node.target
        return name

    def _arguments(self, node: fx.Node) -> str:
        return ", ".join(self._argument_list(node))

    def _argument_list(self, node: fx.Node) -> list[str]:
        return [self.literal(a) for a in node.args] + [f"{k}={self.literal(v)}" for k, v in node.kwargs.items()]

    def literal(self, value: Any) -> str:
        return literal(value, self._use, self.opaque)

    def _use(self, node: fx.Node) -> str:
        # a broken graph may use what comes later or lives elsewhere; the excerpt still has to be readable
        return self.names.get(node, f"%?{node.name}")

    def _region(self, node: fx.Node) -> fx.GraphModule | None:
        if node.op != "get_attr":
            return None
        value = attribute(self.gm, str(node.target))
        return value if isinstance(value, fx.GraphModule) else None

    def _region_lines(self, node: fx.Node, region: fx.GraphModule) -> Iterator[str]:
        # the region's text stands in the place of its value, so it's not among the constants
        prefix = f"{self.prefix}{node.target}."
        inner = _Printer(region, self.dialect, self.opaque, self.origins, self.depth + 1, prefix, self.named)
        inner.outside = self.outside
        first, *rest = inner.lines()
        yield f"{'  ' * (self.depth + 1)}{self._name(node)} = region {node.target!r} {first}"
        yield from rest[:-1]
        yield rest[-1] + self._origins(node)

    def _higher_order_lines(self, node: fx.Node, target: HigherOrderOp) -> Iterator[str]:
        pad = "  " * (self.depth + 1)
        yield f"{pad}{self._name(node)}{self._type(node)} = {target.name}["
        for number, program in enumerate(target.programs):
            prefix = f"{self.prefix}{self._name(node)[1:]}.{number}."
            inner = _Printer(program, self.dialect, self.opaque, self.origins, self.depth + 2, prefix, self.named)
            inner.outside = self.outside
            first, *rest = inner.lines()
            yield f"{pad}  {first}"
            yield from rest
        yield from [f"{pad}  {name}={value}" for name, value in target.options.items()]
        yield f"{pad}]({self._arguments(node)}){self._after_call(node)}"
