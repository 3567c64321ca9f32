"""Results of library calls whose size nothing relies on: torch's prediction of it may be wrong, and no harm is done.

A kernel addresses memory by the size that was predicted, and so does a view. A library call takes what another one
gave as eager's would. So a result is let through as it is, whatever was predicted, where it goes to library calls
alone, also where these are in the backward graph; what a kernel, a view or the caller gets must be what was predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.records import AliasOfOutput, Fresh, Launch, Write
from intarsia_ir.values import Partition
from intarsia_loops.called import Called
from intarsia_loops.index import ZERO
from intarsia_loops.program import Extern, Program, TensorRef
from intarsia_runtime._calls import check_result
from intarsia_runtime.linked import Linked

__all__ = ["KeptResult", "handed_on", "is_whole", "let_through_backward"]


class KeptResult:
    """What is called where a result of a library call that is a result of the graph isn't as predicted.

    Attributes:
        relied_on: Whether its size has to be; its type has to be in any case.
    """

    def __init__(self) -> None:
        self.relied_on = True

    def __call__(self, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        if self.relied_on or value.dtype is not dtype:
            check_result(value, shape, dtype)


def is_whole(ref: TensorRef, program: Program | Called) -> bool:
    """Tell whether a reference shows a buffer as it is.

    Args:
        ref: An operand or a result.
        program: What has the buffer.
    """
    buffer = program.buffers[ref.buffer]
    return ref.offset is ZERO and ref.shape == buffer.shape and ref.strides == buffer.strides


def handed_on(program: Program | Called, launches: Iterable[Launch] = ()) -> frozenset[str]:
    """Return the inputs and results of library calls that go to library calls, or out, as they are, and nowhere else.

    Args:
        program: What is run.
        launches: Of its kernels: what they address.
    """
    relied = {name for launch in launches for name in launch.buffers}
    relied |= {ref.buffer for ref in program.outputs if isinstance(ref, TensorRef) and not is_whole(ref, program)}
    for item in program.items:
        if not isinstance(item, Extern) or isinstance(item.target, HigherOrderOp):
            relied |= item.reads()
        else:
            relied.update(ref.buffer for ref in item.refs() if not is_whole(ref, program))
    given = {name for item in program.items if isinstance(item, Extern) for name in item.outs}
    return frozenset(name for name in {*program.inputs, *given} if name in program.buffers) - relied


def let_through_backward(program: Partition[Linked]) -> None:
    """Let results through that only backward graphs get, which hand them on to library calls.

    Args:
        program: Both halves of a step, linked. What its forward graph calls for such results (`KeptResult`) is told.
    """
    spoken_of = set(_results_for_the_caller(program))
    for position, kept in getattr(program.forward.run, "kept", {}).items():
        users = [
            number in getattr(backward.run, "handed_on", ())
            for backward, half in zip(program.backwards, program.halves, strict=True)
            for number, saved in enumerate(half.saved)
            if not saved.is_input and saved.position == position
        ]
        kept.relied_on = position in spoken_of or not all(users)


def _results_for_the_caller(program: Partition[Any]) -> Iterator[int]:
    signature = program.forward.signature
    for spec in (*signature.outputs, *signature.writes):
        match spec:
            case Fresh() | Write():
                yield spec.result
            case AliasOfOutput():
                yield spec.base
    for half in program.halves:
        yield from half.tangents
