"""What an op does besides computing its result; the same record in the torch and aten dialects."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Effects"]


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of one op.

    Args:
        writes: Names of the arguments that are written.
        views: Names of the arguments whose memory a result may share.
        random: Whether it draws from a random generator (and advances it).
        may_raise: Whether the values of its tensor arguments decide if it raises.
        checks: Whether it exists for its check or its message, not for its result.
        opaque: Whether nothing is known of it, so that everything must be assumed.
        communicates: Whether it takes part in an exchange with other processes, which count these: each call is made
            once, in program order, whatever becomes of its result.
    """

    writes: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    random: bool = False
    may_raise: bool = False
    checks: bool = False
    opaque: bool = False
    communicates: bool = False

    @property
    def removable(self) -> bool:
        """Whether a call whose result isn't used can be dropped without anyone noticing."""
        return not (self.writes or self.random or self.may_raise or self.checks or self.opaque or self.communicates)

    @property
    def repeatable(self) -> bool:
        """Whether two calls with equal arguments, and no write between them, give equal results."""
        return not (self.writes or self.random or self.opaque or self.communicates)

    def marks(self) -> tuple[str, ...]:
        """Return what IR text shows after `!`."""
        touched = (("writes", self.writes), ("views", self.views))
        marks = [f"{word}({', '.join(names)})" for word, names in touched if names]
        flags = (
            ("random", self.random),
            ("checks", self.checks),
            ("opaque", self.opaque),
            ("communicates", self.communicates),
        )
        return (*marks, *(word for word, present in flags if present))
