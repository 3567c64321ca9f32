"""Building guard sets: records and size facts in, one predicate for a frame or for a call out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import CodeType
from typing import Any, NamedTuple

from intarsia_guards import explain as explaining
from intarsia_guards.codegen import write
from intarsia_guards.explain import GuardFailure
from intarsia_guards.frame import Frame, bind, parameter_names
from intarsia_guards.held import Held, hold
from intarsia_guards.kinds import ROWS
from intarsia_guards.kinds.sizes import HeldSize, size_guards
from intarsia_guards.layout import Layout, order
from intarsia_guards.native import assemble, extension
from intarsia_guards.rows import HeldGuard
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import GuardKind, GuardRecord, SizeFacts

__all__ = ["FrameCheck", "GuardSet", "build_guards"]


def build_guards(
    records: Iterable[GuardRecord],
    facts: SizeFacts | None = None,
    *,
    function: Callable[..., Any] | None = None,
    without: Set[GuardKind] = frozenset(),
    native: bool | None = None,
) -> GuardSet:
    """Return the guards of one capture.

    Args:
        records: What the capture relied on; objects in them are held weakly from here on, where they allow it.
        facts: Size facts of the capture and of every later stage, joined.
        function: What was captured; `check` binds arguments by its signature. It is held weakly.
        without: Kinds of guards to leave out, for tests alone: a guard set that accepts calls it must not accept, to
            show that a kind matters. Without `GuardKind.SIZE`, facts and ranges of sizes are left out too.
        native: Whether the check is native code or a generated Python function; None: native where the extension is
            built, else Python, with one warning in the log `intarsia.guards`.

    Raises:
        InvalidArgumentError: A relation or a source can't be understood; or a native check is asked for, and the
            extension isn't there.

    Example:
        >>> from intarsia_ir import ArgumentSource
        >>> from intarsia_ir.guards import ConstantGuard
        >>> def f(x, flag=True): ...
        >>> guards = build_guards([ConstantGuard(ArgumentSource("flag"), True)], function=f)
        >>> guards.check((1,)), guards.check((1, False)), guards.check((1, 1))
        (True, False, False)
        >>> print(guards.explain_failure((1, False)))
        guard failed (constant): flag was True, now it is False
          remedy: keep flag fixed, or accept one entry for each of its values
    """
    held = [ROWS[type(record)].of(record) for record in records if record.kind not in without]
    facts = facts if facts is not None and GuardKind.SIZE not in without else SizeFacts()
    sizes = size_guards(facts, [guard for guard in held if isinstance(guard, HeldSize)])
    values = order([guard for guard in held if not isinstance(guard, HeldSize)])
    # sizes speak about tensors anywhere: every tensor has been checked before them
    return GuardSet((*values, *sizes), function, _choose(native))


def _choose(native: bool | None) -> Any:
    """Return the extension when it is to be used, else None."""
    native_module = extension() if native is not False else None
    if native and native_module is None:
        raise InvalidArgumentError(
            "the extension of intarsia_guards isn't there",
            code="guards.native",
            hints=("run `python -m intarsia_guards.build` once; it needs a C compiler",),
        )
    return native_module


class FrameCheck(NamedTuple):
    """A predicate over the values of a frame.

    Args:
        check: Takes the parameters of the code (plain, keyword-only, `*args`, `**kwargs`), then the contents of its
            free variables, then its globals when `wants_globals`; all positional.
        wants_globals: Whether it takes the globals.
    """

    check: Callable[..., bool]
    wants_globals: bool


class GuardSet:
    """Everything that one capture relied on. Immutable; made by `build_guards`."""

    __slots__ = ("_by_layout", "_function", "_guards", "_native")

    def __init__(
        self,
        guards: tuple[HeldGuard[Any], ...],
        function: Callable[..., Any] | None,
        native: Any = None,
    ) -> None:
        self._guards = guards
        self._function = _hold_function(function)
        self._native = native
        self._by_layout: dict[Layout, FrameCheck] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def check(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> bool:
        """Tell whether the capture is valid for a call of the captured function with these arguments.

        Arguments that don't fit its signature aren't valid for it.
        """
        try:
            frame = self._bind(args, kwargs)
        except TypeError:
            return False
        layout = Layout(tuple(frame.arguments), tuple(frame.cells))
        check, wants_globals = self._check(layout)
        values = [*frame.arguments.values(), *frame.cells.values()]
        return bool(check(*values, *([frame.globals] if wants_globals else [])))

    def explain_failure(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> str | None:
        """Return which guard fails for a call, what it held, what it is now, and the remedy; None when all hold."""
        failure = self.first_failure(args, kwargs)
        return None if failure is None else explaining.explain(failure)

    def first_failure(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> GuardFailure | None:
        """Return the guard that fails first for a call, as a record; None when all hold."""
        return self._first_failure(self._bind(args, kwargs))

    def frame_check(self, code: CodeType) -> FrameCheck:
        """Return the predicate for frames of `code`, as the frame hook calls it.

        Args:
            code: The captured code object.

        Raises:
            InvalidArgumentError: A guard looks at a parameter or free variable that `code` hasn't.
        """
        return self._check(Layout(parameter_names(code), code.co_freevars))

    def frame_failure(self, values: Mapping[str, Any], globals: Mapping[str, Any]) -> GuardFailure | None:
        """Return the guard that fails first for a frame; None when all hold.

        Args:
            values: Parameter or free variable -> value.
            globals: The globals of the frame.
        """
        if any(self._holds(layout, values, globals) for layout in self._by_layout):
            return None
        return self._first_failure(Frame(values, values, globals))

    def explain_frame(self, values: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
        """Return the text for `frame_failure`; None when all guards hold."""
        failure = self.frame_failure(values, globals)
        return None if failure is None else explaining.explain(failure)

    def text(self, code: CodeType) -> str:
        """Return the predicate for frames of `code` as Python, to read; the native check does the same."""
        return write(self._guards, Layout(parameter_names(code), code.co_freevars)).text

    def _check(self, layout: Layout) -> FrameCheck:
        frame_check = self._by_layout.get(layout)
        if frame_check is None:
            if self._native is not None:
                frame_check = FrameCheck(*assemble(self._native, self._guards, layout))
            else:
                predicate = write(self._guards, layout)
                frame_check = FrameCheck(predicate.function, predicate.wants_globals)
            self._by_layout[layout] = frame_check
        return frame_check

    def _holds(self, layout: Layout, values: Mapping[str, Any], globals: Mapping[str, Any]) -> bool:
        """Whether a check that is there already says that all guards hold: telling it one by one takes long."""
        names = (*layout.arguments, *layout.cells)
        check, wants_globals = self._by_layout[layout]
        has_all = all(name in values for name in names)
        return has_all and bool(check(*(values[name] for name in names), *([globals] if wants_globals else [])))

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Frame:
        if self._function is None:
            if args:
                raise InvalidArgumentError(
                    "positional arguments can't be named without the function",
                    code="guards.function",
                    hints=("give it: build_guards(records, facts, function=...)", "or pass keyword arguments"),
                )
            return Frame(dict(kwargs or {}))
        function = self._function()
        if function is None:
            raise TypeError("the captured function no longer exists")
        return bind(function, args, kwargs or {})

    def _first_failure(self, frame: Frame) -> GuardFailure | None:
        return explaining.first_failure(self._guards, frame)


def _hold_function(function: Any) -> Callable[[], Any] | None:
    if function is None:
        return None
    if hasattr(function, "__func__"):
        # a bound method is made anew at each access: a plain reference to it would be dead at once
        return weakref.WeakMethod(function)
    held: Held[Any] = hold(function)
    return held.reference if held.reference is not None else held.get
