"""What a program takes and gives: the signature of a graph, and how the halves of a training step fit together."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from intarsia_ir.sources import Source

__all__ = [
    "AliasOfInput",
    "AliasOfOutput",
    "Constant",
    "Fresh",
    "Halves",
    "InputItself",
    "InputNumber",
    "InputSpec",
    "Joint",
    "OutputSpec",
    "Role",
    "SavedValue",
    "Signature",
    "SizeExpression",
    "Tangent",
    "ViewStep",
    "Write",
]


class Role(enum.Enum):
    """What an input of a graph is to the user."""

    USER = "user"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    SIZE = "size"
    SEED = "seed"
    TANGENT = "tangent"
    NUMBER = "number"  # a Python number in a 0-dim tensor, or random ones, made for this call: apart from all memory
    LEAF = "leaf"  # made for this call, for gradients of a tensor that the graph computes: its own data is not read


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One placeholder of a graph, in order.

    Args:
        name: Name of the placeholder.
        role: What it is to the user.
        source: How the front end fetches it; None when the caller passes it.
        requires_grad: As at capture.
        written: Whether some `Write` targets it.
        n_writes: How often eager counts that the program writes it; None: not known.
    """

    name: str
    role: Role = Role.USER
    source: Source | None = None
    requires_grad: bool = False
    written: bool = False
    n_writes: int | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SizeExpression:
    """A number in a signature that differs from call to call; `intarsia_ir.size_expressions` computes it.

    Args:
        text: Python expression over the symbols of the signature, such as `"s0 * 2"`.
    """

    text: str


@dataclass(frozen=True, slots=True)
class InputNumber:
    """Where a symbol is read from the inputs of a graph.

    Args:
        input: Position of the input.
        kind: `"size"`, `"stride"` or `"storage_offset"` of a tensor, or `"itself"` for a number.
        dim: Dimension, counted from the front.
    """

    input: int
    kind: str = "size"
    dim: int = 0


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One aliasing op from a base towards an output: `op(base, *args)`; `item` picks from a list result.

    Numbers in `args`, and in the layouts and strides of outputs, may be `SizeExpression`s.

    Args:
        op: Qualified overload name, such as `"aten.view.default"`.
        args: Arguments after the tensor.
        item: Position in the list that the op returns, or None.
    """

    op: str
    args: tuple[Any, ...]
    item: int | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One value of the flat output list. Subclasses are the closed set of kinds."""


@dataclass(frozen=True, slots=True)
class Fresh(OutputSpec):
    """Result number `result` of the graph, in storage of its own."""

    result: int
    strides: tuple[Any, ...] = ()
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class AliasOfInput(OutputSpec):
    """A view of input number `input` (after the writes), regenerated as `steps` or as size/stride/offset.

    `layout` is `(shape, strides, offset)` in elements; the offset counts from the first element of the input, so
    its own storage offset has to be added (it may differ from call to call).
    """

    input: int
    layout: tuple[tuple[Any, ...], tuple[Any, ...], Any]
    steps: tuple[ViewStep, ...] = ()
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class AliasOfOutput(OutputSpec):
    """A view of result number `base` of the graph; every output with this base shares its storage.

    `layout` is `(shape, strides, offset)` in elements; the offset counts from the first element of the result.
    """

    base: int
    layout: tuple[tuple[Any, ...], tuple[Any, ...], Any]
    steps: tuple[ViewStep, ...] = ()
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class InputItself(OutputSpec):
    """The very object that was passed as input number `input`."""

    input: int


@dataclass(frozen=True, slots=True)
class Constant(OutputSpec):
    """A Python value fixed at capture."""

    value: Any


@dataclass(frozen=True, slots=True)
class Write:
    """After the graph ran: input number `input` takes the values of result number `result`.

    `is_counted` tells whether eager counts the write among the versions of the tensor; it doesn't count those of batch
    norm into its statistics, nor those through `.data`.
    """

    input: int
    result: int
    is_counted: bool = field(default=True, repr=False)


@dataclass(frozen=True, slots=True)
class Tangent:
    """What one tangent input of a joint graph is the gradient of.

    Args:
        position: Number of an output, or of an input.
        of_write: False: the output, or for one that is a view of a result, that result. True: the new contents of
            the input.
    """

    position: int
    of_write: bool = False


@dataclass(frozen=True, slots=True)
class Joint:
    """What makes a graph a joint graph: it computes a program and, from tangents, its gradients.

    Args:
        tangents: One entry per tangent input, in order; these are the last inputs.
        gradients: One entry per gradient, in order: the input that it belongs to. Gradients are the last outputs; one
            that is zero whatever the tangents are is the constant None.
        n_outputs: Number of outputs of the program; the gradients follow them.
        parts: Number of tangents and number of gradients of each part, in order; empty for one part. The gradients of
            a part depend on its tangents only: going back from one part leaves the others whole.
        watched: For each part, the inputs and outputs whose memory eager's autograd keeps for it, as (number, whether
            it is an input).
        raises: For each part, the message of the error that going back from it raises in eager; "" for none.
        frees: For each part, whether going back from it frees something in eager, so that it can't be done again.
    """

    tangents: tuple[Tangent, ...]
    gradients: tuple[int, ...]
    n_outputs: int
    parts: tuple[tuple[int, int], ...] = ()
    watched: tuple[tuple[tuple[int, bool], ...], ...] = ()
    raises: tuple[str, ...] = ()
    frees: tuple[bool, ...] = ()

    def ranges(self) -> tuple[tuple[range, range], ...]:
        """Return the numbers of the tangents and of the gradients of each part."""
        ranges = []
        n_tangents = n_gradients = 0
        for tangents, gradients in self.parts or ((len(self.tangents), len(self.gradients)),):
            ranges.append((range(n_tangents, n_tangents + tangents), range(n_gradients, n_gradients + gradients)))
            n_tangents, n_gradients = n_tangents + tangents, n_gradients + gradients
        return tuple(ranges)


@dataclass(frozen=True, slots=True)
class Signature:
    """What the flat list of graph results means to the caller.

    A functional graph returns one flat tuple of results. `writes` and `outputs` refer to its positions, so a
    result can serve several purposes, and every result serves at least one.

    Args:
        inputs: One entry per placeholder, in order.
        outputs: One entry per flat output of the program, in order.
        writes: In program order; carried out before outputs that alias inputs are made.
        output_tree: Opaque description of how the flat outputs nest (a torch pytree spec); None for a flat tuple.
        exit_grad_mode: Grad mode that the program leaves behind, when it differs from the one at entry.
        joint: Tangents and gradients, when this is a joint graph.
        symbols: Name of each size symbol that expressions in `outputs` use -> the input that it is read from.
    """

    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[OutputSpec, ...] = ()
    writes: tuple[Write, ...] = ()
    output_tree: Any = None
    exit_grad_mode: bool | None = None
    symbols: Mapping[str, InputNumber] = field(default_factory=dict)
    joint: Joint | None = None


# ---- halves of a training step ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SavedValue:
    """One value that the backward graph takes from the forward graph.

    Args:
        position: Number of a result of the forward graph, or of an input of it.
        is_input: Which of the two.
    """

    position: int
    is_input: bool = False


@dataclass(frozen=True, slots=True)
class Halves:
    """How a forward and a backward graph fit together; what an autograd node around the pair has to know.

    Args:
        forward: Signature of the forward graph. Results beyond those that it speaks of are saved values.
        backward: Signature of the backward graph: it takes the saved values, then the tangents, and gives one output
            per gradient.
        saved: The first inputs of the backward graph.
        tangents: One entry per tangent: the result of the forward graph that it belongs to.
        gradients: One entry per output of the backward graph: the input of the forward graph that it belongs to.
        needs: One entry per gradient: the tangents that it depends on; without any of these there is no gradient.
        layouts: One entry per tangent: shape and strides in elements, dtype, device, the last two as text.
        written: Inputs whose new contents carry gradients: their tangents belong to the results written to them.
        watched: Inputs and results that aren't saved themselves and mustn't be written before the backward pass either:
            eager's autograd would raise.
        raises: Message of the RuntimeError that the backward pass raises in eager, whatever the tangents; "" for none.
        frees: Whether eager raises where the backward pass is run again, even if nothing is saved here.
    """

    forward: Signature
    backward: Signature
    saved: tuple[SavedValue, ...]
    tangents: tuple[int, ...]
    gradients: tuple[int, ...]
    needs: tuple[tuple[int, ...], ...]
    layouts: tuple[tuple[tuple[Any, ...], tuple[Any, ...], str, str], ...]
    written: tuple[int, ...] = ()
    watched: tuple[SavedValue, ...] = ()
    raises: str = ""
    frees: bool = False
