"""The two ways in: `capture` for a call that somebody describes, `capture_frame` for a frame about to run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType
from typing import Any, NoReturn, Protocol, TypedDict, Unpack

from intarsia_bytecode import asks_for_locals, info_of, reads_own_frame, runs_text
from intarsia_ir import codes
from intarsia_ir.errors import IntarsiaError, InternalError, InvalidArgumentError, UnsupportedError
from intarsia_ir.records import Capture, GraphBreak, LinkableCode, Origin, Signature, Symbolic
from intarsia_ir.stack import deep_stack, frames_below
from intarsia_pyeval.arguments import frame_of_call
from intarsia_pyeval.assemble import assemble_break, assemble_native, assemble_return
from intarsia_pyeval.breaks import Break, Foreclosed, NeedsSymbols, Raised, Stop, Unreconstructable, Whole, graph_break
from intarsia_pyeval.evaluate import EvaluatedFrame, Pending, close_dropped
from intarsia_pyeval.extension import Graph, Symbols
from intarsia_pyeval.opcodes import table
from intarsia_pyeval.rules import CALLABLES
from intarsia_pyeval.state.frames import Limits
from intarsia_pyeval.tracer import Extension, ExtensionMaker, Tracer
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.functions import Cell, Globals
from intarsia_pyeval.wrapping import Models

__all__ = ["Frame", "FrameInfo", "Options", "capture", "capture_frame"]


class Frame(Protocol):
    """A frame that is about to run, as the frame hook describes it (its `FrameInfo` fits)."""

    @property
    def globals(self) -> dict[str, Any]:
        """The global namespace."""

    @property
    def closure(self) -> tuple[CellType, ...] | None:
        """The cells of the free variables, in the order of `co_freevars`; None or empty when there are none."""

    @property
    def locals(self) -> Mapping[str, Any]:
        """The arguments by parameter name."""

    @property
    def function(self) -> FunctionType | None:
        """The function whose body runs."""


@dataclass(frozen=True, slots=True)
class FrameInfo:
    """A `Frame` made by hand.

    Args:
        globals: The global namespace.
        closure: The cells of the free variables, in the order of `co_freevars`.
        locals: The arguments by parameter name, `*args` and `**kwargs` under their own names.
        function: The function whose body runs, when known.
    """

    globals: dict[str, Any]
    closure: tuple[CellType, ...] | None = None
    locals: Mapping[str, Any] = field(default_factory=dict)
    function: FunctionType | None = None


class Options(TypedDict, total=False):
    """How a call or frame is captured; what isn't given has its default.

    Args:
        fullgraph: Raise instead of breaking, but where the program itself seems to raise. Default: False.
        number: Number in the name of the graph's hole, `__compiled_fn_<number>`. Default: 0.
        extension: Makes the plug-in of value models. Default: `Extension`, which has none.
        limits: How far one capture goes. Default: `Limits()`.
        force: Make replacement code even where there is nothing to compile; for tests of that code. Default: False.
        dynamic: Which sizes and numbers are symbols: those of a `Symbolic` and those that the user marked; None: the
            marked ones; True: all of them; False: none. Default: None.
    """

    fullgraph: bool
    number: int
    extension: ExtensionMaker
    limits: Limits
    force: bool
    dynamic: bool | Symbolic | None


def capture(
    fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[Options]
) -> Capture:
    """Trace the call `fn(*args, **kwargs)` without running it or installing anything.

    Args:
        fn: A Python function, a bound method, or an object whose class has a Python `__call__` (such as a module).
        args: Positional arguments.
        kwargs: Keyword arguments.
        options: See `Options`.

    Returns:
        What was learned; `code` replaces the code of the function whose frame was traced.

    Raises:
        UnsupportedError: `fullgraph`, and something can't be captured.
        InvalidArgumentError: `fn` doesn't lead to a Python function.
    """
    code, frame = frame_of_call(fn, tuple(args), dict(kwargs or {}))
    return capture_frame(code, FrameInfo(*frame), **options)


def capture_frame(code: CodeType, frame: Frame, **options: Unpack[Options]) -> Capture:
    """Trace a frame that is about to run.

    Args:
        code: The code of the frame.
        frame: Its globals, closure cells, arguments and function.
        options: See `Options`.

    Returns:
        What was learned. `code` has the parameters and free variables of the original, so it can run in the same
        frame. When nothing can be gained, `graph_module` is None and `code.code` is the very code that was given:
        run the frame natively, as long as the guards hold (always, when there are none). When `graph_module` is None
        and `code.code` is other code, there was nothing to compile before the first break, but the code calls a
        resume function worth capturing: install it.

    Raises:
        UnsupportedError: `fullgraph`, and something can't be captured.
        InvalidArgumentError: There is no such option.
        InternalError: The tracer itself is at fault.
    """
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"there is no option {min(unknown)!r}", code="tracer.option")
    try:
        with deep_stack() as limit:
            room = limit - frames_below(sys._getframe())
            capture = Attempts(code, frame, options, room).run()
    except IntarsiaError:
        raise
    except RecursionError:  # even the code that answers the others had too little stack
        capture = _left_alone(code, "tracer.depth", "the recursion limit is too near to trace anything")
    except MemoryError:  # the program asks for too much, and eager says so
        capture = _left_alone(code, "tracer.exception", "a MemoryError is raised while tracing")
    except Exception as error:
        where = Origin(code.co_filename, code.co_firstlineno, code.co_qualname)
        what = f"tracing {code.co_qualname} failed: {type(error).__name__}: {error}"
        raise InternalError(what, code="tracer.internal", where=(where,)) from error
    # what raised while tracing raises in eager as well, after what comes before it, as the program's own error
    fullgraph = options.get("fullgraph", False)
    if fullgraph and capture.breaks and capture.breaks[0].code not in (codes.RAISED, codes.OPERATION_RAISED):
        _refuse(capture.breaks[0])
    return capture


def _left_alone(code: CodeType, kind: str, reason: str) -> Capture:
    """Return that the frame runs as it is: there is too little of what tracing needs."""
    where = Origin(code.co_filename, code.co_firstlineno, code.co_qualname)
    broken = graph_break(kind, reason, where)
    return Capture(None, Signature(), (), (), LinkableCode(code), (broken,))


def _refuse(broken: GraphBreak) -> NoReturn:
    """Raise for a break that the caller doesn't want."""
    where = (broken.origin,) if broken.origin else ()
    hints = (broken.remedy,) if broken.remedy else ()
    raise UnsupportedError(broken.reason, code=broken.code, where=where, hints=hints)


class Attempts:
    """Traces a frame until a way through is found.

    A break that happens in the middle of an instruction, after something was changed or recorded, can't be undone.
    The frame is then traced again, up to that instruction: tracing has no effects, so it comes there in the same way.
    """

    def __init__(self, code: CodeType, frame: Frame, options: Options, room: int) -> None:
        dynamic = options.get("dynamic")
        self.code = code
        self.frame = frame
        self.number = options.get("number", 0)
        self.hole = f"__compiled_fn_{self.number}"
        self.extension = options.get("extension", Extension)
        self.limits = options.get("limits", Limits())
        self.force = options.get("force", False)
        self.symbolic = dynamic if isinstance(dynamic, Symbolic) else Symbolic(every=bool(dynamic))
        self.symbols = bool(self.symbolic)
        self.marks = dynamic is not False
        self.room = room
        self.stop_at = -1
        self.closed: frozenset[int] = frozenset()  # steps that leave nothing open
        self.as_native = False  # it is told what it is told where it runs as it is
        self.asked_caller = False  # where it broke, an exception that the caller handles was asked for
        self.broken: GraphBreak | None = None

    def run(self) -> Capture:
        """Trace, again while an attempt only finds out where to stop."""
        refused = self._refused()
        if refused is not None:
            return self._native(refused)
        if self.code.co_varnames[:1] == (".0",):  # a comprehension of a frame that isn't captured itself
            return self._native(None)
        while True:
            capture = self._attempt()
            if capture is not None:
                return capture

    def _refused(self) -> GraphBreak | None:
        """Return why the frame isn't traced at all."""
        info = info_of(self.code)
        origin = Origin(self.code.co_filename, self.code.co_firstlineno, self.code.co_qualname)
        if info is not None and info.failed:
            return graph_break("tracer.exception", "a check of what the graph gave failed", origin)
        if info is not None and info.native:
            return graph_break("tracer.repeated", "an instruction broke before in this call", origin)
        if self.code.co_flags & _GENERATORS or not self.code.co_flags & inspect.CO_NEWLOCALS:
            return graph_break("tracer.frame", f"{self.code.co_name} is a generator, coroutine or class body", origin)
        if runs_text(self.code):
            return graph_break("tracer.frame", f"{self.code.co_name} may look at its own frame", origin)
        return None

    def _native(self, broken: GraphBreak | None) -> Capture:
        """Return that the frame runs as it is."""
        return Capture(None, Signature(), (), (), LinkableCode(self.code), (broken,) if broken else ())

    def _attempt(self) -> Capture | None:
        """Trace once; None when another attempt must stop earlier."""
        symbols = Symbols(self.symbolic, self.symbols, self.marks)
        tx = Tracer(
            self.extension, Models, CALLABLES, table(), self.limits, symbols, self.stop_at, self.room, self.closed
        )
        try:
            if self.asked_caller:
                tx.raising.ask_caller()
            if self.as_native:
                tx.extension.answer_as_native()
            frame = outermost_frame(tx, self.code, self.frame)
            return self._trace(tx, frame)
        except NeedsSymbols:
            self.symbols = True
            return None
        except Unreconstructable as failed:
            return self._earlier(tx, failed)
        except Foreclosed as foreclosed:
            self.closed |= {foreclosed.step}
            return None
        except RecursionError:
            return self._native(
                graph_break("tracer.depth", "what the frame holds nests too deeply", tx.frames.origin())
            )
        finally:
            self.asked_caller = tx.raising.asked_caller
            tx.forget()

    def _trace(self, tx: Tracer, frame: EvaluatedFrame) -> Capture | None:
        """Evaluate the frame, and make code for how it ended."""
        try:
            value = tx.frames.run_outermost(frame)
            if tx.frames.open_generators:
                frame.stack.clear()
                frame.locals.clear()
                frame.cells.clear()
                close_dropped(tx, None)
        except Stop:
            return self._break(tx, frame)
        except Whole as broken:
            return self._native(
                graph_break(broken.code, broken.reason, broken.origin or tx.frames.origin(), broken.callees)
            )
        except Break as broken:
            ending = graph_break(broken.code, broken.reason, broken.origin or tx.frames.origin(), broken.callees)
        except Raised as raised:
            ending = graph_break("tracer.exception", f"{raised.value.type().__name__} is raised", tx.frames.origin())
            if tx.extension.answers_differ():  # eager, which isn't told that it is compiled, may not raise
                self.as_native = True
                return None
            raised_at = tx.raising.raised_at(raised.value)
            if raised_at is not None:  # handlers let it pass: they run in CPython, from where it was raised
                self.broken = self.broken or ending
                self.stop_at = raised_at
                return None
        except RecursionError:
            return self._native(graph_break("tracer.depth", "the evaluator ran out of stack", tx.frames.origin()))
        else:
            _check_awaited(tx, tx.steps.now + 1)
            tx.extension.before_end(tx)
            linkable, graph = assemble_return(tx, frame, value, self.hole)
            return self._captured(tx, linkable, graph, ())
        self.broken = self.broken or ending
        tx.frames.leave_inlined()
        if not tx.steps.spotless():
            self.stop_at = tx.steps.now
            return None
        return self._break(tx, frame)

    def _break(self, tx: Tracer, frame: EvaluatedFrame) -> Capture | None:
        """Make code for a break before the current instruction."""
        handling = tx.steps.handling
        if handling is not None:  # run the handler in CPython: break where the exception was raised
            raised_at = tx.raising.raised_at(handling)
            assert raised_at is not None
            self.stop_at = raised_at
            return None
        _check_awaited(tx, tx.steps.now)
        frame.stack = tx.steps.stack
        broken = self.broken
        assert broken is not None
        if reads_own_frame(self.code):  # which a resume function isn't
            return self._native(broken)
        if frame.gave_locals is not None and asks_for_locals(self.code) > 1:
            return self._native(broken)  # what is asked for once more is the dict of this frame
        tx.extension.before_end(tx)
        force = self.force or tx.extension.answers_differ()
        if tx.extension.position() == 0 and not force:
            native = assemble_native(frame, self.number, told=self._is_told(frame))
            if native is not None:
                return self._captured(tx, native, None, (broken,))
        linkable, graph = assemble_break(tx, frame, self.hole, self.number)
        if graph is None and not linkable.resumes and not force:
            linkable = LinkableCode(self.code)
        return self._captured(tx, linkable, graph, (broken,))

    def _is_told(self, frame: EvaluatedFrame) -> bool:
        """Tell whether it matters that the instruction was done: it raised while tracing, and may not in eager."""
        assert self.broken is not None
        return self.broken.code == codes.OPERATION_RAISED and _is_in(self.broken, frame.code)

    def _earlier(self, tx: Tracer, failed: Unreconstructable) -> Capture | None:
        """A value can't be built: break where it was made."""
        origin = tx.frames.origin()
        self.broken = self.broken or graph_break("tracer.codegen", failed.reason, origin)
        before = self.stop_at if self.stop_at >= 0 else tx.steps.now + 1
        if 0 <= failed.birth < before:
            self.stop_at = failed.birth
            return None
        return self._native(self.broken)

    def _captured(
        self, tx: Tracer, linkable: LinkableCode, graph: Graph | None, breaks: tuple[GraphBreak, ...]
    ) -> Capture:
        """Return the result; another call may have something to compile, so there always are guards."""
        if graph is None and not breaks and not (self.force or tx.extension.answers_differ()):
            linkable = LinkableCode(self.code)
        tx.identities.guard_aliases()
        tx.lookups.rely()
        guards, facts = tx.guards.records(), tx.extension.facts()
        if graph is None:
            return Capture(None, Signature(), (), guards, linkable, breaks, facts)
        return Capture(graph.module, graph.signature, graph.example_inputs, guards, linkable, breaks, facts)


def _check_awaited(tx: Tracer, now: int) -> None:
    """See that CPython has no coroutine to warn of: one that is never awaited, of those made before a step.

    Raises:
        Unreconstructable: It has: it is made there.
    """
    for coroutine in tx.frames.coroutines:
        if not coroutine.started and not coroutine.finished and coroutine.birth < now:
            raise Unreconstructable("a coroutine that nothing awaited yet", coroutine.birth)


def _is_in(broken: GraphBreak, code: CodeType) -> bool:
    """Tell whether a break is at an instruction of a code object's own, not in what it calls."""
    origin = broken.origin
    return origin is not None and (origin.file, origin.function) == (code.co_filename, code.co_qualname)


def outermost_frame(tx: Tracer, code: CodeType, frame: Frame) -> EvaluatedFrame:
    """Return the captured frame, ready to be evaluated; its arguments are modelled when they are looked at."""
    names = Globals(frame.globals, None, frame=True)
    tx.live.adopt(frame.globals, names)
    cells = []
    for name, real in zip(code.co_freevars, frame.closure or (), strict=True):
        cell = Cell(real=real, source=tx.sources.cell(name), frame_name=name)
        tx.live.adopt(real, cell)
        cells.append(cell)
    arguments = {n: v for n, v in frame.locals.items() if n not in code.co_freevars}  # those are read from their cells
    values: dict[str, Value] = {n: Pending(v, tx.sources.argument(n)) for n, v in arguments.items()}
    return EvaluatedFrame(tx, code, values, names, cells, outermost=True)


_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
