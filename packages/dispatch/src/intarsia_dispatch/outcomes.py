"""What becomes of frames beside being compiled: it is told, counted, and raised or left to eager with one warning."""

from __future__ import annotations

import logging
from types import CodeType
from typing import TYPE_CHECKING

from intarsia_dispatch import reports
from intarsia_dispatch.config import DispatchConfig
from intarsia_dispatch.events import EventKind, FrameEvent
from intarsia_dispatch.recompiles import RecompileLog
from intarsia_dispatch.stats import Counters, DispatchStats
from intarsia_dispatch.versions import CodeState
from intarsia_ir.errors import IntarsiaError, RuntimeFault, UnsupportedError, raised_by
from intarsia_ir.records import Capture

if TYPE_CHECKING:
    from intarsia_framehook import FrameInfo

__all__ = ["Outcomes"]

_log = logging.getLogger("intarsia.dispatch")
_UNDER_A_MODE = (
    "call it outside of the mode, or, for a mode that is to see operations, call the function that was compiled",
    "what rewrites operations can be given to the compiler instead: decompositions=, patterns=, lowerings=",
)


class Outcomes:
    """Answers for frames by the error policy, and tells whoever listens.

    Args:
        config: Its policy, and what is told of events.
        counts: The counts of the dispatcher.
    """

    def __init__(self, config: DispatchConfig, counts: Counters[DispatchStats]) -> None:
        self._config, self._counts = config, counts
        self._recompiles = RecompileLog()

    def native(self, code: CodeType, capture: Capture | None, reason: str) -> None:
        """Tell that a frame runs as written, and why: nothing is wrong."""
        self.tell(FrameEvent(EventKind.NATIVE, code.co_qualname, reports.first_line(code), reason, capture))

    def observed(self, code: CodeType, watcher: str, state: CodeState | None) -> None:
        """Raise, warn once, or only tell that a frame runs as written for what watches its operations.

        Args:
            code: Of the frame.
            watcher: What watches.
            state: Of the function whose code it is, where a dispatch mode of the program's watches. None for tracers
                and transforms of torch's, which take what they are shown for the program: that is no failure.

        Raises:
            UnsupportedError: By the policy, where there is a state; code "dispatch.observed".
        """
        reason = f"{watcher} is active, and sees no operation of compiled code"
        origin = reports.first_line(code)
        if state is not None and self._config.policy.raises():
            raise UnsupportedError(
                f"{code.co_qualname} would run in eager: {reason}",
                code="dispatch.observed",
                where=(origin,),
                hints=_UNDER_A_MODE,
            )
        self.tell(FrameEvent(EventKind.OBSERVED, code.co_qualname, origin, reason))
        if state is not None and not state.observed:
            state.observed = True
            reports.warn_of(code, origin, "\n  hint: ".join((reason, *_UNDER_A_MODE)))

    def failed(
        self, code: CodeType, state: CodeState, error: Exception, doing: str, capture: Capture | None = None
    ) -> None:
        """Raise what kept a frame from being compiled, or leave the frame to eager, as the policy says.

        Args:
            code: Of the frame.
            state: What is known of it.
            error: Of a pass, or of whoever gave one.
            doing: What was done, for the message: "capturing".
            capture: What was captured, if that went well.

        Raises:
            IntarsiaError: By the policy; caused by `error` where that is another.
        """
        named = reports.as_intarsia_error(error, code, while_doing=doing)
        if self._config.policy.raises(named):
            try:
                if named is error or raised_by(error):  # whoever gave the backend or the pass knows its error
                    raise error
                raise named from error
            finally:
                del named, error  # their traceback holds this frame, and all below it
        self._counts.add(fallbacks=1)
        self._leave(EventKind.FAILED, code, state, str(named), named, capture)

    def limit_reached(self, code: CodeType, state: CodeState, frame: FrameInfo, reason: str) -> None:
        """Raise, or leave a frame to eager, of which there are as many versions as may be and none fits.

        Raises:
            UnsupportedError: By the policy; code "dispatch.too_many_versions".
        """
        others = dict.fromkeys(version.why_not(frame).partition("\n")[0] for version in state.versions[-2::-1])
        text = (
            f"it was compiled {len(state.versions)} times (recompile_limit), and no version fits this call; "
            f"the guard that failed in the latest: {reason}"
        )
        text += "".join(f"\n  in an earlier one: {other}" for other in others)
        if self._config.policy.raises():
            raise UnsupportedError(text, code="dispatch.too_many_versions", where=(reports.first_line(code),))
        self._leave(EventKind.LIMIT, code, state, text, None)

    def _leave(
        self,
        kind: EventKind,
        code: CodeType,
        state: CodeState,
        text: str,
        error: IntarsiaError | None,
        capture: Capture | None = None,
    ) -> None:
        self.left_to_eager(state)
        origin = reports.line_of(code, error)
        self.tell(FrameEvent(kind, code.co_qualname, origin, text, capture))
        if not state.warned:
            state.warned = True
            reports.warn_of(code, origin, text)

    def left_to_eager(self, state: CodeState) -> None:
        """Count code that is left to eager, once."""
        self._counts.add(frames_eager=not state.eager)
        state.eager = True

    def faulted(self, code: CodeType, fault: RuntimeFault) -> None:
        """Count and tell that a compiled graph raised; eager runs next, and shows whose fault that was."""
        self._counts.add(faults=1)
        self.tell(FrameEvent(EventKind.FAULT, code.co_qualname, reports.line_of(code, fault), str(fault)))

    def compilers_fault(self, code: CodeType, state: CodeState, fault: RuntimeFault) -> None:
        """Raise, or warn once, where a compiled graph raised and the program, run in eager just now, did not.

        Raises:
            IntarsiaError: By the policy, caused by the fault.
        """
        error = reports.compilers_fault(fault, (reports.first_line(code),))
        self.tell(FrameEvent(EventKind.FAILED, code.co_qualname, error.where[-1], str(error)))
        if self._config.policy.raises(error):
            try:
                raise error from fault
            finally:
                del error, fault  # their traceback holds this frame
        if not state.warned:
            state.warned = True
            reports.warn_of(code, error.where[-1], str(error))

    def tell(self, event: FrameEvent) -> None:
        """Hand an event on to the log and to whoever listens."""
        _log.debug("%s", event)
        self._recompiles.tell(event)
        self._config.on_event(event)
