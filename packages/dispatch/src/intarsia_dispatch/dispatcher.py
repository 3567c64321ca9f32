"""The dispatcher: when a frame starts, one of its compiled versions, a compilation, or plain CPython.

Flow of a call of a compiled root, in the order of the code below. The root is a `Hooked`: it turns the frame hook on
for this thread and calls the function. Each frame below it whose code has no fitting version comes to `_answer`; the
compile lock is taken; versions that another thread compiled meanwhile are tried again; a further one is compiled
(`_compile`), unless there are too many. The answer is remembered by the frame hook, which from then on checks guards
and runs replacements without any Python of ours.
"""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import CodeType, EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

import intarsia_framehook as framehook
from intarsia_dispatch import skipping
from intarsia_dispatch.config import CompiledGraph, DispatchConfig
from intarsia_dispatch.events import EventKind, FrameEvent
from intarsia_dispatch.graphs import graph_caller
from intarsia_dispatch.hidden import AsCalled, as_called, hidden_from_user
from intarsia_dispatch.hooked_calls import call_of, call_then, has_hooks, is_call, unwrapped
from intarsia_dispatch.module import without_wrapper
from intarsia_dispatch.outcomes import Outcomes
from intarsia_dispatch.reports import break_error, first_line
from intarsia_dispatch.roots import root_codes
from intarsia_dispatch.stats import Counters, DispatchStats, as_fallbacks
from intarsia_dispatch.versions import CodeState, CodeTable, Version
from intarsia_dispatch.working_directory import some_working_directory
from intarsia_ir import codes
from intarsia_ir.errors import (
    InternalError,
    InvalidArgumentError,
    NeedsFact,
    RuntimeFault,
    UnsupportedError,
)
from intarsia_ir.guards import TorchModesGuard
from intarsia_ir.interrupts import held_back
from intarsia_ir.observers import dispatch_mode, observer, without_function_modes
from intarsia_ir.records import Capture, GraphBreak, LinkableCode, Symbolic
from intarsia_ir.stack import deep_stack

if TYPE_CHECKING:
    from intarsia_framehook import FrameInfo

__all__ = ["Dispatcher", "disable"]

_F = TypeVar("_F", bound=Callable[..., Any])
_Answer = None | bool | EllipsisType | CodeType | tuple[Callable[..., bool], CodeType | None, bool]
_log = logging.getLogger("intarsia.dispatch")


def disable(function: _F) -> _F:
    """Return a function that runs natively, with all it calls, inside a compiled region too.

    Raises:
        InvalidArgumentError: `function` can't be called.
    """
    _check_callable(function)
    wrapper = framehook.Hooked(unwrapped(function), None)
    functools.update_wrapper(wrapper, function)
    vars(wrapper)["_intarsia_disable"] = True  # a tracer that inlines calls stops at the mark
    return cast(_F, wrapper)


class Dispatcher:
    """Compiles the frames of the functions it is given, as they are called, and chooses among their versions.

    Any thread may call and compile. It keeps no function alive: versions die with the code object they stand in for.

    Args:
        config: The passes and the policy.

    Raises:
        InvalidArgumentError: The recompile limit is negative.
    """

    def __init__(self, config: DispatchConfig) -> None:
        _check(config)
        self._config = config
        self._table = CodeTable(owner=object())
        self._counts = Counters(DispatchStats, as_fallbacks(config.count))
        self._outcomes = Outcomes(config, self._counts)
        # code of the functions that were given to `compile`: of these, people expect that something is compiled; and of
        # what resumes them after a break as long as nothing was, with the number of graphs until then
        self._roots: dict[int, tuple[weakref.ref[CodeType], int | None]] = {}
        # the number of graphs when a root had none of its own, and what runs when an operation that raised while
        # tracing did not in eager
        self._bare: int | None = None
        self._after_raise: dict[int, tuple[weakref.ref[CodeType], int, GraphBreak]] = {}
        # entries of this owner must not outlive it in functions that do
        weakref.finalize(self, self._table.clear).atexit = False

    def compile(self, function: _F, *, varying: bool = False) -> _F:
        """Return a function that behaves as `function` and runs its frames compiled.

        A running debugger sees the function as written: while one traces the thread, nothing is replaced.

        Args:
            function: Any callable.
            varying: Its sizes are expected to vary: unless `dynamic` is False, they are symbols from the first call on.

        Raises:
            InvalidArgumentError: `function` can't be called.
        """
        _check_callable(function)
        target = unwrapped(function)
        objects = root_codes(target)
        if objects and objects[0].co_flags & _SUSPENDS:
            return cast(_F, functools.wraps(target)(self._in_eager(target, objects[0])))
        # without code of its own, or with a library's that the hook passes over, its call is the frame
        needs_frame = has_hooks(target) or not objects or self._config.skip_code(objects[0])
        run = call_of(target) if needs_frame else target
        roots = (*objects, run.__code__) if needs_frame else objects
        self._roots.update((id(code), (weakref.ref(code), None)) for code in roots)
        answer = functools.partial(self._answer, varying=True) if varying else self._answer
        root = framehook.Hooked(run, answer, self._table.owner, skipping.debugger_active)
        functools.update_wrapper(root, target)
        vars(root)["_intarsia_compiled"] = True  # a tracer goes on with what is wrapped
        return cast(_F, root)

    def _in_eager(self, function: _F, code: CodeType) -> _F:
        """Return a function that says at its first call why its frames aren't compiled."""
        error = UnsupportedError(
            f"{code.co_qualname} is a generator function or coroutine, whose frames aren't compiled",
            code="dispatch.frame",
            where=(first_line(code),),
            hints=("compile the functions that it calls",),
        )

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._config.policy.fullgraph:
                raise error
            with self._config.lock:
                state = self._table.find(code) or self._see(code)
                if not state.eager:
                    self._outcomes.failed(code, state, error, "capturing")
            return function(*args, **kwargs)

        return cast(_F, call)

    def compiled_code(self, function: Callable[..., Any]) -> tuple[CodeType, ...]:
        """Return the replacements of a function's code, or of a module's call, in the order they were compiled."""
        target = without_wrapper(unwrapped(function))
        functions = [target]
        if isinstance(target, torch.nn.Module):  # one that was compiled in place has its call replaced
            functions = [target.forward, unwrapped(target._compiled_call_impl or target.forward)]
        codes = dict.fromkeys(getattr(one, "__func__", one).__code__ for one in functions)
        states = filter(None, map(self._table.find, codes))
        return tuple(v.code for state in states for v in state.versions if v.code is not None)

    def stats(self) -> DispatchStats:
        """Return the counts since the dispatcher was made or reset."""
        return self._counts.snapshot()

    def after_fork(self) -> None:
        """For a forked process: make new what a thread of the parent may have held; the compile lock is its owner's."""
        self._counts.after_fork()

    def reset(self) -> None:
        """Forget every version and zero the counts; roots stay usable and compile anew."""
        with self._config.lock:
            self._table.clear()
            self._counts.reset()

    # ---- one frame ---------------------------------------------------------------------------------------------

    def _answer(self, code: CodeType, frame: FrameInfo, varying: bool = False) -> _Answer:
        """The callback of the frame hook, which is paused in this thread meanwhile."""
        try:
            return self._fitting(code, frame, varying)
        except RecursionError as error:  # so little stack is left that nothing can be said, nor remembered
            if self._config.policy.raises(error):
                return self._config.raise_inside(code, error)
            self._counts.add(fallbacks=1)
            return False
        except BaseException as error:  # what resumes a frame is in the middle of the user's `with` and `try`
            return self._config.raise_inside(code, error)

    def _fitting(self, code: CodeType, frame: FrameInfo, varying: bool) -> _Answer:
        if skipping.is_repeated_later(code):
            reason = "what it calls is run again in the backward pass, and both runs must be alike"
            self._outcomes.native(code, None, reason)
            framehook.quiet(code)
            return None
        if skipping.is_import(code) or skipping.is_opaque(code):
            framehook.quiet(code)
            return None
        if self._config.skip_code(code):
            marks = vars(frame.function)
            if "_torchdynamo_disable" not in marks:
                framehook.skip(code)
                return None
            # a library's wrapper, whose code all marked functions share: what it means is theirs, and not the code's
            deep = marks.get("_torchdynamo_disable_recursive", True)
            by_torch = (frame.function.__module__ or "").startswith("torch.")  # for its own compiler
            return ... if deep and not by_torch else False
        watcher = observer(tuple(frame.locals.values()))
        if watcher:  # it is shown what eager shows it
            self._outcomes.observed(code, watcher, self._state_under_a_mode(code))
            return ...
        asked = as_called()
        choose = self._choose if framehook.alone() else torch.compiler.disable(self._choose)
        with self._config.lock, held_back(), some_working_directory(), hidden_from_user(), deep_stack():
            return choose(code, frame, varying, asked)  # by itself: another compiler beneath would compile this one

    def _choose(self, code: CodeType, frame: FrameInfo, varying: bool, asked: AsCalled) -> _Answer:
        state = self._table.find(code) or self._see(code)
        state.as_called = asked
        values = framehook.frame_values(code, frame)
        try:
            if frame.error is not None:
                raise frame.error
            with asked():
                for version in state.versions:
                    if version.holds(values, frame):
                        return _again(code, version)
            reason = state.versions[-1].why_not(frame) if state.versions else ""
        except Exception as error:
            self._guard_failed(code, state, error)
            return None
        if len(state.versions) >= self._config.recompile_limit:
            return self._limit_reached(code, state, frame, reason)
        return self._compile(code, frame, state, values, reason, varying)

    def _state_under_a_mode(self, code: CodeType) -> CodeState | None:
        """Return the state of the function that code is of, where a mode of the program's is on; None: no such mode."""
        mode = dispatch_mode(of_torch=False)
        function = self._table.function_of(code)
        if mode is None or skipping.is_code_of(type(mode), function):
            return None
        with self._config.lock:
            return self._table.find(function) or self._see(function)

    def _see(self, code: CodeType) -> CodeState:
        self._counts.add(frames_seen=1)
        return self._table.add(code)

    def _compile(
        self, code: CodeType, frame: FrameInfo, state: CodeState, values: tuple[Any, ...], reason: str, varying: bool
    ) -> _Answer:
        # what a compilation makes lives until it ends: looking for cycles in it takes a tenth of its time
        collects = gc.isenabled()
        try:
            gc.disable()
            return self._compile_version(code, frame, state, values, reason, varying)
        finally:
            if collects:
                gc.enable()

    def _compile_version(
        self, code: CodeType, frame: FrameInfo, state: CodeState, values: tuple[Any, ...], reason: str, varying: bool
    ) -> _Answer:
        dynamic = self._dynamic(state, frame, varying)
        try:
            compiled = self._version(code, frame, state, values, dynamic)
        except _CannotHaveSymbols as refused:
            state.static = True
            reason = f"{reason} (with sizes as symbols: {refused.__cause__}; compiled for constants)"
        if dynamic is not False and state.static:  # out of the handler: captures ask what is being handled
            compiled = self._version(code, frame, state, values, False)
        if compiled is None:
            return self._checked_afterwards(code, state)
        version, capture = compiled
        again = state.is_compiled()
        state.versions.append(version)
        if version.code is not None:
            self._counts.add(frames_compiled=1, recompiles=again)
            kind = EventKind.RECOMPILED if again else EventKind.COMPILED
            self._outcomes.tell(FrameEvent(kind, code.co_qualname, first_line(code), reason, capture))
        return version.guard.predicate, version.code, version.guard.wants_globals

    def _dynamic(self, state: CodeState, frame: FrameInfo, varying: bool) -> bool | Symbolic:
        """Return which sizes and numbers are symbols this time."""
        if state.static or self._config.dynamic is False:
            return False
        # the first compilation is static, whatever ran as it is before, unless sizes are expected to vary
        for version in state.versions if len(state.versions) > 1 or state.is_compiled() else ():
            state.symbolic |= version.guard.changed(frame.locals, frame.globals)
        # of numbers that are no arguments, such as a module's, not all are symbols at once in any case
        return Symbolic(every=True) | state.symbolic if self._config.dynamic or varying else state.symbolic

    def _version(
        self, code: CodeType, frame: FrameInfo, state: CodeState, values: tuple[Any, ...], dynamic: bool | Symbolic
    ) -> tuple[Version, Capture] | None:
        """Compile; None when the frame is to run natively.

        Raises:
            _CannotHaveSymbols: It has symbols, and can't be compiled.
        """
        capture = self._capture(code, frame, state, dynamic)
        if capture is None:
            return None
        try:
            return self._build(code, frame, state, values, capture), capture
        except Exception as error:
            has_symbols = capture.facts.symbols or capture.facts.ranges  # the second: of sizes that depend on data
            if dynamic is not False and has_symbols and _is_refusal(error):
                raise _CannotHaveSymbols from error
            self._outcomes.failed(code, state, error, "compiling")
            return None

    def _capture(self, code: CodeType, frame: FrameInfo, state: CodeState, dynamic: bool | Symbolic) -> Capture | None:
        """Return what to compile; None when the frame is to run natively."""
        if skipping.calls_debugger(code):
            self._outcomes.native(code, None, "it stops in a debugger")
            return None
        fullgraph = self._config.policy.fullgraph
        number = self._counts.snapshot().graphs
        try:
            with state.as_called():
                capture = self._config.capture(code, frame, fullgraph=fullgraph, number=number, dynamic=dynamic)
        except Exception as error:
            if fullgraph and isinstance(error, UnsupportedError):
                raise
            if dynamic and _is_refusal(error):
                raise _CannotHaveSymbols from error
            self._outcomes.failed(code, state, error, "capturing")
            return None
        # an operation that raised on fake tensors raises in eager too, as the program's own; else it is told after that
        if fullgraph and capture.breaks and capture.breaks[0].code not in (codes.RAISED, codes.OPERATION_RAISED):
            raise break_error(code, capture.breaks, "fullgraph, but capture ended early")
        if capture.graph_module is None and not self._may_run(code, state, capture):
            return None
        # without guards it runs as it is whatever comes, and nothing needs to be asked again
        return capture if capture.code.code is not code or capture.guards else None

    def _build(
        self, code: CodeType, frame: FrameInfo, state: CodeState, values: tuple[Any, ...], capture: Capture
    ) -> Version:
        config = self._config
        graph: CompiledGraph | None = None
        if capture.graph_module is not None:
            with without_function_modes(), torch._C._EnableTorchFunction():  # a backend may trace by it
                run = config.compile_graph(capture, frame)
            graph = run if isinstance(run, CompiledGraph) else CompiledGraph(run)
            self._counts.add(graphs=1)
        new_code = None
        if capture.code.code is not code:  # what resumes a frame in the same way has its versions already
            same = [version.code for version in state.versions if version.is_replaced_as_by(capture.code)]
            has_raised = capture.breaks and capture.breaks[0].code == codes.OPERATION_RAISED
            new_code = same[0] if same and not has_raised else self._link(code, capture, graph)
        if new_code is not None and not framehook.fits(code, new_code):
            raise InternalError(
                f"the replacement of {code.co_qualname} has other parameters or free variables",
                code="dispatch.replacement",
                where=(first_line(code),),
            )
        guard = config.build_guards(code, frame, capture, graph)
        version = Version(guard, new_code, id(frame.globals), graph is not None, capture.code)
        with state.as_called():
            holds = version.holds(values, frame)
        if not holds:
            raise InternalError(
                f"guards of {code.co_qualname} don't hold for the very call they were made from: "
                f"{version.why_not(frame)}",
                code="dispatch.guard",
                where=(first_line(code),),
            )
        return version

    def _link(self, code: CodeType, capture: Capture, graph: CompiledGraph | None) -> CodeType:
        """Fill the holes: resume functions with their own linked code, helpers by name, the graph in what is left."""
        on_fault, on_return = _fault_tellers(weakref.ref(self), code)
        moded = any(isinstance(guard, TorchModesGuard) and guard.modes for guard in capture.guards)
        caller = graph_caller(graph, on_fault, on_return, capture.code.undo, hidden=moded) if graph else None
        return self._filled(capture.code, code, capture, caller)

    def _filled(self, linkable: LinkableCode, code: CodeType, capture: Capture, caller: object) -> CodeType:
        """Return linkable code with its holes filled; `code` is what it replaces."""
        linkable = self._with_shared(linkable, code)
        holes: dict[str, object] = {}
        for name in linkable.holes:
            if name in linkable.resumes:
                holes[name] = self._filled(linkable.resumes[name], code, capture, caller)
            elif name in self._config.helpers:
                holes[name] = self._config.helpers[name]
            elif caller is not None:
                holes[name] = caller
            else:
                raise InternalError(
                    f"the replacement of {code.co_qualname} has a hole {name} that nothing fills",
                    code="dispatch.hole",
                    where=(first_line(code),),
                )
        if capture.breaks and (caller is None or self._config.policy.fullgraph):
            rest = [holes.get(n, getattr(r, "code", r)) for n, r in linkable.resumes.items()]
            self._goes_on(code, capture, [cast(CodeType, r) for r in rest])
        return self._config.link(linkable, holes)

    def _with_shared(self, linkable: LinkableCode, code: CodeType) -> LinkableCode:
        """Return code that calls the resume functions that were there before for the same places."""
        unlinked = {n: r for n, r in linkable.resumes.items() if isinstance(r, CodeType) and n not in linkable.holes}
        shared = {id(r): self._table.shared(r, code) for r in unlinked.values()}
        if all(id(r) == before for before, r in shared.items()):
            return linkable
        consts = tuple(shared.get(id(c), c) for c in linkable.code.co_consts)
        resumes = {**linkable.resumes, **{n: shared[id(r)] for n, r in unlinked.items()}}
        return replace(linkable, code=linkable.code.replace(co_consts=consts), resumes=resumes)

    def _goes_on(self, code: CodeType, capture: Capture, resumes: Sequence[CodeType]) -> None:
        """Resume functions of a frame without a graph: they are to have one; of a whole one, they aren't to run."""
        graphs = self._counts.snapshot().graphs
        if self._is_root(code):
            self._roots.update((id(r), (weakref.ref(r), graphs)) for r in resumes)
        if (self._config.policy.fullgraph or self._bare == graphs) and capture.breaks[0].code == codes.OPERATION_RAISED:
            self._after_raise.update((id(r), (weakref.ref(r), graphs, capture.breaks[0])) for r in resumes)

    # ---- not compiled ------------------------------------------------------------------------------------------

    def _is_root(self, code: CodeType) -> bool:
        """Whether code was asked for, or goes on with what was, and nothing was compiled for it yet."""
        ref, graphs = self._roots.get(id(code), (None, None))
        return ref is not None and ref() is code and graphs in (None, self._counts.snapshot().graphs)

    def _may_run(self, code: CodeType, state: CodeState, capture: Capture) -> bool:
        """Whether a frame of which nothing was captured may run as it is, or with resume functions.

        A break in a callee is no news: the callee's own frame is captured next. One that leaves nothing of what was
        to be compiled is a failure.
        """
        broken = capture.breaks[0] if capture.breaks else None
        complaint = self._raised_only_while_tracing(code)
        missed = broken if self._is_root(code) else None
        if missed is not None:
            self._bare = self._counts.snapshot().graphs
        if capture.code.code is not code:
            return True
        if missed is not None and missed.code not in _WANTED_BREAKS and not (state.hands_on or self._hands_on(missed)):
            if complaint is None and is_call(code):
                state.passed_on = missed
                return False
            complaint = complaint or missed
        if broken is not None and broken.code == codes.TOO_DEEP:  # of the callees too
            complaint = broken
        if complaint is not None:
            self._outcomes.failed(
                code, state, break_error(code, (complaint,), "nothing could be captured"), "capturing", capture
            )
            return False
        if broken is not None:
            self._outcomes.left_to_eager(state)
        self._outcomes.native(code, capture, broken.reason if broken is not None else "no tensor work")
        return True

    def _checked_afterwards(self, code: CodeType, state: CodeState) -> CodeType | None:
        """Return code for a call through a library that asks in the end whether anything in it was compiled.

        Such is the call of an object that wraps a module. If nothing was, that is a failure. None: nobody asks.
        """
        missed, state.passed_on = state.passed_on, None
        if missed is None or state.warned:
            return None
        before, dispatcher_ref, code_ref = self._counts.snapshot().graphs, weakref.ref(self), weakref.ref(code)

        def after() -> None:
            dispatcher, called = dispatcher_ref(), code_ref()
            if dispatcher is None or called is None:
                return
            state.hands_on = dispatcher._counts.snapshot().graphs > before
            if not state.hands_on:
                error = break_error(called, (missed,), "nothing could be captured")
                dispatcher._outcomes.failed(called, state, error, "capturing")

        return call_then(code, framehook.Hooked(after, None))  # none of its frames is a part of the program

    def _hands_on(self, broken: GraphBreak) -> bool:
        """Whether the break is in a call whose frame will be asked about: of that, now, something is to be compiled."""
        for callee in broken.callees:
            # a generator isn't offered, and a comprehension never captured by itself
            comprehension = callee.co_varnames[:1] == (".0",)
            if not (comprehension or callee.co_flags & _SUSPENDS or self._config.skip_code(callee)):
                ref, graphs = self._roots.get(id(callee), (None, 0))
                if ref is None or ref() is not callee or graphs is not None:  # else it was asked for itself
                    self._roots[id(callee)] = weakref.ref(callee), self._counts.snapshot().graphs
                return True
        return False

    def _raised_only_while_tracing(self, code: CodeType) -> GraphBreak | None:
        """The break before a resume function, when it was an operation that raised on fake tensors.

        That the resume function runs shows that it did not raise in eager.
        """
        ref, graphs, broken = self._after_raise.get(id(code), (None, 0, None))
        return broken if ref is not None and ref() is code and graphs == self._counts.snapshot().graphs else None

    def _guard_failed(self, code: CodeType, state: CodeState, error: Exception) -> None:
        """A guard raised: its versions can't be trusted any more."""
        framehook.reset(code, self._table.owner)
        state.versions.clear()
        self._outcomes.failed(code, state, error, "checking guards of")

    def _limit_reached(self, code: CodeType, state: CodeState, frame: FrameInfo, reason: str) -> _Answer:
        """No version fits, and there are to be no more: the frame runs as written from now on.

        Nothing is lost, and nobody told, where its versions have no graph before their breaks, nor by what torch calls
        for operations one by one.
        """
        if skipping.is_handler(code):
            framehook.reset(code, self._table.owner)
            self._outcomes.native(code, None, "it is called for each operation, with another one each time")
            return None
        loose = [v.code for v in state.versions if v.captured.verbatim and v.code is not None]
        graphs = self._table.has_graph(code)
        if state.versions and not any(v.graph for v in state.versions) and (loose or not graphs):
            framehook.reset(code, self._table.owner)  # it is asked no more, and pays for no guards
            what = "before its break" if graphs else "of it"
            self._outcomes.native(code, None, f"no tensor work in {len(state.versions)} versions {what}")
            return (framehook.always, loose[-1], False) if graphs else None
        self._outcomes.limit_reached(code, state, frame, reason)
        return None


class _CannotHaveSymbols(Exception):  # noqa: N818  (control flow inside this file)
    """What was captured with symbols is captured again with constants."""


# after these nobody misses a graph: it was asked for, eager has an error of its own to tell, or an object is to end
_WANTED_BREAKS = (
    codes.RAISED,
    codes.OPERATION_RAISED,
    codes.REQUESTED,
    codes.DISABLED,
    codes.REPEATED,
    codes.LIFETIME,
)
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def _again(code: CodeType, version: Version) -> _Answer:
    """Answer with a version that is there: another thread made it while this one waited.

    Or the call that made it was interrupted before the frame hook had the answer.
    """
    guard = version.guard
    if any(entry is not None and entry[0] is guard.predicate for entry in framehook.entries(code) or ()):
        return version.code or False
    return guard.predicate, version.code, guard.wants_globals


def _is_refusal(error: Exception) -> bool:
    """Tell whether an error says that something can't be compiled, or isn't known."""
    return isinstance(error, UnsupportedError | NeedsFact)


def _check_callable(function: object) -> None:
    if not callable(function):
        raise InvalidArgumentError(f"a callable is needed, not {function!r}", code="dispatch.callable")


def _check(config: DispatchConfig) -> None:
    if config.recompile_limit < 0:
        raise InvalidArgumentError(
            f"recompile_limit must not be negative: {config.recompile_limit}", code="dispatch.recompile_limit"
        )


def _fault_tellers(
    dispatcher: weakref.ref[Dispatcher], code: CodeType
) -> tuple[Callable[[RuntimeFault], None], Callable[[RuntimeFault], None]]:
    """Return what a graph's faults are told to, and those that were the compiler's.

    Both live in a constant of a code object, so they keep nothing alive.
    """
    code_ref = weakref.ref(code)

    def on_fault(fault: RuntimeFault) -> None:
        target, faulty = dispatcher(), code_ref()
        if target is not None and faulty is not None:
            target._outcomes.faulted(faulty, fault)

    def on_return(fault: RuntimeFault) -> None:
        target, faulty = dispatcher(), code_ref()
        if target is not None and faulty is not None:
            state = target._table.find(faulty) or target._table.add(faulty)
            target._outcomes.compilers_fault(faulty, state, fault)

    return on_fault, on_return
