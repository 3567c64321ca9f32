"""Gradients that autograd can differentiate again: eager computes them, from the graph as it was captured.

A compiled backward graph has no derivative of its own. Where autograd asks for one (`create_graph=True`), the graph of
the call runs once more in eager, under autograd:

    before:  gradients = backward(saved values, tangents)
    after:   gradients = torch.autograd.grad(graph(inputs), inputs, tangents, create_graph=True)

Side conditions: the graph draws no random numbers, exchanges no data with other processes and writes into no input; its
inputs are alive and unchanged. What the backward graph doesn't save is remembered weakly, so that a call keeps no more
memory than it does without.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Fresh, Halves, Role, Signature
from intarsia_ir.torch import communicates

__all__ = ["Remembered", "Rerun", "gradients_again", "remembering", "rerun_of"]

_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Rerun:
    """How the graph of a call runs once more in eager.

    Args:
        gm: FX(torch), as captured.
        grad_mode: Whether gradients are on as it begins.
        autocast: Device type, whether it casts, and to which dtype, as it begins.
        refusal: Why it can't, or "".
    """

    gm: fx.GraphModule
    grad_mode: bool = True
    autocast: tuple[tuple[str, bool, torch.dtype], ...] = ()
    refusal: str = ""

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the flat outputs, connected to the inputs by autograd."""
        with self._modes():
            outputs: Sequence[Any] = self.gm.forward(*inputs)
        return outputs

    @contextlib.contextmanager
    def _modes(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for device, enabled, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            stack.enter_context(torch.set_grad_enabled(self.grad_mode))
            yield


def rerun_of(gm: fx.GraphModule, signature: Signature, *, draws_random: bool) -> Rerun:
    """Return how a graph runs again, under the modes that are on now; call it where the graph is compiled.

    Args:
        gm: FX(torch).
        signature: What its compiled form gives and writes.
        draws_random: Whether it advances a random generator.
    """
    autocast = tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES)
    reasons = (
        ("it draws random numbers", draws_random),
        ("it writes into its inputs", bool(signature.writes)),
        ("it exchanges data with other processes", communicates(gm)),
    )
    refusal = next((reason for reason, holds in reasons if holds), "")
    return Rerun(gm, torch.is_grad_enabled(), autocast, refusal)


@dataclass(frozen=True, slots=True)
class Remembered:
    """Inputs of one call that the backward graph doesn't save.

    Args:
        tensors: Position -> the tensor, weakly.
        versions: Position -> its version at the call.
        held: Position -> what nobody else holds: numbers, and tensors made of numbers for this call.
    """

    tensors: Mapping[int, weakref.ref[Tensor]]
    versions: Mapping[int, int]
    held: Mapping[int, Any]

    def recall(self, position: int, name: str) -> Any:
        """Return an input.

        Raises:
            UnsupportedError: It is gone, or was written to.
        """
        if position in self.held:
            return self.held[position]
        tensor = self.tensors[position]()
        if tensor is None:
            raise _refusal(f"the tensor {name!r} that it was called with is gone")
        if _version(tensor) != self.versions[position]:
            raise _refusal(f"the tensor {name!r} that it was called with was written to since")
        return tensor


def remembering(halves: Halves) -> Callable[[Sequence[Any]], Remembered] | None:
    """Return a function of the inputs of a call that remembers those which the backward graph doesn't save, if any."""
    saved, specs = _saved_inputs(halves), halves.forward.inputs
    others = [n for n in range(len(specs)) if n not in saved]
    ours = [n for n in others if specs[n].role in (Role.SIZE, Role.NUMBER)]
    if not others:
        return None

    def remember(inputs: Sequence[Any]) -> Remembered:
        held = [n for n in others if n in ours or not isinstance(inputs[n], Tensor)]  # of torch's front end: plain ints
        tensors = [n for n in others if n not in held]
        return Remembered(
            {n: weakref.ref(inputs[n]) for n in tensors},
            {n: _version(inputs[n]) for n in tensors},
            {n: inputs[n] for n in held},
        )

    return remember


def _version(tensor: Tensor) -> int:
    """Return a tensor's version; one made under inference mode has none, and can't be written to outside of it."""
    return -1 if tensor.is_inference() else tensor._version


def _saved_inputs(halves: Halves) -> dict[int, int]:
    """Return input -> its place among the saved tensors."""
    tensors = [s for s, spec in zip(halves.saved, halves.backward.inputs, strict=False) if spec.role is not Role.SIZE]
    return {s.position: place for place, s in enumerate(tensors) if s.is_input}


def gradients_again(rerun: Rerun, halves: Halves) -> Callable[..., list[Tensor | None]]:
    """Return a function that computes the gradients of one node by running the graph again.

    Args:
        rerun: The graph.
        halves: The node's pair.

    Returns:
        A function of the saved tensors, of what `remembering` gave for the call, and of the tangents, None where there
        is none. It gives one gradient for each of `halves.gradients`.

    Raises:
        UnsupportedError: When called: the graph can't be run again; code "training.double_backward".
    """
    saved_at = _saved_inputs(halves)
    wanted = halves.gradients
    places = [_output_of(position, halves.forward) for position in halves.tangents]

    def again(
        saved: Sequence[Tensor], others: Remembered | None, tangents: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        if rerun.refusal:
            raise _refusal(rerun.refusal)
        inputs = [
            saved[saved_at[n]] if n in saved_at or others is None else others.recall(n, spec.name)
            for n, spec in enumerate(halves.forward.inputs)
        ]
        # each under a name of its own: one may have been computed from another, whose gradient that isn't
        renamed = {n: inputs[n].view_as(inputs[n]) for n in wanted if inputs[n].requires_grad}
        results = rerun([renamed.get(n, value) for n, value in enumerate(inputs)])
        pairs = [(results[at], t) for at, t in zip(places, tangents, strict=True) if t is not None]
        gradients = _differentiate(pairs, list(renamed.values()))
        computed = dict.fromkeys(wanted) | dict(zip(renamed, gradients, strict=True))
        return [computed[n] for n in wanted]

    return again


def _differentiate(pairs: Sequence[tuple[Tensor, Tensor]], inputs: Sequence[Tensor]) -> Sequence[Tensor | None]:
    outputs = [(result, tangent) for result, tangent in pairs if result.requires_grad]
    if not outputs or not inputs:
        return [None] * len(inputs)
    results, tangents = zip(*outputs, strict=True)
    gradients: Sequence[Tensor | None] = torch.autograd.grad(
        results, inputs, tangents, create_graph=True, allow_unused=True
    )
    return gradients


def _output_of(position: int, forward: Signature) -> int:
    """Return the output of the captured graph that is a result of the compiled one."""
    for number, spec in enumerate(forward.outputs):
        if isinstance(spec, Fresh) and spec.result == position:
            return number
    return -1


def _refusal(reason: str) -> UnsupportedError:
    return UnsupportedError(
        "the gradients of a compiled function can be differentiated again (create_graph=True) only by running it "
        f"again, and {reason}",
        code="training.double_backward",
        hints=("call the function as it was before intarsia.compile where second derivatives are needed",),
    )
