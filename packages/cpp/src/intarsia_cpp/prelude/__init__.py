"""The C++ that every unit starts with: types and primitives, only those that the kernels use.

The pieces are in the `.h` files beside this one, in the order types, common, ISA, C library, math. A line
`//: name name` opens a fragment that defines these names; what comes after the first double space is a remark. A
template for all vector types is overloaded or specialised by the ISA file. No header is included.
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
FILES = {"avx512": ("common", "avx2", "avx512"), "avx2": ("common", "avx2", "avx2_only")}
HEADER = """\
#define INL1 inline __attribute__((always_inline))
#define INL static INL1
"""
_VECTOR = re.compile(r"\b([fiu]\d+)x(\d+)\b")
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
    fragments = _available(isa, frozenset(int(w) for w in _WIDTH.findall(text)))
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


@cache
def _available(isa: str, widths: frozenset[int]) -> tuple[Fragment, ...]:
    """All fragments for vectors of these widths, in the order in which C++ needs them."""
    # half an f32 vector is an f64 vector of that many lanes
    allowed = widths | {w // 2 for w in widths}
    own = [f for name in FILES.get(isa, ("common",)) for f in _fragments(name)]
    library = [Fragment(frozenset({name}), lines) for name, lines in libm_fragments(isa, widths)]
    return (*(Fragment(f.names, _for_widths(f.text, allowed)) for f in own), *library, *_fragments("math"))


def _for_widths(text: str, widths: frozenset[int]) -> str:
    """The definitions of a fragment for these vector widths; lines that begin with a blank belong to the one before."""
    kept, keep = [], True
    for line in text.splitlines(keepends=True):
        if not line.startswith(" "):
            keep = {int(w) for w in _WIDTH.findall(line)} <= widths
        kept += [line] * keep
    return "".join(kept)


def _types(text: str) -> str:
    """Element types, and the vector types that occur with those that belong to them."""
    lines = [f"typedef {c} {name};" for name, c in ELEMENTS.items()]
    lines.append("template <class V> struct of;  // element; integers of its width, signed and unsigned; i32; lanes")
    lines.append("template <class I> struct same;  // floats in as many lanes")
    lines.append("template <class V> INL V iota();")
    used = {(name, int(n)) for name, n in _VECTOR.findall(text)}
    used |= {(f"{sign}{name[1:]}", n) for name, n in used for sign in "iu"} | {("i32", n) for _, n in used}
    used |= {("u32", n) for _, n in used} | {(f"f{name[1:]}", n) for name, n in used if name in ("i32", "i64")}
    ordered = sorted(used, key=lambda v: (v[1], list(ELEMENTS).index(v[0])))
    lines += [f"typedef {e} {e}x{n} __attribute__((vector_size({n} * sizeof({e}))));" for e, n in ordered]
    for e, n in ordered:
        i, u = f"i{e[1:]}x{n}", f"u{e[1:]}x{n}"
        lines.append(
            f"template <> struct of<{e}x{n}> {{ typedef {e} e; typedef {i} i; typedef {u} u; typedef i32x{n} w; "
            f"static constexpr int n = {n}; }};"
        )
        if e in ("f32", "f64"):
            lines.append(f"template <> struct same<{i}> {{ typedef {e}x{n} f; }};")
        if e[0] == "i":
            numbers = ", ".join(map(str, range(n)))
            lines.append(f"template <> INL1 {e}x{n} iota<{e}x{n}>() {{ return {e}x{n}{{{numbers}}}; }}")
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
