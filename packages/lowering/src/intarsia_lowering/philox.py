"""Philox 4x32-10 as scalar values: a random number that is a function of a seed and of the element's number.

Written in the integer ops of the scalar table (words of 32 bits in i64), so every emitter and the interpreter give the
same numbers from one seed without knowing about it. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from intarsia_loops.program import Val, cast, const, val

__all__ = ["normal", "uniform", "words"]

_WORD = (1 << 32) - 1
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def words(seed: Val, counter: Val) -> tuple[Val, Val, Val, Val]:
    """Return four random words for an element.

    Args:
        seed: i64; its two halves are the key.
        counter: i64, not negative; the low two of the four words that are mixed, the others are 0.

    Returns:
        i64 values in [0, 2**32).
    """
    keys = [_low(seed), _high(seed)]
    x = [_low(counter), _high(counter), const(0, "i64"), const(0, "i64")]
    for n in range(_ROUNDS):
        first, second = (_i64("mul", x[k], const(m, "i64")) for k, m in zip((0, 2), _MULTIPLIERS, strict=True))
        key = [
            _low(_i64("add", k, const(n * s & _WORD, "i64"))) if n else k for k, s in zip(keys, _KEY_STEPS, strict=True)
        ]
        x = [
            _i64("xor", _i64("xor", _high(second), x[1]), key[0]),
            _low(second),
            _i64("xor", _i64("xor", _high(first), x[3]), key[1]),
            _low(first),
        ]
    return x[0], x[1], x[2], x[3]


def uniform(words: Sequence[Val], dtype: str = "f32") -> Val:
    """Return a number in [0, 1) of as many random bits as the type has.

    Args:
        words: Random words. f32 takes 24 bits of the first one, f64 takes 53 of the first two.
        dtype: f32 or f64.
    """
    bits, kept = 24, _i64("shr", words[0], const(8, "i64"))
    if dtype == "f64":
        bits, high = 53, _i64("shl", words[0], const(21, "i64"))
        kept = _i64("or", high, _i64("shr", words[1], const(11, "i64")))
    return val("mul", cast(kept, dtype), const(2.0**-bits, dtype), dtype=dtype)


def normal(words: Sequence[Val], dtype: str = "f32") -> Val:
    """Return a number of the standard normal distribution from two random words, or four for f64 (Box and Muller)."""
    half = 2 if dtype == "f64" else 1
    positive = val("sub", const(1.0, dtype), uniform(words, dtype), dtype=dtype)  # (0, 1]: its logarithm is finite
    radius = val("mul", const(-2.0, dtype), val("log", positive, dtype=dtype), dtype=dtype)
    angle = val("mul", uniform(words[half:], dtype), const(2.0 * math.pi, dtype), dtype=dtype)
    return val("mul", val("sqrt", radius, dtype=dtype), val("cos", angle, dtype=dtype), dtype=dtype)


def _i64(op: str, a: Val, b: Val) -> Val:
    return val(op, a, b, dtype="i64")


def _low(a: Val) -> Val:
    return _i64("and", a, const(_WORD, "i64"))


def _high(a: Val) -> Val:
    # products of two words may be negative as i64: the shift keeps the sign, the mask drops it
    return _low(_i64("shr", a, const(32, "i64")))
