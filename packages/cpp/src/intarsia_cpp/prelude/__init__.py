"""The C++ that every unit starts with: types and primitives, only those that the kernels use.

The pieces are in the `.h` files beside this one, in the order types, common, ISA, math. A line `//: name name` opens
a fragment that defines these names; what comes after the first double space is a remark. A template for all vector
types is overloaded or specialised by the ISA file. No header is included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from intarsia_cpp.prelude.libm import libm_fragments

__all__ = ["Fragment", "prelude"]

ELEMENTS = {
    "f32": "float", "f64": "double", "i64": "long", "i32": "int", "i16": "short", "i8": "signed char",
    "u64": "unsigned long", "u32": "unsigned", "u16": "unsigned short", "u8": "unsigned char",
}  # fmt: skip
FILES = {"avx512": ("common", "avx2", "avx512", "math"), "avx2": ("common", "avx2", "math")}
HEADER = """\
#define INL1 inline __attribute__((always_inline))
#define INL static INL1
"""
_WIDTH = re.compile(r"\b[fiu]\d+x(\d+)\b")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of C++ that defines some names."""

    names: frozenset[str]
    text: str


def prelude(text: str, isa: str) -> str:
    """Return the C++ that `text` needs in front of it.

    Args:
        text: Kernels.
        isa: Which primitives to use, as in `Target.isa`.
    """
    widths = {int(w) for w in _WIDTH.findall(text)}
    fragments = [f for name in FILES.get(isa, ("common", "math")) for f in _fragments(name)]
    fragments += [Fragment(frozenset({name}), lines) for name, lines in libm_fragments(isa, widths)]
    wanted = set(_WORD.findall(text))
    chosen: set[int] = set()
    while True:
        more = {k for k, f in enumerate(fragments) if k not in chosen and f.names & wanted}
        if not more:
            break
        chosen |= more
        for k in more:
            wanted |= set(_WORD.findall(fragments[k].text))
    parts = [fragments[k].text for k in sorted(chosen)]
    return HEADER + _types("\n".join([text, *parts])) + "".join(parts)


def _types(text: str) -> str:
    """Element types, and vector types of the widths that occur."""
    lines = [f"typedef {c} {name};" for name, c in ELEMENTS.items()]
    lines.append(
        "template <class V> struct of;  // element type; integers of its width, signed and unsigned; i32; lanes"
    )
    lines.append("template <class V> INL V iota();")
    widths = sorted({int(w) for w in _WIDTH.findall(text)})
    for n in widths:
        for name in ELEMENTS:
            lines.append(f"typedef {name} {name}x{n} __attribute__((vector_size({n} * sizeof({name}))));")
    lines.append("template <class I> struct same;  // floats in as many lanes")
    lines += [f"template <> struct same<i{b}x{n}> {{ typedef f{b}x{n} f; }};" for n in widths for b in (32, 64)]
    for n in widths:
        numbers = ", ".join(map(str, range(n)))
        for name in ELEMENTS:
            bits = name[1:]
            lines.append(
                f"template <> struct of<{name}x{n}> {{ typedef {name} e; typedef i{bits}x{n} i; "
                f"typedef u{bits}x{n} u; typedef i32x{n} w; static constexpr int n = {n}; }};"
            )
            lines.append(f"template <> INL1 {name}x{n} iota<{name}x{n}>() {{ return {name}x{n}{{{numbers}}}; }}")
    return "\n".join(lines) + "\n"


@cache
def _fragments(name: str) -> tuple[Fragment, ...]:
    text = files(__name__).joinpath(f"{name}.h").read_text("utf-8")
    found = []
    for part in text.split("//: ")[1:]:
        head, body = part.split("\n", 1)
        names, _, remark = head.partition("  ")
        found.append(Fragment(frozenset(names.split()), (f"// {remark}\n" if remark else "") + body))
    return tuple(found)
