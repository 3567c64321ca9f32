"""What an evaluation consists of: the parts of its state, the tables of callables, and the plug-in of value models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intarsia_ir.records import SizeFacts, Source
from intarsia_pyeval.checking import InVain
from intarsia_pyeval.extension import Graph, Symbols
from intarsia_pyeval.sources import Guards, Sources
from intarsia_pyeval.state.checks import Checks
from intarsia_pyeval.state.classes import Classes
from intarsia_pyeval.state.effects import Effects
from intarsia_pyeval.state.frames import Frames, Limits
from intarsia_pyeval.state.identities import Identities
from intarsia_pyeval.state.live import Live
from intarsia_pyeval.state.lookups import Lookups
from intarsia_pyeval.state.raising import Raising
from intarsia_pyeval.state.steps import Steps
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.functions import PythonFunction
from intarsia_pyeval.values.objects import ClassValue, Foreign, Object

__all__ = ["BuiltinCall", "Callables", "Extension", "ExtensionMaker", "Tracer"]


#: Models a call of something written in C.
BuiltinCall = Callable[["Tracer", Sequence[Value], Keywords], Value]


@dataclass(frozen=True, slots=True)
class Callables:
    """How callables that CPython has in C are called.

    Args:
        rules: Callable -> its model.
        pure: Functions without effects, which are run on constants.
        stand_ins: Callable -> a function written in Python that does the same.
    """

    rules: Mapping[Any, BuiltinCall]
    pure: frozenset[Any]
    stand_ins: Mapping[Any, BuiltinCall]


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

    def rely_on_made_class(self, tx: Tracer, cls: type, source: Source) -> bool:
        """Rely on how the class of an object was made, where a library makes one for each; False: it is that class."""
        return False

    def may_be_shadowed(self, cls: type, name: str) -> bool:
        """Tell whether instances of a library's class may have something else under a name that their class defines."""
        return False

    def number(self, tx: Tracer, value: int | float | str, source: Source) -> Value | None:
        """Model a number or text that is no constant; None: it is one."""
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

    def array_maker(self) -> Any:
        """Return what makes of an array the tensor on its memory, where an `ArraySource` is fetched by it."""
        return None

    def answers_differ(self) -> bool:
        """Tell whether the code was told what isn't so when it runs natively, such as that it is being compiled."""
        return False

    def answer_as_native(self) -> None:
        """Tell the code from now on what it is told where it runs natively: being told otherwise, it raised."""

    def position(self) -> int:
        """Return the number of recorded operations; each is told to `tx.effects` as well, as `advanced`."""
        return 0

    def settle(self, tx: Tracer, numbers: Sequence[Value]) -> list[Value]:
        """Return operands that can't stay open in another form: as constants that they are in this call, relied on.

        What only the graph knows may be numbers of the graph instead.
        """
        return [number.settled() for number in numbers]

    def wrapper(self, value: Value) -> tuple[Callable[..., Any], Sequence[Value]] | None:
        """Return the function that makes the value of what the graph gives for it, and what else that is called with.

        None: what the graph gives is the value.
        """
        return None

    def runs_in_vain(self) -> InVain | None:
        """Return how to call the graph so that it has done nothing where a check fails.

        None: the graph does more than compute its results.
        """
        return None

    def before_end(self, tx: Tracer) -> None:
        """Record what is due once nothing more of the program is evaluated."""

    def finish(self, tx: Tracer, results: Sequence[Value]) -> Graph | None:
        """Close the graph: `results` are the recorded values that live on. None when nothing was recorded."""
        return None

    def is_result(self, value: Value) -> bool:
        """Tell whether codegen takes the value from the results of the graph."""
        return False


ExtensionMaker = Callable[["Tracer", Symbols], Extension]


class Tracer:
    """The state of one capture, in parts. What is done with values is no method of it: see `do` and `kinds`.

    Args:
        extension: Makes the plug-in of value models.
        models: Makes what models existing objects.
        callables: How callables that CPython has in C are called.
        table: Opcode name -> handler.
        limits: How far to go.
        symbols: Which sizes and numbers of the call are symbols.
        stop_at: Outermost step to stop before; -1 for none.
        room: Frames that the program may nest before CPython raises RecursionError.
        closed: Outermost steps at which nothing may be left open until the graph ran.

    Attributes:
        effects: What the program changed.
        steps: Where the capture stands.
        checks: What is known only once the graph ran.
        raising: Exceptions of the program.
        frames: The frames under evaluation.
        sources: Where existing objects are found.
        guards: What was relied on.
        lookups: Which names were looked up in classes and libraries.
        classes: What classes define.
        live: Models of existing objects.
        identities: Which objects are the same one.
        callables: How callables that CPython has in C are called.
        extension: The plug-in.
    """

    def __init__(
        self,
        extension: ExtensionMaker,
        models: Callable[[Tracer], Live],
        callables: Callables,
        table: Mapping[str, Callable[..., Any]],
        limits: Limits,
        symbols: Symbols,
        stop_at: int = -1,
        room: int = sys.maxsize,
        closed: frozenset[int] = frozenset(),
    ) -> None:
        self.callables = callables
        self.effects = Effects(lambda: self.frames.origin())
        self.steps = Steps(self.effects, stop_at)
        self.checks = Checks(self.steps, closed)
        self.frames = Frames(table, limits, room)
        self.sources = Sources()
        self.guards = Guards(self.frames.origin)
        self.raising = Raising(self.steps, self.guards)
        self.lookups = Lookups(self.guards)
        self.classes = Classes(self.sources, self.guards, self.lookups)
        self.live = models(self)
        self.identities = Identities(self.guards, self.live, self.effects, self.frames.origin)
        self.extension = extension(self, symbols)

    def forget(self) -> None:
        """Let go of everything: models, frames and the capture refer to each other, and would live to a collection."""
        self.extension.end()
        frames, live = self.frames, self.live
        for name in vars(self).keys() - {"frames"}:  # generators that end now still ask it
            delattr(self, name)
        vars(frames).clear()
        vars(live).clear()  # models of sequences ask it for their items
