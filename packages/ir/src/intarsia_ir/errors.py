"""The one tree of errors that every Intarsia package raises from.

Every error carries the same keyword fields, rendered in this order: what happened, where in the user's
program, which stage or IR line, what to do about it. `code` is stable and has a row in `docs/errors.md`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from intarsia_ir.records import Origin

__all__ = [
    "LOOKUP_OUT_OF_RANGE",
    "IntarsiaError",
    "InternalError",
    "InvalidArgumentError",
    "NeedsFact",
    "RuntimeFault",
    "UnsupportedError",
    "VerifyError",
    "blaming",
    "naming_stage",
    "raised_by",
]


class IntarsiaError(Exception):
    """Root of all errors.

    Args:
        explanation: One sentence: what happened, with the offending value in it.
        code: Stable identifier such as `"tracer.opcode"`; the key of its row in `docs/errors.md`.
        where: The user's program lines concerned, outermost first.
        hints: What the user can do, one sentence each.

    Its attribute `stage` names the stage of a pipeline in which it arose, "" when it arose in none.
    """

    def __init__(
        self,
        explanation: str,
        *,
        code: str,
        where: Sequence[Origin] = (),
        hints: Sequence[str] = (),
    ) -> None:
        self.explanation = explanation
        self.code = code
        self.where = tuple(where)
        self.hints = tuple(hints)
        self.stage = ""
        super().__init__(explanation)

    def __str__(self) -> str:
        first, *rest = self.explanation.split("\n")
        lines = [f"{first} [{self.code}]", *rest]
        lines += [f"  at {origin}" for origin in self.where]
        lines += [f"  in stage {self.stage!r}"] if self.stage else []
        lines += [f"  hint: {hint}" for hint in self.hints]
        return "\n".join(lines)


class VerifyError(IntarsiaError):
    """A program breaks the rules of its dialect.

    Args:
        findings: One entry per violation, `(rule, node name, message)`; never only the first.
        excerpt: At most ten IR lines around the first finding.
        hints: What to do, such as which pass makes a graph of this dialect.
    """

    def __init__(
        self,
        dialect: str,
        findings: Sequence[tuple[str, str, str]],
        *,
        excerpt: str = "",
        where: Sequence[Origin] = (),
        hints: Sequence[str] = (),
    ) -> None:
        self.dialect = dialect
        self.findings = tuple(findings)
        self.excerpt = excerpt
        listed = "\n".join(f"  {rule} at {node}: {message}" for rule, node, message in findings)
        text = f"{len(self.findings)} violation(s) of the {dialect} dialect:\n{listed}"
        if excerpt:
            text += "\n" + excerpt
        super().__init__(text, code=f"verify.{dialect}", where=where, hints=hints)


class UnsupportedError(IntarsiaError):
    """The program is legal, but this compiler can't take it (yet); eager execution can."""


class InvalidArgumentError(IntarsiaError, ValueError):
    """An argument given to a public function is wrong; the message shows its value."""


class NeedsFact(IntarsiaError):  # noqa: N818  (the design's name: it asks, it doesn't complain)
    """A pass asked a frozen shape environment something that it can't answer.

    Args:
        relation: The relation that would have to be known, as text over size symbols.
    """

    def __init__(self, relation: str, *, where: Sequence[Origin] = ()) -> None:
        self.relation = relation
        super().__init__(
            f"the recorded size facts don't decide {relation}",
            code="shapes.needs_fact",
            where=where,
            hints=("add the relation to the facts that the pass returns",),
        )


#: What the check of a lookup of rows says: eager raises it as an IndexError.
LOOKUP_OUT_OF_RANGE = "index out of range in self"


class RuntimeFault(IntarsiaError):  # noqa: N818  (a fault of the running program, not of the compiler)
    """A compiled graph failed while running, before any of its effects became visible.

    Args:
        inputs: What the graph was called with, unchanged; None when that isn't known.
    """

    def __init__(
        self,
        explanation: str,
        *,
        code: str,
        where: Sequence[Origin] = (),
        hints: Sequence[str] = (),
        inputs: Sequence[Any] | None = None,
    ) -> None:
        self.inputs = None if inputs is None else tuple(inputs)
        super().__init__(explanation, code=code, where=where, hints=hints)


class InternalError(IntarsiaError):
    """The compiler is at fault: a bug of Intarsia, never of the user's program."""


@contextlib.contextmanager
def naming_stage(stage: str, *, ours: bool = True) -> Iterator[None]:
    """Have errors that pass through name the stage of a pipeline.

    Args:
        stage: Its name.
        ours: Whether an error that is none of these is the compiler's fault. If not, it is passed on as it is, with a
            note: whoever gave the stage knows it. `raised_by` reads the note.

    Raises:
        UnsupportedError: For a `RecursionError`: the graph nests too deeply for the stack that is left.
        InternalError: For any other error, when the stage is ours.

    Example:
        >>> with naming_stage("lower"):
        ...     {}["relu"]
        Traceback (most recent call last):
        ...
        intarsia_ir.errors.InternalError: KeyError: 'relu' [pipeline.stage]
          in stage 'lower'
    """
    try:
        yield
    except IntarsiaError as error:
        error.stage = error.stage or stage
        raise
    except RecursionError as error:
        refused = UnsupportedError(
            "the recursion limit was reached",
            code="pipeline.depth",
            hints=("raise sys.setrecursionlimit, or call the function from fewer nested calls",),
        )
        refused.stage = stage
        try:
            raise refused from error
        finally:
            del refused  # its traceback holds this frame
    except Exception as error:
        if raised_by(error):  # by what somebody gave to this stage
            raise
        if not ours:
            error.add_note(_RAISED_BY + stage)
            raise
        named = InternalError(f"{type(error).__name__}: {error}", code="pipeline.stage")
        named.stage = stage
        try:
            raise named from error
        finally:
            del named  # its traceback holds this frame


def raised_by(error: BaseException) -> str:
    """Return the stage, not of Intarsia, in which an error arose, as its note says; "" when it arose in none.

    Example:
        >>> try:
        ...     with naming_stage("mine", ours=False):
        ...         {}["relu"]
        ... except KeyError as error:
        ...     raised_by(error)
        'mine'
    """
    notes = [note for note in getattr(error, "__notes__", ()) if str(note).startswith(_RAISED_BY)]
    return notes[-1].removeprefix(_RAISED_BY) if notes else ""


def blaming(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, which somebody gave to a stage: what it raises names it, and is no fault of the stage.

    Example:
        >>> try:
        ...     blaming("the lowering of mine", len)(3)
        ... except TypeError as error:
        ...     raised_by(error)
        'the lowering of mine'
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with naming_stage(what, ours=False):
            return function(*args, **kwargs)

    return call


_RAISED_BY = "raised, while a graph was compiled, by "
