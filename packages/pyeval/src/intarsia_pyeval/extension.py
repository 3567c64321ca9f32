"""What goes between the evaluator and a plug-in: the recorded graph, and what is asked of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from intarsia_ir.records import Signature, Symbolic
from intarsia_pyeval.values.base import Value

__all__ = ["Graph", "Symbols"]


class Graph:
    """What the plug-in recorded: a graph with its inputs, or nothing.

    Args:
        module: The graph module.
        signature: Its signature.
        example_inputs: Its inputs at capture.
        inputs: Models of its inputs, in order.
        outputs: Models of its results, in order.
    """

    __slots__ = ("example_inputs", "inputs", "module", "outputs", "signature")

    def __init__(
        self,
        module: Any,
        signature: Signature,
        example_inputs: tuple[Any, ...],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
    ) -> None:
        self.module = module
        self.signature = signature
        self.example_inputs = example_inputs
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)


@dataclass(frozen=True, slots=True)
class Symbols:
    """Which sizes and numbers of a call are symbols.

    Args:
        symbolic: Those that are asked for.
        enabled: Whether there may be any: the first attempt at a call without them finds marked sizes.
        marks: Whether sizes that the user marked are symbols.
    """

    symbolic: Symbolic
    enabled: bool
    marks: bool
