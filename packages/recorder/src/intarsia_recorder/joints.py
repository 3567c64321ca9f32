"""Joint graphs of AOTAutograd: what it notes of their inputs and outputs, as a `Joint` and roles of ours.

Before, with what is noted                                after
  (primals_1, primals_2, tangents_1)                        the same inputs, with roles and sources
  return (new, y, g): InputMutation(primals_2),             primals_2.copy_(new)
                      output 0, gradient of primals_1       return (y, g), a joint graph of one output

A class of what is noted is known by its name: the module that has these classes is torch's own compiler.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import ArgumentSource, AttributeSource, Fresh, InputSpec, Joint, OutputSpec, Role, Tangent

__all__ = ["JointProgram", "joint_program"]


class JointProgram(NamedTuple):
    """A joint graph, and what is known of it.

    Args:
        graph_module: The graph: it writes inputs that the program writes, and gives outputs, then gradients.
        inputs: One for each placeholder; tangents are the last.
        outputs: What its flat outputs are, by its results.
        joint: Which tangent and which gradient is whose.
    """

    graph_module: fx.GraphModule
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    joint: Joint


def joint_program(
    gm: fx.GraphModule, inputs: Sequence[InputSpec], outputs: Sequence[OutputSpec], notes: Sequence[Any] | None
) -> JointProgram | None:
    """Return a flat graph as a joint graph; None where nothing is noted that makes it one.

    Args:
        gm: The graph, its output a flat tuple of nodes.
        inputs: One for each placeholder.
        outputs: What its flat outputs are, by the nodes of that tuple.
        notes: What is noted of each flat output.

    Raises:
        UnsupportedError: `recorder.joint`: a gradient or a tangent belongs to what is no input or output of the graph.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    whose = [meta.front_end_description(node) for node in placeholders]
    tangents = [note for note in whose if _is(note, "TangentAOTInput")]
    if not tangents or notes is None:
        return None
    if whose[-len(tangents) :] != tangents:
        raise _unknown("a tangent stands in front of another input")
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
            meta.set_phase(copies[node], meta.front_end_phase(node))
    (returned,) = gm.graph.find_nodes(op="output")
    values = [copies[returned.args[0][spec.result]] if isinstance(spec, Fresh) else None for spec in outputs]
    positions: list[int] = []
    gradients: list[tuple[int, int]] = []
    for number, note in enumerate(notes):
        result = values[number]
        if _is(note, "InputMutationAOTOutput"):
            if result is None:
                raise _unknown(f"{note} is no tensor of the graph")
            place = copies[placeholders[_place(whose, note.mutated_input)]]
            meta.set_origins(graph.call_function(torch.ops.aten.copy_.default, (place, result)), meta.origins(result))
        elif _is(note, "GradAOTOutput"):
            gradients.append((_place(whose, note.grad_of), number))
        elif note is not None:
            positions.append(number)
    results = list(dict.fromkeys(values[n] for n in (*positions, *[n for _, n in gradients]) if values[n] is not None))
    graph.output(tuple(results))
    specs = tuple(
        outputs[n] if values[n] is None else Fresh(results.index(values[n]))
        for n in (*positions, *[n for _, n in gradients])
    )
    ends = tuple(_tangent(note.output, whose, [notes[n] for n in positions]) for note in tangents)
    joint = Joint(ends, tuple(position for position, _ in gradients), len(positions))
    wanted = set(joint.gradients)
    roles = tuple(_described(spec, note, n in wanted) for n, (spec, note) in enumerate(zip(inputs, whose, strict=True)))
    return JointProgram(fx.GraphModule(gm, graph), roles, specs, joint)


def _is(note: Any, kind: str) -> bool:
    return type(note).__name__ == kind


def _place(notes: Sequence[Any], note: Any) -> int:
    if note not in notes:
        raise _unknown(f"{note} is named, and is none of {', '.join(map(str, notes))}")
    return list(notes).index(note)


def _tangent(note: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Tangent:
    """Return what a tangent is the gradient of: an output, or what the program writes into an input."""
    if _is(note, "InputMutationAOTOutput"):
        return Tangent(_place(inputs, note.mutated_input), of_write=True)
    return Tangent(_place(outputs, note))


def _described(spec: InputSpec, note: Any, requires_grad: bool) -> InputSpec:
    """Return what is known of an input, and what is noted of it."""
    spec = dataclasses.replace(spec, requires_grad=spec.requires_grad or requires_grad)
    if _is(note, "TangentAOTInput"):
        return dataclasses.replace(spec, role=Role.TANGENT, source=None)
    if not (_is(note, "ParamAOTInput") or _is(note, "BufferAOTInput")):
        return spec
    source: Any = ArgumentSource("self")
    for part in note.target.split("."):
        source = AttributeSource(source, part)
    return dataclasses.replace(spec, role=Role.PARAMETER if _is(note, "ParamAOTInput") else Role.BUFFER, source=source)


def _unknown(what: str) -> UnsupportedError:
    return UnsupportedError(f"a joint graph can't be read: {what}", code="recorder.joint")
