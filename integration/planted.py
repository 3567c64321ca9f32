"""Faults planted into passes: each stage of a pipeline with something wrong in one of its rewrites or decisions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx

from intarsia.levels import Emitted, Launched, Partition
from intarsia_ir.pipeline import Pipeline, Planned
from intarsia_loops import from_fx, to_fx
from intarsia_loops.program import Kernel, Nest, Program, Val, val
from intarsia_loops.rewrites import postorder
from intarsia_loops.vectors.walks import Maps, Rows

aten = torch.ops.aten
Change = Callable[[Any], Any]


@dataclass(frozen=True)
class Fault:
    """One fault.

    Args:
        stage: The stage that it is planted in.
        name: What it does.
        change: What the stage gives -> what it gives instead; the same value where it doesn't apply.
        at: Number of the rewrite or decision that it belongs to, from 1, which must not be before it has an effect on
            the program; None: of a stage that doesn't count.
        program: Name of the program that it is looked for in.
        train: In training.
    """

    stage: str
    name: str
    change: Change
    at: int | None = 1
    program: str = "block"
    train: bool = False

    def __str__(self) -> str:
        return f"{self.stage}: {self.name}{f' at {self.at}' if self.at else ''}{' in training' * self.train}"


def planted(pipeline: Pipeline, fault: Fault) -> Pipeline:
    """Return a pipeline with a fault in one of its stages."""
    stage = pipeline.stages[pipeline.index(fault.stage)]

    def run(value: Any, **given: Any) -> Any:
        made = stage.run(value, **given)
        fuel = given.get("fuel")
        if fault.at is not None and fuel is not None and fuel < fault.at:
            return made
        if isinstance(made, Planned):
            return Planned(fault.change(made.value), made.plan)
        return fault.change(made)

    return pipeline.replace(fault.stage, dataclasses.replace(stage, run=run))


# ---- what goes wrong ----------------------------------------------------------------------------------------------


def crash(value: Any) -> Any:
    raise KeyError("planted")


def call(old: Any, new: Any, which: int = 0) -> Change:
    """Replace the target of a call."""

    def change(node: fx.Node) -> None:
        node.target = new

    return on_graph(old, change, which)


def swap(old: Any, which: int = 0) -> Change:
    """Swap the first two operands of a call."""

    def change(node: fx.Node) -> None:
        node.args = (node.args[1], node.args[0], *node.args[2:])

    return on_graph(old, change, which)


def drop(old: Any, which: int = 0) -> Change:
    """Replace a call by its first operand."""

    def change(node: fx.Node) -> None:
        node.replace_all_uses_with(node.args[0])
        node.graph.erase_node(node)

    return on_graph(old, change, which)


def nameless(value: Any) -> Any:
    """Lose what a node is known to give: a rule of the dialect is broken."""

    def change(node: fx.Node) -> None:
        node.meta = {}

    return on_graph(None, change, 0)(value)


def on_graph(target: Any, change: Callable[[fx.Node], None], which: int) -> Change:
    """Return a change of the `which`th call of `target` in the first graph that has one."""

    def run(value: Any) -> Any:
        if isinstance(value, Partition):
            for number, graph in enumerate(value.graphs):
                made = run(graph)
                if made is not graph:
                    graphs = [*value.graphs[:number], made, *value.graphs[number + 1 :]]
                    return Partition(graphs[0], tuple(graphs[1:]), value.halves)
            return value
        graph = fx.Graph()
        output = graph.graph_copy(value.graph_module.graph, {})
        graph.output(output)
        old, new = value.graph_module.graph.output_node(), graph.output_node()
        new.meta = dict(old.meta)
        found = [n for n in graph.nodes if n.op == "call_function" and target in (None, n.target)]
        if len(found) <= which:
            return value
        change(found[which])
        gm = fx.GraphModule(value.graph_module, graph)
        gm.meta = dict(value.graph_module.meta)
        return replace(value, graph_module=gm)

    return run


def scalar(old: str, new: str) -> Change:
    """Replace a scalar op in the bodies of loops or kernels."""

    def body(nest: Nest) -> Nest:
        found = [v for v in postorder(nest.body) if v.op == old]
        return replace(nest, body=rebuilt(nest.body, dict.fromkeys(found, new))) if found else nest

    return on_nests(body)


def rebuilt(body: Val, names: dict[Val, str]) -> Val:
    """Return a body with some ops named otherwise."""
    done: dict[Any, Any] = {}
    for v in postorder(body):
        if v.op in ("load", "gather", "const", "index"):
            done[v] = v
            continue
        operands = [done.get(a, a) if not isinstance(a, str) else a for a in v.args]
        done[v] = val(names.get(v, v.op), *operands, dtype=v.dtype)
    return done[body]


def kind(old: str, new: str) -> Change:
    """Replace a reduction by another one."""
    return on_nests(lambda nest: replace(nest, kind=new) if nest.kind == old else nest)


def on_nests(change: Callable[[Nest], Nest]) -> Change:
    """Return a change of every nest of loops, or of every step of kernels."""

    def item(one: Any) -> Any:
        if isinstance(one, Kernel):
            return replace(one, steps=tuple(map(change, one.steps)))
        return change(one) if isinstance(one, Nest) else one

    def run(value: Any) -> Any:
        program: Program = from_fx(value.graph_module)
        return replace(value, graph_module=to_fx(replace(program, items=tuple(map(item, program.items)))))

    return run


def reordered(value: Any) -> Any:
    """Run the last two kernels in the other order."""
    program = from_fx(value.graph_module)
    items = program.items
    return replace(value, graph_module=to_fx(replace(program, items=(*items[:-2], items[-1], items[-2]))))


def fewer(value: Any) -> Any:
    """Forget the last launch."""
    return replace(value, launches=replace(value.launches, launches=value.launches.launches[:-1]))


def other_walks(old: str, new: str) -> Change:
    """Change an op in the walks of a CPU."""

    def steps(found: Any) -> Any:
        return tuple(
            replace(s, body=rebuilt(s.body, {v: new for v in postorder(s.body) if v.op == old})) for s in found
        )

    def part(one: Any) -> Any:
        if isinstance(one, Maps):
            return replace(one, steps=steps(one.steps))
        if isinstance(one, Rows):
            inner = tuple(replace(i, steps=steps(i.steps)) for i in one.inner)
            return replace(one, inner=inner)
        return one

    def run(value: Launched) -> Launched:
        launches = tuple(
            replace(one, walk=replace(one.walk, parts=tuple(map(part, one.walk.parts))))
            for one in value.launches.launches
        )
        return replace(value, launches=replace(value.launches, launches=launches))

    return run


def text(old: str, new: str) -> Change:
    """Print something else."""

    def run(value: Emitted) -> Emitted:
        source = value.source
        parts = tuple(part.replace(old, new) for part in source.parts)
        return replace(value, source=replace(source, text=source.text.replace(old, new), parts=parts))

    return run


# ---- the programs, and the faults -----------------------------------------------------------------------------------


class Block(torch.nn.Module):
    """Has something to do for most stages."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        q = self.norm(x) * 1 + 0
        weights = torch.softmax((q @ q.transpose(-1, -2)) / 3, dim=-1)
        gates = torch.nn.functional.silu(self.linear(weights @ q)) * torch.sigmoid(q)
        return torch.sub(gates, x), gates.sum(-1) + gates.sum(-1), torch.exp(gates - 2 * x)


def writes(x: torch.Tensor) -> Any:
    y = x.clone()
    y[1].mul_(3.0)
    y.add_(x.sin())
    return torch.sub(y, torch.cos(x)), y.relu()


PROGRAMS: MappingProxyType[str, Callable[[], Any]] = MappingProxyType({"block": Block, "writes": lambda: writes})
F = torch.nn.functional
ATEN_FAULTS = (
    ("add for sub", call(aten.sub.Tensor, aten.add.Tensor)),
    ("operands swapped", swap(aten.sub.Tensor)),
    ("exp dropped", drop(aten.exp.default)),
)


def faults() -> list[Fault]:
    """Return 41 faults over all passes."""
    made = [
        Fault("recognise_attention", "tanh for sigmoid", call(torch.sigmoid, torch.tanh)),
        Fault("select_masked_writes", "sub for add", call(torch.sub, torch.add), 2, train=True),
        Fault("drop_full_masks", "silu for relu", call(F.silu, F.relu)),
        Fault("lay_out_masks", "it crashes", crash, 3),
        Fault("to_aten", "add for sub", call(aten.sub.Tensor, aten.add.Tensor)),
        Fault("to_aten", "operands swapped", swap(aten.sub.Tensor), train=True),
        Fault("to_aten", "sin for cos", call(aten.cos.default, aten.sin.default), program="writes"),
        Fault("functionalize", "add for sub", call(aten.sub.Tensor, aten.add.Tensor), None, program="writes"),
        Fault("functionalize", "relu dropped", drop(aten.relu.default), None, program="writes"),
        Fault("functionalize", "it crashes", crash, None),
    ]
    for number, stage in enumerate(("fold_constants", "eliminate_common_subexpressions", "eliminate_dead_code")):
        for at, (name, change) in enumerate(ATEN_FAULTS, start=1):
            made.append(Fault(stage, name, change, at + number, train=at == 2))
    made += [
        Fault("fold_constants", "a rule of the dialect broken", nameless, 4),
        Fault("prefer_channels_last", "add for sub", call(aten.sub.Tensor, aten.add.Tensor)),
        Fault("split_linear_bias", "it crashes", crash, 2, train=True),
        Fault("pad_matmuls", "operands swapped", swap(aten.sub.Tensor), 2),
        Fault("split_convolution_bias", "exp dropped", drop(aten.exp.default), train=True),
        Fault("partition", "sub in one half", call(aten.sub.Tensor, aten.add.Tensor), 1, train=True),
        Fault("partition", "exp dropped in one half", drop(aten.exp.default), 3, train=True),
        Fault("overlap_collectives", "exp dropped", drop(aten.exp.default), 2, train=True),
        Fault("lower", "add for sub", scalar("sub", "add"), 2),
        Fault("lower", "max for sum", kind("sum", "max"), 8),
        Fault("lower", "exp is sin", scalar("exp", "sin"), 12, train=True),
        Fault("lower", "it crashes", crash, 7),
        Fault("fuse", "add for sub", scalar("sub", "add"), 1),
        Fault("fuse", "max for sum", kind("sum", "max"), 4),
        Fault("fuse", "exp is sin", scalar("exp", "sin"), 2, train=True),
        Fault("fuse", "two kernels in the other order", reordered, 6, program="writes"),
        Fault("schedule", "a launch is forgotten", fewer, 2),
        Fault("schedule", "add for sub in walks", other_walks("sub", "add"), 1),
        Fault("schedule", "exp is sin in walks", other_walks("exp", "sin"), 1, train=True),
        Fault("emit", "minus is plus", text(" - ", " + "), None),
        Fault("emit", "no C++", text("{", "{ garbage"), None, program="writes"),
        Fault("emit", "it crashes", crash, None, train=True),
    ]
    return made
