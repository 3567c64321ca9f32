"""A tally of how often each rule, op or case was exercised, printed at the end of the test session.

Random tests prove nothing about a rule that never fired. A test module makes one `Tally` over the rules that should
fire, counts into it, and asserts at the end that none is at zero.
"""

from __future__ import annotations

import atexit
import sys
from collections import Counter
from collections.abc import Iterable

__all__ = ["Tally"]


class Tally:
    """Counts by name; prints itself when the interpreter ends, least-fired first.

    Args:
        title: What is counted, such as `"rewrites: fold_constants rules"`.
        expected: Names that must appear even when they never fired.

    Example:
        >>> tally = Tally("rules", ["fold", "merge"], print_at_exit=False)
        >>> tally.count("merge")
        >>> print(tally.text())
        rules (2 names, 1 never fired)
               0  fold
               1  merge
        >>> tally.missing()
        ['fold']
    """

    def __init__(self, title: str, expected: Iterable[str] = (), *, print_at_exit: bool = True) -> None:
        self.title = title
        self._counts: Counter[str] = Counter(dict.fromkeys(expected, 0))
        if print_at_exit:
            atexit.register(self._print)

    def count(self, name: str, times: int = 1) -> None:
        """Add `times` to the count of `name`."""
        self._counts[name] += times

    def counts(self) -> dict[str, int]:
        """Return the counts, least-fired first, names in alphabetical order within a count."""
        return dict(sorted(self._counts.items(), key=lambda item: (item[1], item[0])))

    def missing(self) -> list[str]:
        """Return the expected names that never fired."""
        return [name for name, times in self.counts().items() if times == 0]

    def text(self) -> str:
        """Return the table that is printed."""
        counts = self.counts()
        head = f"{self.title} ({len(counts)} names, {len(self.missing())} never fired)"
        return "\n".join([head, *(f"{times:8d}  {name}" for name, times in counts.items())])

    def _print(self) -> None:
        if any(self._counts.values()):
            sys.stderr.write("\n" + self.text() + "\n")
