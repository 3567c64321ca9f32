"""What a plug-in of value models provides, such as one that knows an array library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import Signature, SizeFacts, Source, Symbolic
from intarsia_pyeval.values.base import Keywords, Value

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_pyeval.values.functions import PythonFunction
    from intarsia_pyeval.values.objects import ClassValue, Foreign, Object

__all__ = ["Extension", "ExtensionMaker", "Graph", "Symbols"]


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


class Extension:
    """Hooks of the evaluator. Every one may decline by returning None; this class declines everything.

    Args:
        tx: The capture that begins.
        symbols: Which sizes and numbers of the call are symbols.
    """

    def __init__(self, tx: Tracer, symbols: Symbols) -> None:
        """Tracing begins."""

    def end(self) -> None:
        """Tracing has ended, in whatever way."""

    def is_atom(self, kind: type) -> bool:
        """Tell whether values of a class are immutable, compare by value and have methods without effects.

        `call_atom_method` models those that have some all the same.
        """
        return False

    def sequence_class(self, cls: Any, other: Any) -> Any:
        """Return the class of a part of a tuple of `cls`, or of its sum with one of class `other`."""
        return tuple

    def wrap(self, tx: Tracer, value: Any, source: Source | None) -> Value | None:
        """Model an existing object."""
        return None

    def foreign(self, value: Any) -> Foreign | None:
        """Say why an existing object isn't modelled, as far as it is one that `wrap` could model."""
        return None

    def may_be_shadowed(self, name: str) -> bool:
        """Tell whether instances of library classes may have something else under a name that their class defines."""
        return False

    def number(self, tx: Tracer, value: int | float, source: Source) -> Value | None:
        """Model an int or float that is no constant; None: it is one."""
        return None

    def facts(self) -> SizeFacts:
        """Return what was relied on about sizes."""
        return SizeFacts()

    def call(self, tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
        """Model a call of a built-in callable or class."""
        return None

    def call_function(
        self, tx: Tracer, function: PythonFunction, args: Sequence[Value], keywords: Keywords
    ) -> Value | None:
        """Model a call of a Python function without evaluating its body."""
        return None

    def class_method(self, function: Any) -> Any:
        """Return the descriptor that a bound class method written in C is of, if `call_class_method` models it."""
        return None

    def call_class_method(
        self, tx: Tracer, owner: ClassValue, name: str, args: Sequence[Value], keywords: Keywords
    ) -> Value | None:
        """Model a call of a class method written in C, bound to `owner`."""
        return None

    def call_object(self, tx: Tracer, callee: Object, args: Sequence[Value], keywords: Keywords) -> Value | None:
        """Model a call of an instance."""
        return None

    def call_atom_method(self, tx: Tracer, atom: Any, name: str) -> Value | None:
        """Model a method of an atom that has an effect."""
        return None

    def call_marked(self, tx: Tracer, callee: Object, args: Sequence[Value], keywords: Keywords) -> Value | None:
        """Model a call of an instance whose `__call__` is written in C and has no rule."""
        return None

    def attribute(self, tx: Tracer, owner: Object, name: str) -> Value | None:
        """Model an attribute of an instance."""
        return None

    def set_attribute(self, tx: Tracer, owner: Object, name: str, value: Value | None) -> bool:
        """Model setting an attribute of an instance; tell whether it was done."""
        return False

    def is_instance(self, tx: Tracer, value: Value, cls: Any) -> bool | None:
        """Answer `isinstance` for classes with their own check."""
        return None

    def answers_differ(self) -> bool:
        """Tell whether the code was told what isn't so when it runs natively, such as that it is being compiled."""
        return False

    def position(self) -> int:
        """Return a number that grows with every recorded operation."""
        return 0

    def finish(self, tx: Tracer, results: Sequence[Value]) -> Graph | None:
        """Close the graph: `results` are the recorded values that live on. None when nothing was recorded."""
        return None

    def is_result(self, value: Value) -> bool:
        """Tell whether codegen takes the value from the results of the graph."""
        return False

    def emit_ambient(self, out: Builder) -> None:
        """Emit bytecode that sets ambient state, such as a library's modes, as tracing left it."""


ExtensionMaker = Callable[["Tracer", Symbols], Extension]
