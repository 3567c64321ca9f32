"""What kernels cost on a CPU's vector units, in additions and in vectors moved: the rules that choose walks by."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from intarsia_loops.rewrites import postorder
from intarsia_loops.vectors.steps import Step

__all__ = ["HEAVY", "work_of"]

# Relative cost of one application, where an addition is 1.
HEAVY = MappingProxyType({
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "erf", "sin", "cos"), 12),
    **dict.fromkeys(("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc"), 30),
    **dict.fromkeys(("atan2", "hypot", "pow", "fmod", "mod", "floordiv", "truncdiv"), 40),
    **dict.fromkeys(("div", "div_by_sum", "sqrt", "rsqrt"), 6),
    "gather": 8,
})  # fmt: skip


def work_of(steps: Sequence[Step]) -> int:
    """Return the work at one point of the steps' loops, in additions."""
    distinct = {v for s in steps for v in postorder(s.body) if v.op != "const"}
    return len(steps) + sum(HEAVY.get(v.op, 1) for v in distinct)
