"""Mathematical functions that the C library computes: vector functions of glibc, or lane by lane where there are none.

Bounds are for f32, measured over 4 million bit patterns against float64 (glibc 2.36). Where the f32 vector function
is worse than 2 ulp, the f64 one is used and its result rounded: those are right to 0.51 ulp. f64 functions: 4 ulp.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["DIRECT", "FUNCTIONS", "OWN", "libm_fragments"]

# ulp of the f32 vector functions that are used as they are
DIRECT = {
    "exp2": 1.01, "log2": 1.77, "log1p": 1.79, "acos": 1.77, "atan": 1.85, "sinh": 1.78,
    "cosh": 1.97, "tanh": 1.35, "asinh": 0.97, "acosh": 0.78, "atanh": 1.69, "erfc": 1.47,
}  # fmt: skip
# Functions with an f32 implementation in math.h
OWN = frozenset({"exp", "log", "erf", "sin", "cos"})
# Of those, the ones that take f32 arguments far from 0 to the library: `far_sin`, with their ulp
FAR = {"sin": 1.70, "cos": 1.76}
FUNCTIONS = {
    **dict.fromkeys(DIRECT, 1), **dict.fromkeys(("expm1", "log10", "tan", "asin"), 1), **dict.fromkeys(OWN, 1),
    "pow": 2, "atan2": 2, "hypot": 2,
}  # fmt: skip
# f32 lanes of a native vector -> prefix of its f32 and f64 vector functions
_NATIVE32 = {"avx512": {16: "_ZGVeN16", 8: "_ZGVdN8"}, "avx2": {8: "_ZGVdN8"}}
_NATIVE64 = {"avx512": {8: "_ZGVeN8", 4: "_ZGVdN4"}, "avx2": {4: "_ZGVdN4"}}


def libm_fragments(isa: str, widths: Iterable[int]) -> list[tuple[str, str]]:
    """Return (name, C++) of every function for every vector width, in a fixed order."""
    widths = sorted(widths)
    fragments = []
    for name, arity in sorted(FUNCTIONS.items()):
        lines: list[str] = []
        for n in widths:
            lines += _double(isa, name, arity, n)
        # without a fused multiply-add our own reduction of large arguments isn't exact
        own = name in OWN and (name not in FAR or isa in _NATIVE32)
        for n in widths:
            if not own:
                lines += _single(isa, name, arity, n, "v")
        fragments.append((f"v{name}", "\n".join(dict.fromkeys(lines)) + "\n"))
        far = [line for n in widths if name in FAR and own for line in _single(isa, name, arity, n, "far_")]
        if far:
            fragments.append((f"far_{name}", "\n".join(dict.fromkeys(far)) + "\n"))
    return fragments


def _single(isa: str, name: str, arity: int, n: int, prefix: str) -> list[str]:
    native = _NATIVE32.get(isa, {}).get(n)
    half = max(_NATIVE64.get(isa, {}), default=0)
    if native and (name in DIRECT or name in FAR):
        return _declared(f"{native}{'v' * arity}_{name}f", f"f32x{n}", f"{prefix}{name}", arity)
    if half and n <= half:
        return _through_double(name, arity, n, [n], prefix)
    if half and n == 2 * half:
        return [*_double(isa, name, arity, half), *_through_double(name, arity, n, [half, half], prefix)]
    function = "erfc" if name == "erfc" else f"{name}f"  # glibc's erfcf is wrong by 2.1 ulp
    return _lane_by_lane(function, "f32", n, f"{prefix}{name}", arity)


def _double(isa: str, name: str, arity: int, n: int) -> list[str]:
    native = _NATIVE64.get(isa, {}).get(n)
    if native:
        return _declared(f"{native}{'v' * arity}_{name}", f"f64x{n}", f"v{name}", arity)
    return _lane_by_lane(name, "f64", n, f"v{name}", arity) if n <= 8 else []


def _declared(symbol: str, ctype: str, name: str, arity: int) -> list[str]:
    types = ", ".join([ctype] * arity)
    params, args = _parameters(ctype, arity)
    return [
        f'extern "C" {ctype} {symbol}({types}) noexcept;',
        f"INL {ctype} {name}({params}) {{ return {symbol}({args}); }}",
    ]


def _through_double(name: str, arity: int, n: int, parts: list[int], prefix: str) -> list[str]:
    params, _ = _parameters(f"f32x{n}", arity)
    results = []
    for k, lanes in enumerate(parts):
        wide, narrow = f"f64x{lanes}", f"f32x{lanes}"
        args = [f"cv<{wide}>({x if len(parts) == 1 else f'half<{narrow}>({x}, {k})'})" for x in "ab"[:arity]]
        results.append(f"cv<{narrow}>(v{name}({', '.join(args)}))")
    value = results[0] if len(parts) == 1 else f"joined<f32x{n}>({', '.join(results)})"
    return [f"INL f32x{n} {prefix}{name}({params}) {{ return {value}; }}"]


def _lane_by_lane(function: str, element: str, n: int, name: str, arity: int) -> list[str]:
    own = "f32" if function.endswith("f") and element == "f32" else "f64"
    types = ", ".join([own] * arity)
    params, _ = _parameters(f"{element}x{n}", arity)
    args = ", ".join(f"{x}[l]" for x in "ab"[:arity])
    return [
        f'extern "C" {own} {function}({types}) noexcept;',
        f"INL {element}x{n} {name}({params}) {{ for (int l = 0; l < {n}; l++) a[l] = {function}({args}); return a; }}",
    ]


def _parameters(ctype: str, arity: int) -> tuple[str, str]:
    names = "ab"[:arity]
    return ", ".join(f"{ctype} {x}" for x in names), ", ".join(names)
