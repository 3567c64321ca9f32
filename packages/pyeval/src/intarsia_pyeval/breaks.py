"""Why tracing stops: the registry of graph breaks, and the exceptions that carry control inside the evaluator.

A break is not an error: the frame goes on in CPython and is captured again after the instruction. Every code in
`REGISTRY` has a documentation page; codes are never renamed. Plug-ins register theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, MappingProxyType
from typing import Any

from intarsia_ir.records import GraphBreak, Origin

__all__ = [
    "REGISTRY",
    "Break",
    "BreakKind",
    "Foreclosed",
    "NeedsSymbols",
    "Raised",
    "Stop",
    "TooDeep",
    "Unreconstructable",
    "Whole",
    "graph_break",
    "register",
]


@dataclass(frozen=True, slots=True)
class BreakKind:
    """One row of the registry.

    Args:
        summary: What can't be traced, in general.
        remedy: What the user can change.
    """

    summary: str
    remedy: str


_ROWS: dict[str, tuple[str, str]] = {
    "tracer.attribute": (
        "an attribute whose lookup runs code that isn't modelled",
        "read the attribute outside of the compiled region and pass its value in",
    ),
    "tracer.budget": (
        "the frame runs too many Python instructions to unroll them all",
        "move the long Python loop out of the compiled region, or use operations on whole arrays",
    ),
    "tracer.call": (
        "a call of something whose effects aren't known",
        "move the call out of the compiled region",
    ),
    "tracer.codegen": (
        "a live value can't be built again by bytecode",
        "create the value outside of the compiled region",
    ),
    "tracer.depth": (
        "calls nest too deeply to inline them",
        "turn the recursion into a loop",
    ),
    "tracer.exception": (
        "an exception leaves the frame",
        "avoid raising in the compiled region; the exception itself reaches the caller as in eager",
    ),
    "tracer.frame": (
        "a kind of frame that isn't captured: generator, coroutine, class body, module, or one that looks at itself",
        "compile the function that uses it",
    ),
    "tracer.hashing": (
        "a key whose hash or equality runs user code",
        "use keys of built-in types",
    ),
    "tracer.identity": ("the identity of an object that exists only in the compiled code", "compare by value"),
    "tracer.import": ("an import of a module that isn't loaded yet", "import the module at the top of the file"),
    "tracer.iterator": (
        "an iterator whose state isn't known, such as a generator made outside",
        "make the iterator inside of the compiled region, or loop over a list",
    ),
    "tracer.lifetime": (
        "an object is made whose end the program sees: by a __del__, a weak reference or a finalizer",
        "make the object outside of the compiled region",
    ),
    "tracer.mutation": (
        "a change of an object whose state isn't modelled",
        "move the change out of the compiled region",
    ),
    "tracer.opcode": ("an instruction that isn't traced", "move the statement out of the compiled region"),
    "tracer.operator": ("an operator on values whose meaning isn't known", "convert the operands before"),
    "tracer.output": ("something is written to the outside, as by print", "print after the compiled region"),
    "tracer.repeated": (
        "the same instruction broke before in this call",
        "remove that break; from here on the frame runs in CPython, and only its callees are compiled",
    ),
    "tracer.resume": ("the frame can't be entered again after the break", "remove the break named before"),
    "tracer.operation_raised": (
        "an operation that raised while tracing, or whose operands eager refuses by their type or shape",
        "see the reason; where eager raises too, the error that arrives is its own",
    ),
}

_KINDS = {code: BreakKind(*row) for code, row in _ROWS.items()}
REGISTRY: Mapping[str, BreakKind] = MappingProxyType(_KINDS)


def register(rows: Mapping[str, tuple[str, str]]) -> None:
    """Add a plug-in's kinds of break: code -> summary and remedy.

    Raises:
        ValueError: A code is taken.
    """
    for code, row in rows.items():
        if _KINDS.setdefault(code, kind := BreakKind(*row)) != kind:
            raise ValueError(f"{code} is registered already, as something else")


class Break(Exception):  # noqa: N818  (control flow, not an error)
    """The current instruction of the outermost frame can't be traced.

    Args:
        code: Key of `REGISTRY`.
        reason: One sentence with the offending value in it.
        origin: The user line, when the place that raises knows it.

    Attributes:
        callees: Code of the frames that it has left, the innermost one last.
    """

    def __init__(self, code: str, reason: str, origin: Origin | None = None) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason
        self.origin = origin
        self.callees: tuple[CodeType, ...] = ()

    def leave(self, code: CodeType, origin: Origin | None) -> None:
        """Note that it goes on to the caller of a frame; `origin` is the line the frame is at."""
        self.origin = self.origin or origin
        self.callees = (code, *self.callees)


class Whole(Break):
    """The captured frame runs as it is, from its beginning on; its callees are captured on their own."""


class TooDeep(Whole):
    """Calls nest too deeply: each callee would be traced as deeply again."""


class Raised(Exception):  # noqa: N818
    """The traced program raises; `value` is the model of its exception."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value

    def is_a(self, cls: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
        """Tell whether the exception is of a class."""
        return issubclass(self.value.type(), cls)


class NeedsSymbols(Exception):  # noqa: N818  (control flow inside the tracer)
    """A size is marked dynamic, and the attempt began without symbols: another must begin with them."""


class Foreclosed(Exception):  # noqa: N818
    """What was left open at an outermost step must be known after all: in another attempt it breaks there."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class Stop(Exception):  # noqa: N818
    """Tracing reached the planned end at an instruction of the outermost frame, before running it."""


class Unreconstructable(Exception):  # noqa: N818
    """Bytecode can't build a value; `birth` is the outermost step in which it was made, or -1."""

    def __init__(self, reason: str, birth: int = -1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.birth = birth


def graph_break(code: str, reason: str, origin: Origin | None, callees: tuple[CodeType, ...] = ()) -> GraphBreak:
    """Return the record of a break; the remedy comes from the registry."""
    return GraphBreak(code, reason, origin, REGISTRY[code].remedy, callees)
