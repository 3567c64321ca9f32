"""`check_halves`: prove that a forward and a backward graph, composed, are the joint graph they were made from.

Values are numbered: two values get the same number if the same op computes them from values of the same numbers.
Terms that follow from that:
  H1  each output and each write of the forward graph has the number that it has in the joint graph
  H2  each gradient has the number that it has in the joint graph
  H3  the forward graph draws the random numbers of the joint graph, in its order, and the backward graph none
A plain copy has the number of what it copies.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import aten as aten_dialect
from intarsia_ir.errors import VerifyError
from intarsia_ir.records import AliasOfInput, AliasOfOutput, Fresh, Halves, InputItself, OutputSpec
from intarsia_ir.values import Recorded

__all__ = ["check_halves"]


def check_halves(
    joint: Recorded, forward: fx.GraphModule, backward: fx.GraphModule, halves: Halves, part: int = 0
) -> None:
    """Check that the halves compute what the joint graph does.

    Args:
        joint: The joint graph.
        forward: The forward graph.
        backward: The backward graph, or that of one part.
        halves: How they fit together.
        part: Number of the part that the backward graph is for.

    Raises:
        VerifyError: They don't.
    """
    numbering = _Numbering()
    signature = joint.signature
    tie = signature.joint
    assert tie is not None
    n_primals = len(signature.inputs) - len(tie.tangents)
    inputs = [numbering.of(("input", position)) for position in range(len(signature.inputs))]
    whole, draws = numbering.run(joint.graph_module, inputs)
    first, first_draws = numbering.run(forward, inputs[:n_primals])
    saved = [inputs[s.position] if s.is_input else first[s.position] for s in halves.saved]
    tangents, gradients = tie.ranges()[part]
    given = [*saved, *[inputs[n_primals + number] for number in tangents]]
    second, second_draws = numbering.run(backward, given)
    findings: list[tuple[str, str, str]] = []
    wanted = signature.outputs[: tie.n_outputs]
    if _meanings(wanted, whole, inputs) != _meanings(halves.forward.outputs, first, inputs[:n_primals]):
        findings.append(("H1", "outputs", "an output is another value than in the joint graph"))
    if [(w.input, whole[w.result]) for w in signature.writes] != [
        (w.input, first[w.result]) for w in halves.forward.writes
    ]:
        findings.append(("H1", "writes", "a written value is another than in the joint graph"))
    specs = tuple(signature.outputs[tie.n_outputs + number] for number in gradients)
    if _meanings(specs, whole, inputs) != _meanings(halves.backward.outputs, second, given):
        findings.append(("H2", "gradients", "a gradient is another value than in the joint graph"))
    if first_draws != draws or second_draws:
        findings.append(("H3", "random", "the halves draw other random numbers than the joint graph"))
    if findings:
        raise VerifyError("joint", findings)


def _meanings(specs: tuple[OutputSpec, ...], results: list[int], inputs: list[int]) -> list[Any]:
    """Return what outputs are, with numbers of values in place of positions."""
    meanings: list[Any] = []
    for spec in specs:
        match spec:
            case Fresh(result=result):
                meanings.append(("fresh", results[result]))
            case AliasOfOutput(base=base, layout=layout, steps=steps):
                meanings.append(("view", results[base], str(layout), steps))
            case InputItself(input=position):
                meanings.append(("input", inputs[position]))
            case AliasOfInput(input=position, layout=layout, steps=steps):
                meanings.append(("view of input", inputs[position], str(layout), steps))
            case _:
                meanings.append(("constant", id(getattr(spec, "value", None))))
    return meanings


class _Numbering:
    """Numbers for values, shared by all graphs of one check."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def of(self, key: Any) -> int:
        """Return the number of a value that `key` tells apart from all others."""
        return self._numbers.setdefault(key, len(self._numbers))

    def run(self, gm: fx.GraphModule, inputs: list[int]) -> tuple[list[int], list[int]]:
        """Return the numbers of a graph's results, and of its draws of random numbers, in order."""
        numbers: dict[fx.Node, int] = {}
        draws: list[int] = []
        given = iter(inputs)
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                numbers[node] = next(given)
            elif node.op == "output":
                results: Any = node.args[0]
                return [numbers[result] for result in results], draws
            elif node.op == "get_attr":
                numbers[node] = self.of(("constant", str(node.target)))
            elif node.target is torch.ops.aten.clone.default and not node.kwargs:
                numbers[node] = numbers[node.args[0]]  # type: ignore[index]
            else:
                key = [node.target, _frozen(fx.map_arg((node.args, node.kwargs), lambda n: _Number(numbers[n])))]
                effects = aten_dialect.node_effects(node)
                if effects.random or effects.communicates:
                    numbers[node] = self.of((*key, "draw", len(draws)))
                    draws.append(numbers[node])
                else:
                    numbers[node] = self.of(tuple(key))
        raise AssertionError("a verified graph has an output")


class _Number(int):
    """The number of a value; another type than the integers among arguments."""


def _frozen(value: Any) -> Any:
    """Return a hashable that tells arguments apart: 1 from 1.0 and True, 0.0 from -0.0."""
    if isinstance(value, (list, tuple)):
        return tuple([_frozen(item) for item in value])
    if isinstance(value, dict):
        return tuple([(key, _frozen(item)) for key, item in value.items()])
    return type(value).__name__, repr(value) if isinstance(value, (float, complex)) else value
