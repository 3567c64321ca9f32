"""What a dispatcher keeps for a code object: its compiled versions, for as long as the code lives."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

import intarsia_framehook as framehook
from intarsia_dispatch.config import FrameGuard
from intarsia_dispatch.hidden import AsCalled
from intarsia_ir.records import GraphBreak, LinkableCode, Symbolic

if TYPE_CHECKING:
    from intarsia_framehook import FrameInfo

__all__ = ["CodeState", "CodeTable", "Version"]


@dataclass(frozen=True, slots=True)
class Version:
    """A replacement for a code object, and when it may run.

    Args:
        guard: Holds for the calls it was compiled for.
        code: The replacement; None when the frame runs as it is.
        globals_id: Address of the globals it was compiled for.
        graph: Whether it runs a compiled graph itself; its resume functions may all the same.
        captured: What `code` was linked from.
    """

    guard: FrameGuard
    code: CodeType | None
    globals_id: int
    graph: bool
    captured: LinkableCode

    def is_replaced_as_by(self, captured: LinkableCode) -> bool:
        """Tell whether it is the original with a break at the same place as `captured`: one goes on as the other."""
        ours = self.captured
        return ours.verbatim and captured.verbatim and _instructions(ours) == _instructions(captured)

    def holds(self, values: tuple[Any, ...], frame: FrameInfo) -> bool:
        """Whether this version may run for a frame with these values, as `frame_values` lists them."""
        if id(frame.globals) != self.globals_id:
            return False
        more = (frame.globals,) if self.guard.wants_globals else ()
        return bool(self.guard.predicate(*values, *more))

    def why_not(self, frame: FrameInfo) -> str:
        """Say in words why it may not."""
        if id(frame.globals) != self.globals_id:
            return "the function has other globals"
        return self.guard.explain(frame.locals, frame.globals) or "its guard holds again"


def _instructions(linkable: LinkableCode) -> list[tuple[bytes, int]]:
    codes = [linkable.code, *(getattr(resume, "code", resume) for resume in linkable.resumes.values())]
    return [(code.co_code, code.co_argcount) for code in codes]


@dataclass(slots=True)
class CodeState:
    """What is known of one code object.

    Args:
        versions: In the order they were compiled. The frame hook tries the one that held last first.
        warned: The one warning was given.
        observed: The one about a dispatch mode was.
        eager: It was counted as left to eager.
        symbolic: Sizes and numbers that have had several values.
        static: Symbols were tried, and couldn't be compiled.
        resumes: What goes on with it after breaks, each at its place.
        passed_on: What kept all of it from being captured, in a library's function: what that calls may be compiled.
        hands_on: Something that it calls was compiled.
        as_called: Makes a context in which torch asks whom it asked at the latest call.
    """

    versions: list[Version] = field(default_factory=list)
    warned: bool = False
    observed: bool = False
    eager: bool = False
    symbolic: Symbolic = field(default_factory=Symbolic)
    static: bool = False
    resumes: list[CodeType] = field(default_factory=list)
    passed_on: GraphBreak | None = None
    hands_on: bool = False
    as_called: AsCalled = contextlib.nullcontext

    def is_compiled(self) -> bool:
        """Whether some version is other code than was written."""
        return any(version.code is not None for version in self.versions)


class CodeTable:
    """States by code object, compared by identity (equal code objects of two functions are two), held weakly.

    Args:
        owner: Whose entries in the frame hook belong to this table.
    """

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self._rows: dict[int, tuple[weakref.ref[CodeType], CodeState]] = {}
        self._origins: dict[int, tuple[weakref.ref[CodeType], weakref.ref[CodeType]]] = {}  # of resume functions

    def find(self, code: CodeType) -> CodeState | None:
        """Return the state of a code object, or None when it was never seen."""
        row = self._rows.get(id(code))
        return row[1] if row else None

    def add(self, code: CodeType) -> CodeState:
        """Return a new state for a code object; it goes when the code object goes."""
        rows, key = self._rows, id(code)
        state = CodeState()
        rows[key] = (weakref.ref(code, lambda _: rows.pop(key, None)), state)
        return state

    def function_of(self, code: CodeType) -> CodeType:
        """Return the code of the function that a resume function goes on with; other code is its own function's."""
        origin = self._origins[id(code)][1]() if id(code) in self._origins else None
        return code if origin is None else origin

    def shared(self, resume: CodeType, code: CodeType) -> CodeType:
        """Return the one code object that goes on at a place of a function, whichever way a call came there.

        Args:
            resume: A resume function that a capture of `code` made.
            code: The function, or what goes on with it after another break.
        """
        origin = self._origins[id(code)][1] if id(code) in self._origins else weakref.ref(code)
        state = None if (root := origin()) is None else self.find(root)
        if state is None:
            return resume
        same = next((other for other in state.resumes if _is_same_rest(other, resume)), None)
        if same is None:
            state.resumes.append(resume)
            origins, key = self._origins, id(resume)
            origins[key] = weakref.ref(resume, lambda _: origins.pop(key, None)), origin
        return same or resume

    def has_graph(self, code: CodeType, visited: frozenset[CodeType] = frozenset()) -> bool:
        """Tell whether some version of a code object runs a compiled graph, itself or by a resume function."""
        state = self.find(code)
        if state is None or code in visited:
            return False
        replacements = [version.code for version in state.versions if version.code is not None]
        resumes = [c for replacement in replacements for c in replacement.co_consts if isinstance(c, CodeType)]
        return any(v.graph for v in state.versions) or any(self.has_graph(c, visited | {code}) for c in resumes)

    def codes(self) -> Iterator[CodeType]:
        """Yield the code objects that still live."""
        for ref, _ in list(self._rows.values()):
            code = ref()
            if code is not None:
                yield code

    def clear(self) -> None:
        """Forget all states, and take their entries out of the frame hook."""
        for code in self.codes():
            framehook.reset(code, self.owner)
        self._rows.clear()
        self._origins.clear()


#: What two resume functions of one place have in common, but for their constants; their names tell of the way there.
_OF_PLACE = (
    "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount", "co_posonlyargcount",
    "co_kwonlyargcount", "co_flags", "co_firstlineno", "co_linetable", "co_exceptiontable", "co_stacksize",
)  # fmt: skip
_BY_IDENTITY = (float, complex, tuple, frozenset, CodeType)  # equal ones may differ: 0.0 and -0.0, (1,) and (True,)


def _is_same_rest(one: CodeType, other: CodeType) -> bool:
    """Tell whether two resume functions of one function do the same, given the same variables."""
    if any(getattr(one, name) != getattr(other, name) for name in _OF_PLACE):
        return False
    pairs = zip(one.co_consts, other.co_consts, strict=False)
    return len(one.co_consts) == len(other.co_consts) and all(_is_same_constant(*pair) for pair in pairs)


def _is_same_constant(one: object, other: object) -> bool:
    # a constant of the user's is the same object in all that was made of one function
    return one is other or (type(one) is type(other) and not isinstance(one, _BY_IDENTITY) and one == other)
