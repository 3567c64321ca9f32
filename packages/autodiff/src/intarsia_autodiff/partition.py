"""`partition`: a joint graph -> a forward graph, a backward graph, and how they fit together.

Before                                          after, with MinCut
  graph(%x, %tangent)                             forward(%x)
    %y = aten.sin.default(%x)                       %y = aten.sin.default(%x)
    %c = aten.cos.default(%x)                       return (%y,)                   saved: input x
    %g = aten.mul.Tensor(%tangent, %c)            backward(%x, %tangent)
    return (%y, %g)                                 %c = aten.cos.default(%x)
                                                    %g = aten.mul.Tensor(%tangent, %c)
                                                    return (%g,)

Side conditions: random ops run in the forward graph only; an input that the program writes, or memory that the
caller may write before the backward pass although eager's autograd wouldn't mind, is saved as a copy.
Law: running the forward graph and then the backward graph on what it saved gives what running the joint graph gives.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from intarsia_autodiff.analysis import Analysis
from intarsia_autodiff.check import check_halves
from intarsia_autodiff.narrow import narrow_saved_values
from intarsia_autodiff.plan import PartitionPlan
from intarsia_autodiff.policies import MinCut, Policy, read_of
from intarsia_autodiff.pools import pass_back_through_pools
from intarsia_autodiff.problem import Problem
from intarsia_autodiff.symbols import FoundSymbol, find_symbol, symbol_places, untold_symbols
from intarsia_ir import aten as aten_dialect
from intarsia_ir import meta
from intarsia_ir.choices import instance_of
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import (
    AliasOfInput,
    AliasOfOutput,
    Constant,
    Fresh,
    Halves,
    InputItself,
    InputSpec,
    OutputSpec,
    Role,
    SavedValue,
    Signature,
)
from intarsia_ir.values import Functional, Half, Partition, Recorded
from intarsia_recorder import graph_module
from intarsia_shapes import plain_size

__all__ = ["Partitioned", "partition", "partition_problem"]

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A partition of a joint graph, and the plan that made it.

    Args:
        partition: The graphs: forward, from the inputs to results and saved values; one backward for each part of the
            joint graph, from saved values and tangents to gradients.
        plan: What was decided.
    """

    partition: Partition[Half]
    plan: PartitionPlan


@dataclass(frozen=True, slots=True)
class _Part:
    """What one backward graph is for.

    Args:
        number: Its number.
        tangents: Numbers of its tangents.
        gradients: Numbers of its gradients.
        saved: The values that it is given.
    """

    number: int
    tangents: range
    gradients: range
    saved: tuple[fx.Node, ...]


def partition(
    joint: Recorded, policy: Policy | None = None, *, fuel: int | None = None, check: bool = True
) -> Partitioned:
    """Split a joint graph.

    Args:
        joint: FX(aten), pure, with `signature.joint`: what `functionalize(joint_graph(...))` gives.
        policy: Chooses what to save; None: `MinCut()`. A `PartitionPlan` is a policy that chooses as it did before.
        fuel: Of the values that the policy wants computed again, how many may be, in program order; the others are
            saved where the backward pass reads them, if they can be. None: all.
        check: Whether to verify the dialect on entry and exit.

    Raises:
        InvalidArgumentError: `joint` isn't a joint graph, or the choice leaves out what the backward pass reads.
        UnsupportedError: The backward pass draws random numbers or writes an input.

    Example:
        >>> from intarsia_autodiff import joint_graph
        >>> halves = partition(joint_graph(torch.sin, (torch.zeros(3, requires_grad=True),)))
        >>> print(halves.plan)
        MinCut(recompute=frozenset()): saves 12 bytes in 1 value, computes 2 values again
          saved: arg0
          recomputed: detach_default, cos_default
    """
    policy = policy or MinCut()
    instance_of("what is partitioned (`functionalize(joint_graph(...))`)", joint, Recorded)
    if check:
        aten_dialect.verify(joint.graph_module, functional=True)
    joint = _before_analysis(joint)
    analysis = Analysis(joint)
    problem = analysis.problem()
    chosen = policy.choose(problem)
    missing = problem.missing(chosen)
    if missing:
        raise InvalidArgumentError(
            f"the backward pass would have to do without {', '.join(missing)}", code="partition.missing"
        )
    if fuel is not None:
        again = [name for name in problem.recomputed(chosen) if problem[name].saveable]
        chosen = read_of(problem, {*chosen, *again[fuel:]})
    saved = tuple(value.name for value in problem.values if value.name in chosen)
    text = policy.policy if isinstance(policy, PartitionPlan) else str(policy)
    plan = PartitionPlan(text, saved, problem.recomputed(saved), problem.n_bytes(saved))
    graphs = _Splitter(joint, analysis, plan).split()
    if check:
        aten_dialect.verify(graphs.forward.graph_module, functional=True)
        for part, (backward, halves) in enumerate(zip(graphs.backwards, graphs.halves, strict=True)):
            aten_dialect.verify(backward.graph_module, functional=True)
            check_halves(joint, graphs.forward.graph_module, backward.graph_module, halves, part)
    return Partitioned(graphs, plan)


def partition_problem(joint: Recorded) -> Problem:
    """Return what a policy is asked about a joint graph."""
    return Analysis(_before_analysis(joint)).problem()


def _before_analysis(joint: Recorded) -> Recorded:
    """Return the joint graph with less to save in it."""
    return narrow_saved_values(pass_back_through_pools(joint))


class _Splitter:
    """Builds the halves for a plan."""

    def __init__(self, joint: Recorded, analysis: Analysis, plan: PartitionPlan) -> None:
        self.joint, self.analysis, self.plan = joint, analysis, plan
        self.signature = joint.signature
        assert self.signature.joint is not None
        self.tie = self.signature.joint
        by_name = {node.name: node for node in joint.graph_module.graph.nodes}
        self.saved_nodes = [by_name[name] for name in plan.saved]
        forward = [n for n in joint.graph_module.graph.nodes if n.op == "call_function" and n not in analysis.backward]
        self._tellers = [*analysis.primals, *forward]  # what the forward graph can read sizes from

    def split(self) -> Partition[Half]:
        parts: list[tuple[_Part, fx.GraphModule, Signature, tuple[tuple[int, ...], ...], tuple[FoundSymbol, ...]]] = []
        for part in self._parts():
            gm, signature, needs = self._backward(part, ())
            sizes = tuple(find_symbol(name, self._tellers) for name in untold_symbols(gm, signature))
            if sizes:
                gm, signature, needs = self._backward(part, sizes)
            parts.append((part, gm, signature, needs, sizes))
        every_size = {str(symbol.value.node.expr): symbol for *_, sizes in parts for symbol in sizes}
        forward_gm, forward, saved, places = self._forward(every_size)
        backwards, fits = [], []
        for part, gm, signature, needs, sizes in parts:
            given = (*[saved[n] for n in part.saved], *[saved[str(symbol.value.node.expr)] for symbol in sizes])
            fits.append(self._halves(part, forward, signature, needs, given, places))
            backwards.append(Half(gm, signature, self.joint.facts))
        guards = self.joint.guards if isinstance(self.joint, Functional) else ()
        whole = Half(forward_gm, forward, self.joint.facts, guards)
        return Partition(whole, tuple(backwards), tuple(fits))

    def _halves(
        self,
        part: _Part,
        forward: Signature,
        backward: Signature,
        needs: tuple[tuple[int, ...], ...],
        saved: tuple[SavedValue, ...],
        places: dict[int, int],
    ) -> Halves:
        tangents = [self.tie.tangents[number] for number in part.tangents]
        return Halves(
            forward,
            backward,
            saved,
            tuple(places[self.analysis.tangent_results[number]] for number in part.tangents),
            tuple(self.tie.gradients[number] for number in part.gradients),
            needs,
            tuple(_layout(meta.value(self.analysis.tangents[number])) for number in part.tangents),
            tuple(tangent.position for tangent in tangents if tangent.of_write),
            tuple(self._watched(part, set(saved), places)),
            self.tie.raises[part.number] if self.tie.raises else "",
            bool(self.tie.frees) and self.tie.frees[part.number],
        )

    def _watched(self, part: _Part, saved: set[SavedValue], places: dict[int, int]) -> Iterator[SavedValue]:
        """Yield what eager keeps for a part and this partition doesn't save itself."""
        for number, is_input in self.tie.watched[part.number] if self.tie.watched else ():
            places_of = [number] if is_input else [places[p] for p in _results_of(self.signature.outputs[number])]
            for place in places_of:
                value = SavedValue(place, is_input)
                if value not in saved:
                    yield value

    def _parts(self) -> Iterator[_Part]:
        """Yield the parts; of several, each is given the saved values that it reads."""
        parts = self.tie.ranges()
        for number, (tangents, gradients) in enumerate(parts):
            saved = tuple(self.saved_nodes)
            if len(parts) > 1:
                read = self._read([*self._kept_calls(tangents), *self._wanted(gradients)[1]])
                saved = tuple(node for node in self.saved_nodes if node in read)
            yield _Part(number, tangents, gradients, saved)

    def _wanted(self, gradients: range) -> tuple[list[int], list[fx.Node]]:
        """Return the results that gradients speak of, by number, and the nodes that their graph must have."""
        specs = [self.signature.outputs[self.tie.n_outputs + number] for number in gradients]
        results = sorted({p for spec in specs for p in _results_of(spec)})
        everything = [*self.analysis.primals, *self.analysis.tangents]
        shown = [everything[spec.input] for spec in specs if isinstance(spec, (InputItself, AliasOfInput))]
        return results, [*[self.analysis.results[position] for position in results], *shown]

    def _kept_calls(self, tangents: range) -> list[fx.Node]:
        """Return the calls of the backward graphs that do more than compute, and depend on some of these tangents."""
        tangents_of_part = {self.analysis.tangents[number] for number in tangents}
        return [node for node in self.analysis.backward_kept_calls if tangents_of_part & _ancestors([node])]

    def _read(self, nodes: Iterable[fx.Node]) -> set[fx.Node]:
        """Return what computing nodes goes through, back to saved values."""
        seen: set[fx.Node] = set()
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if node not in seen:
                seen.add(node)
                pending += [] if node in self.saved_nodes else node.all_input_nodes
        return seen

    # ---- forward

    def _forward(
        self, sizes: Mapping[str, FoundSymbol]
    ) -> tuple[fx.GraphModule, Signature, dict[fx.Node | str, SavedValue], dict[int, int]]:
        """Return the graph, its signature, where saved values and sizes are found, and old -> new numbers of results.

        Args:
            sizes: Symbols that backward graphs are given as numbers, after the saved values.
        """
        graph, copies = fx.Graph(), {}
        for node in self.analysis.primals:
            copies[node] = graph.node_copy(node)
        saved_nodes = [node for node in self.saved_nodes if node.op != "placeholder" or node in self.analysis.copied]
        wanted = [self.analysis.results[position] for position in self.analysis.forward_results]
        tellers = [symbol.node for symbol in sizes.values()]
        needed = _ancestors([*wanted, *saved_nodes, *tellers, *self.analysis.kept_calls])
        for node in self.joint.graph_module.graph.nodes:
            if node in needed and node not in copies:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        results = [copies[node] for node in wanted]
        places = {old: new for new, old in enumerate(self.analysis.forward_results)}
        saved: dict[fx.Node | str, SavedValue] = {}
        for node in self.saved_nodes:
            if node.op == "placeholder" and node not in self.analysis.copied:
                saved[node] = SavedValue(self.analysis.primals.index(node), is_input=True)
                continue
            copy = copies[node]
            if node in self.analysis.copied:
                copy = _clone(graph, copy)
            if copy not in results:
                results.append(copy)
            saved[node] = SavedValue(results.index(copy))
        for name, symbol in sizes.items():
            if symbol.number is None and symbol.node.op == "placeholder":
                saved[name] = SavedValue(self.analysis.primals.index(symbol.node), is_input=True)
                continue
            told = copies[symbol.node]
            results.append(told if symbol.number is None else _number(graph, symbol, told))
            saved[name] = SavedValue(len(results) - 1)
        n_primals = len(self.analysis.primals)
        forward = dataclasses.replace(
            self.signature,
            inputs=self.signature.inputs[:n_primals],
            outputs=tuple(_renumbered(s, places, {}) for s in self.signature.outputs[: self.tie.n_outputs]),
            writes=tuple(dataclasses.replace(w, result=places[w.result]) for w in self.signature.writes),
            symbols={name: where for name, where in self.signature.symbols.items() if where.input < n_primals},
            joint=None,
        )
        return _finish(graph, results, self.joint.graph_module), forward, saved, places

    # ---- backward

    def _backward(
        self, part: _Part, sizes: Sequence[FoundSymbol]
    ) -> tuple[fx.GraphModule, Signature, tuple[tuple[int, ...], ...]]:
        """Return the graph, its signature, and for each gradient the tangents that it needs.

        Args:
            part: What it is for.
            sizes: Symbols that it is given as numbers, after the saved values.
        """
        graph: fx.Graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        inputs: list[InputSpec] = []
        tangents = [self.analysis.tangents[number] for number in part.tangents]
        for node in part.saved:
            copies[node] = copy = _placeholder(graph, node)
            inputs.append(InputSpec(copy.name, Role.USER if isinstance(meta.value(node), torch.Tensor) else Role.SIZE))
        for symbol in sizes:
            size = graph.placeholder(f"size_{symbol.value.node.expr}")
            meta.set_value(size, symbol.value)
            inputs.append(InputSpec(size.name, Role.SIZE))
        for node in tangents:
            copies[node] = copy = _placeholder(graph, node)
            inputs.append(InputSpec(copy.name, Role.TANGENT))
        specs = tuple(self.signature.outputs[self.tie.n_outputs + number] for number in part.gradients)
        old_results, _ = self._wanted(part.gradients)
        bases = {spec.input for spec in specs if isinstance(spec, (InputItself, AliasOfInput))}
        everything = [*self.analysis.primals, *self.analysis.tangents]
        wanted = [self.analysis.results[position] for position in old_results]
        needed = _ancestors([*wanted, *self._kept_calls(part.tangents)])
        for node in self.joint.graph_module.graph.nodes:
            # in the order of the joint graph; what is computed again comes right before what reads it
            if node in needed and node in self.analysis.backward:
                self._copy_with_operands(graph, node, copies)
        for node in wanted:
            self._copy_with_operands(graph, node, copies)
        order = list(graph.find_nodes(op="placeholder"))
        input_places = {old: order.index(copies[everything[old]]) for old in bases}
        places = {old: new for new, old in enumerate(old_results)}
        outputs = tuple(_renumbered(spec, places, input_places) for spec in specs)
        gm = _finish(graph, [copies[node] for node in wanted], self.joint.graph_module)
        needs = tuple(self._needs(spec, everything, tangents) for spec in specs)
        return gm, Signature(tuple(inputs), outputs, symbols=symbol_places(gm, outputs)), needs

    def _copy_with_operands(self, graph: fx.Graph, node: fx.Node, copies: dict[fx.Node, fx.Node]) -> None:
        pending = [node]
        while pending:
            current = pending[-1]
            missing = [operand for operand in current.all_input_nodes if operand not in copies]
            if current in copies:
                pending.pop()
            elif missing:
                pending += missing
            else:
                copies[current] = graph.node_copy(current, copies.__getitem__)
                pending.pop()

    def _needs(self, spec: OutputSpec, everything: Sequence[fx.Node], tangents: Sequence[fx.Node]) -> tuple[int, ...]:
        """Return the numbers of the tangents that a gradient is computed from."""
        nodes = [self.analysis.results[position] for position in _results_of(spec)]
        if isinstance(spec, (InputItself, AliasOfInput)):
            nodes.append(everything[spec.input])
        ancestors = _ancestors(nodes)
        return tuple(number for number, tangent in enumerate(tangents) if tangent in ancestors)


def _placeholder(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Add an input that takes the value of a node."""
    copy = graph.placeholder(node.name)
    copy.meta = {**node.meta}
    return copy


def _number(graph: fx.Graph, symbol: FoundSymbol, tensor: fx.Node) -> fx.Node:
    """Add the call that reads a symbol from a tensor."""
    assert symbol.number is not None  # else it is an input itself
    size = graph.call_function(*symbol.number(tensor))
    meta.set_value(size, symbol.value)
    meta.set_origins(size, next((meta.origins(n) for n in symbol.node.users if meta.origins(n)), ()))
    return size


def _layout(value: torch.Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...], str, str]:
    dtype = str(value.dtype).removeprefix("torch.")
    return tuple(map(plain_size, value.shape)), tuple(map(plain_size, value.stride())), dtype, str(value.device)


def _ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """Return the nodes and all that they are computed from."""
    seen: set[fx.Node] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending += node.all_input_nodes
    return seen


def _results_of(spec: OutputSpec) -> tuple[int, ...]:
    match spec:
        case Fresh(result=result):
            return (result,)
        case AliasOfOutput(base=base):
            return (base,)
    return ()


def _renumbered(spec: OutputSpec, results: dict[int, int], inputs: dict[int, int]) -> OutputSpec:
    """Return an output with new numbers of results, and of inputs where they have any."""
    match spec:
        case Fresh(result=result):
            return dataclasses.replace(spec, result=results[result])
        case AliasOfOutput(base=base):
            return dataclasses.replace(spec, base=results[base])
        case InputItself(input=position) | AliasOfInput(input=position):
            return dataclasses.replace(spec, input=inputs.get(position, position))
    assert isinstance(spec, Constant)
    return spec


def _clone(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Add a copy of a value."""
    copy = graph.call_function(aten.clone.default, (node,))
    meta.set_value(copy, meta.value(node))
    meta.set_origins(copy, meta.origins(node) or next((meta.origins(n) for n in node.users if meta.origins(n)), ()))
    return copy


def _finish(graph: fx.Graph, results: Sequence[fx.Node], root: fx.GraphModule) -> fx.GraphModule:
    """Add the output node and wrap the graph, with the constants that it uses."""
    output = graph.output(tuple(results))
    meta.set_value(output, tuple(meta.value(node) for node in results))
    meta.set_origins(output, ())
    holder = torch.nn.Module()
    for node in graph.find_nodes(op="get_attr"):
        holder.register_buffer(str(node.target), operator.attrgetter(str(node.target))(root))
    return graph_module(holder, graph)
