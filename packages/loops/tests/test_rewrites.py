"""The shared rewrites: one example each as text, before and after, and a twin that is refused."""

from typing import Any

import pytest

import intarsia_loops
from intarsia_loops import loops
from intarsia_loops._text import item_text
from intarsia_loops.index import axis, lift, size_symbol
from intarsia_loops.program import Kernel, Nest, Refused, Val, const, load, val
from intarsia_loops.rewrites import (
    as_kernel,
    at,
    canonical,
    fuse_rows,
    inline,
    localise,
    postorder,
    rebuild,
    rename,
    rename_buffers,
    split_reduction,
)

HEAD = "// dialect: loops 2\ngraph(%x: f32[8, 6], %j: i64[8]) {\n"
SOFTMAX = """
  %m: f32[8] = max[i0: 8; r0: 6] load(%x, i0, r0)
  %e: f32[8, 6] = map[i0: 8, i1: 6] exp(sub(load(%x, i0, i1), load(%m, i0)))
  %s: f32[8] = sum[i0: 8; r0: 6] load(%e, i0, r0)
  %y: f32[8, 6] = map[i0: 8, i1: 6] div(load(%e, i0, i1), load(%s, i0))
"""


def nests(body: str) -> list[Any]:
    return list(intarsia_loops.from_fx(loops.parse_ir(f"{HEAD}{body}  return ()\n}}\n")).items)


def text(item: Any) -> str:
    """Text without types of buffers, which a rewrite doesn't change."""
    assert not isinstance(item, Refused), item
    return "\n".join(line.replace(": ? =", " =") for line in item_text(item, {}).splitlines())


def test_inline() -> None:
    maximum, exp, _, _ = nests(SOFTMAX)
    total = nests(SOFTMAX)[2]
    assert text(inline(total, exp)) == "%s = sum[i0: 8; r0: 6] exp(sub(load(%x, i0, r0), load(%m, i0)))"
    assert inline(exp, maximum) == Refused("inline.not_a_map", "m is a max")


def test_inline_shares_what_is_read_twice() -> None:
    a, b = nests(
        "  %a: f32[8, 6] = map[i0: 8, i1: 6] sin(load(%x, i0, i1))\n"
        "  %b: f32[8, 6] = map[i0: 8, i1: 6] mul(load(%a, i0, i1), load(%a, i0, i1))\n"
    )
    assert text(inline(b, a)).splitlines()[1:] == ["  t0 = sin(load(%x, i0, i1))", "  mul(t0, t0)", "}"]


def test_inline_of_a_data_dependent_read() -> None:
    a, b = nests(
        "  %a: f32[8] = map[i0: 8] add(load(%x, i0, ((i0) % (6))), cast(index(3 + 2*i0), f32))\n"
        "  %b: f32[8] = map[i0: 8] gather(%a, [load(%j, i0)])\n"
    )
    made = text(inline(b, a))
    assert "gather(%x, [load(%j, i0)], [mod(load(%j, i0), i64(6))])" in made
    assert "add(i64(3), mul(i64(2), load(%j, i0)))" in made


def test_inline_of_a_data_dependent_read_through_a_symbolic_quotient_is_refused() -> None:
    n, i = size_symbol("s0"), axis("i0", 8)
    a = Nest("a", (i,), (), "map", load("x", (lift(i) // n, 0), "f32"), "f32")
    b = Nest("b", (i,), (), "map", load("a", (load("j", (lift(i),), "i64"),), "f32"), "f32")
    assert inline(b, a).code == "inline.gather"


def test_fuse_rows_makes_softmax_one_kernel() -> None:
    kernel: Any = None
    for nest in nests(SOFTMAX):
        kernel = as_kernel(nest, 1) if kernel is None else fuse_rows(kernel, as_kernel(nest, 1))
    kernel = localise(kernel, {"y"})
    assert kernel.local == {"m", "e", "s"}
    assert kernel.writes() == ("y",) and kernel.reads() == {"x"}
    assert text(kernel).splitlines()[0] == "kernel[i0: 8] {"


def test_fuse_rows_renames_the_second_kernel() -> None:
    first = nests("  %a: f32[8] = sum[i0: 8; r0: 6] load(%x, i0, r0)\n")[0]
    other = nests("  %b: f32[8, 6] = map[k: 8, i0: 6] load(%x, k, i0)\n")[0]
    kernel = fuse_rows(as_kernel(first, 1), as_kernel(other, 1))
    assert text(kernel.steps[1]) == "%b = map[i0: 8, i0_: 6] load(%x, i0, i0_)"


@pytest.mark.parametrize(
    ("code", "body", "depths"),
    [
        ("fuse.rows", "  %b: f32[6] = map[i0: 6] load(%x, 0, i0)\n", (1, 1)),
        ("fuse.crosses_rows", "  %b: f32[8] = map[i0: 8] load(%a, 7 + -1*i0)\n", (1, 1)),
        ("fuse.crosses_rows", "  %b: f32[8] = map[i0: 8] gather(%a, [load(%j, i0)])\n", (1, 1)),
    ],
)
def test_fuse_rows_refused(code: str, body: str, depths: tuple[int, int]) -> None:
    first, second = nests("  %a: f32[8] = sum[i0: 8; r0: 6] load(%x, i0, r0)\n" + body)
    refused = fuse_rows(as_kernel(first, depths[0]), as_kernel(second, depths[1]))
    assert not refused and refused.code == code


def test_fuse_rows_of_two_writers_is_refused() -> None:
    (first,) = nests("  %a: f32[8] = map[i0: 8] load(%x, i0, 0)\n")
    assert fuse_rows(as_kernel(first, 1), as_kernel(first, 1)) == Refused("fuse.writes", "both write a")


def test_as_kernel_refused() -> None:
    (scan,) = nests("  %c: f32[8, 6] = cumsum[i0: 8, i1: 6; i1: 6] load(%x, i0, i1)\n")
    assert isinstance(as_kernel(scan, 1), Kernel)
    assert as_kernel(scan, 2).code == "kernel.scanned_row"
    assert as_kernel(scan, 3).code == "kernel.depth"


SCATTER = "scatter_sum[i0: 8, i1: 6; r0: 8] scatter(load(%a, i1, i0), load(%a, 2, r0), load(%j, r0), index(5))"


def test_inline_into_both_parts_of_a_scatter() -> None:
    made, scattered = nests(
        "  %a: f32[6, 8] = map[i0: 6, i1: 8] neg(load(%x, i1, i0))\n" + f"  %b: f32[8, 6] = {SCATTER}\n"
    )
    assert text(inline(scattered, made)) == (
        "%b = scatter_sum[i0: 8, i1: 6; r0: 8] "
        "scatter(neg(load(%x, i0, i1)), neg(load(%x, r0, 2)), load(%j, r0), index(5))"
    )


def test_a_scatter_is_a_kernel_of_its_own() -> None:
    head = "  %a: f32[6, 8] = map[i0: 6, i1: 8] neg(load(%x, i1, i0))\n"
    made, scattered, after = nests(
        head + f"  %b: f32[8, 6] = {SCATTER}\n  %c: f32[8, 6] = map[i0: 8, i1: 6] neg(load(%b, i0, i1))\n"
    )
    assert as_kernel(scattered, 1).code == "kernel.scattered_row"
    alone = as_kernel(scattered, 0)
    assert fuse_rows(alone, as_kernel(after, 0)).code == "fuse.scatter"
    assert fuse_rows(as_kernel(made, 0), alone).code == "fuse.scatter"
    assert inline(after, scattered).code == "inline.not_a_map"


def test_split_reduction() -> None:
    total = nests("  %s: f32[8] = sum[i0: 8; r0: 6] load(%x, i0, r0)\n")[0]
    first, final = split_reduction(total, 3)
    assert text(first) == "%s_part = sum[i0: 8, r0o: 2; r0i: 3] load(%x, i0, r0i + 3*r0o)"
    assert text(final) == "%s = sum[i0: 8; r0o: 2] load(%s_part, i0, r0o)"
    assert split_reduction(total, 4).code == "split.remainder"
    assert split_reduction(nests(SOFTMAX)[1], 2).code == "split.kind"


def test_at_replaces_all_axes_at_once() -> None:
    i, j = axis("i0", 8), axis("i1", 8)
    v = val("add", load("x", (lift(i), lift(j)), "f32"), load("x", (lift(j), lift(i)), "f32"), dtype="f32")
    assert at(at(v, {i: lift(j), j: lift(i)}), {i: lift(j), j: lift(i)}) is v
    assert at(v, {}) is v


def test_rename_keeps_reduced_axes_apart() -> None:
    total = nests("  %s: f32[8] = sum[i0: 8; r0: 6] load(%x, i0, r0)\n")[0]
    assert text(rename(total, (axis("r0", 8),))) == "%s = sum[r0: 8; r0_: 6] load(%x, r0, r0_)"


def test_equal_layers_have_one_canonical_form() -> None:
    maximum, exp, *_ = nests(SOFTMAX)
    first = fuse_rows(as_kernel(maximum, 1), as_kernel(exp, 1))
    names = {"x": "p", "m": "q", "e": "r"}
    second = Kernel(first.rows, tuple(rename_buffers(s, names) for s in first.steps), first.local)
    assert first != second
    assert canonical(first)[0] == canonical(second)[0]
    assert canonical(second)[1] == ("p", "q", "r")


def test_deep_bodies_need_no_recursion() -> None:
    """A chain of twenty thousand inlined ops is built, rewritten, printed, read and dropped."""
    i = axis("i0", size_symbol("n"))
    v: Val = load("x", (lift(i),), "f32")
    for _ in range(20_000):
        v = val("sin", v, dtype="f32")
    assert sum(1 for _ in postorder(v)) == 20_001
    moved = rebuild(v, lambda leaf: const(1.0, "f32"))
    assert sum(1 for _ in postorder(moved)) == 20_001
    shown = text(Nest("y", (i,), (), "map", v, "f32"))
    assert shown.count("sin(") == 20_000
    del v, moved
