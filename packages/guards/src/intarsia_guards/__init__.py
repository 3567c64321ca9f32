"""Guard records and size facts in, one fast predicate out, with an explanation when it fails.

A capture is valid for another call when everything that it relied on still holds. The records
(`intarsia_ir.GuardRecord`) say what that is; `build_guards` turns them into a native check (a generated Python function
where the C extension isn't built), for calls (`GuardSet.check`) and for frames as the frame hook sees them
(`GuardSet.frame_check`).

Example:
    >>> from intarsia_ir import ArgumentSource
    >>> from intarsia_ir.guards import ConstantGuard
    >>> def f(x, n): ...
    >>> guards = build_guards([ConstantGuard(ArgumentSource("n"), 3)], function=f)
    >>> guards.check(("anything", 3)), guards.check(("anything", 4))
    (True, False)
"""

from intarsia_guards.explain import GuardFailure
from intarsia_guards.sets import FrameCheck, GuardSet, build_guards

__version__ = "0.1.1"

__all__ = ["FrameCheck", "GuardFailure", "GuardSet", "build_guards"]
