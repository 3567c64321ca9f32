"""What a dispatcher is given: the passes as callables, and its policy. Nothing here imports a pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

from intarsia_dispatch.events import FrameEvent
from intarsia_dispatch.policy import ErrorPolicy
from intarsia_ir.records import Capture, GuardRecord, LinkableCode, SizeFacts, Symbolic

if TYPE_CHECKING:
    from intarsia_framehook import FrameInfo

__all__ = ["BuildGuards", "CaptureFrame", "CompiledGraph", "DispatchConfig", "FrameGuard"]


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """What compiling the graph of a capture gives.

    Args:
        run: Takes the graph's inputs positionally, returns its flat outputs. It raises `RuntimeFault` only before any
            of its effects is visible.
        guards: What compiling relied on besides the guards of the capture.
        facts: Size facts of all stages; None: those of the capture.
        draws_random: Whether `run` may advance torch's random generators; then their states are saved around it.
        raises: `raises(*inputs)`: whether the program itself, as it was captured, raises for the inputs of a fault; it
            has no effects. None: it does not, so a fault is the compiler's wherever eager returns.
        communicates: Whether `run` exchanges data with other processes: then nothing runs again after a fault, since
            the others wouldn't take part, and what caused the fault is raised.
    """

    run: Callable[..., Any]
    guards: tuple[GuardRecord, ...] = ()
    facts: SizeFacts | None = None
    draws_random: bool = True
    raises: Callable[..., bool] | None = None
    communicates: bool = False


@dataclass(frozen=True, slots=True)
class FrameGuard:
    """A guard over the values of a frame: parameters in the order of `co_varnames`, then free variables.

    It lives as long as the code object it belongs to, so it must not lead back to that: it holds functions, modules
    and globals weakly.

    Args:
        predicate: `predicate(*values)`: whether the captured assumptions hold.
        explain: `explain(values by name, globals)`: which one doesn't, in words; None when all hold.
        wants_globals: The predicate takes the globals of the frame as a last argument.
        changed: `changed(values by name, globals)`: the sizes and numbers that are otherwise than they must be.
    """

    predicate: Callable[..., bool]
    explain: Callable[[Mapping[str, Any], dict[str, Any]], str | None]
    wants_globals: bool = False
    changed: Callable[[Mapping[str, Any], dict[str, Any]], Symbolic] = lambda values, globals: Symbolic()


class CaptureFrame(Protocol):
    """Traces a frame that is about to run."""

    def __call__(
        self, code: CodeType, frame: FrameInfo, *, fullgraph: bool, number: int, dynamic: bool | Symbolic
    ) -> Capture:
        """Return what was learned; `code.code` of the result is `code` itself when it should run natively.

        `dynamic` says which sizes and numbers are symbols: all, none, or those and what the user marked.
        """


class BuildGuards(Protocol):
    """Makes the guard of a capture, last of all."""

    def __call__(self, code: CodeType, frame: FrameInfo, capture: Capture, graph: CompiledGraph | None) -> FrameGuard:
        """Return a guard that holds for `frame`; `graph` is None when the capture has none."""


def _nothing(code: CodeType) -> bool:
    return False


def _raise(code: CodeType, error: BaseException) -> CodeType:
    try:
        raise error
    finally:
        del error  # its traceback holds this frame


def _ignore_event(event: FrameEvent) -> None:
    return None


def _ignore_counts(**amounts: int) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchConfig:
    """The passes that a dispatcher calls, and its policy.

    Args:
        capture: The tracer's `capture_frame`. Its replacement bytecode calls the graph before any effect, and leaves
            the parameters as they came until then: after a fault the original runs from them.
        compile_graph: From a capture with a graph, and the frame that it was made for, to what runs it; a plain
            callable stands for `CompiledGraph(run)`.
        build_guards: Joins the guards and facts of all stages into one.
        link: The tracer's `link`: fills the named holes of replacement bytecode.
        raise_inside: The tracer's: from the code of a frame that is to raise before it begins, code that raises where
            that frame goes on after a break, for the user's handlers around it; it raises itself for all other code.
        skip_code: Code that no dispatcher of the process should look at, such as torch's own; the frame runs
            natively, what it calls is dispatched all the same.
        helpers: What further holes of replacement bytecode are filled with, by name.
        policy: What becomes of a frame that fails to compile: see `ErrorPolicy`. With `fullgraph`, a frame is captured
            whole and compiled, or raises; an exception of the program's own is no break.
        recompile_limit: Versions of one code object, natively run ones included. A further call that none fits runs in
            eager, with one warning, or raises by the policy. Where no version has a graph,
            nothing is lost and nobody told: the frame runs as written from then on, and what resumes it is compiled.
        dynamic: None: sizes and numbers that were otherwise in an earlier call are symbols; True: all; False: none.
        lock: Held while a frame is captured and compiled, never while compiled code runs. One reentrant lock for all
            dispatchers whose passes share state. (Whoever gives it makes it new in a process that is forked.)
        on_event: Told what happened to a frame, as it happens; for logs and `explain`.
        count: Told the same as amounts to add to counters: `count(graphs=1)`.
    """

    capture: CaptureFrame
    compile_graph: Callable[[Capture, FrameInfo], CompiledGraph | Callable[..., Any]]
    build_guards: BuildGuards
    link: Callable[[LinkableCode, Mapping[str, object]], CodeType]
    raise_inside: Callable[[CodeType, BaseException], CodeType] = _raise
    skip_code: Callable[[CodeType], bool] = _nothing
    helpers: Mapping[str, object] = field(default_factory=dict)
    policy: ErrorPolicy = field(default_factory=ErrorPolicy)
    recompile_limit: int = 8
    dynamic: bool | None = None
    lock: AbstractContextManager[Any] = field(default_factory=threading.RLock)
    on_event: Callable[[FrameEvent], None] = _ignore_event
    count: Callable[..., None] = _ignore_counts
