"""What becomes of a failure: an error, or eager and one warning. Whoever can fail asks one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from intarsia_ir import codes
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["ErrorPolicy"]

_ASKED_FOR = (codes.MARK_VIOLATED,)  # a user's own demand about sizes: eager is no answer to it


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """Whether a failure is raised, or answered by eager.

    A failure is whatever keeps a call from running compiled: capture, a pass, a backend, the compiler that is missing
    or fails, the recompile limit, a compiled graph that raises where the program doesn't. What the program itself
    raises is none, and passes unchanged under every policy; so does what is no `Exception`, such as KeyboardInterrupt.

    Args:
        on_error: `"eager"`: run in eager, with one warning; `"raise"`: raise.
        fullgraph: Whether the function is captured and compiled whole or not at all: then every failure is raised,
            whatever `on_error` says, and so is a graph break.

    Raises:
        InvalidArgumentError: `on_error` is neither of its two words.

    Example:
        >>> ErrorPolicy().raises(), ErrorPolicy("raise").raises(), ErrorPolicy(fullgraph=True).raises()
        (False, True, True)
    """

    on_error: Literal["eager", "raise"] = "eager"
    fullgraph: bool = False

    def __post_init__(self) -> None:
        if self.on_error not in ("eager", "raise"):
            raise InvalidArgumentError(
                f'on_error must be "eager" or "raise", not {self.on_error!r}', code="dispatch.on_error"
            )

    def raises(self, error: BaseException | None = None) -> bool:
        """Tell whether a failure is raised; some are always."""
        return self.on_error == "raise" or self.fullgraph or getattr(error, "code", "") in _ASKED_FOR
