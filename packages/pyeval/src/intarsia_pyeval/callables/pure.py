"""Functions without effects, which are run on constants as they are."""

from __future__ import annotations

import cmath
import math
import operator
from typing import Any

__all__ = ["PURE"]

PURE: frozenset[Any] = frozenset(
    [ascii, bin, chr, divmod, hex, oct, ord, pow, range, round, abs, int, float, complex, bytes, str]
    + [value for value in vars(math).values() if callable(value) and value is not math.prod]
    + [value for value in vars(cmath).values() if callable(value)]
    + [operator.length_hint, int.from_bytes, float.fromhex, bytes.fromhex, str.maketrans]
)
