"""What the emitted text contains: the technique of each shape, one prelude, equal kernels once, always the same."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cpp_harness import contiguous, emit, emit_unit

from intarsia_cpp import emit_unit as printed
from intarsia_cpp._index import c_text
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Launch, Target
from intarsia_loops import from_fx, tiles, to_fx
from intarsia_loops.index import axis, lift, size_symbol
from intarsia_loops.program import (
    Buffer,
    Extern,
    Kernel,
    Nest,
    Program,
    TensorRef,
    Val,
    const,
    load,
    val,
)

AVX512, SCALAR = Target(isa="avx512", threads=2), Target(isa="scalar", threads=1)


def f32(op: str, *args: Val) -> Val:
    return val(op, *args, dtype="f32")


def matrix(m: int, n: int) -> Buffer:
    return contiguous((lift(m), lift(n)), "f32")


def added(x: str, out: str, m: int = 64, n: int = 1024) -> Kernel:
    """out = x + 1."""
    i, j = axis("i0", m), axis("i1", n)
    body = f32("add", load(x, (lift(i), lift(j)), "f32"), const(1.0, "f32"))
    return Kernel((i, j), (Nest(out, (i, j), (), "map", body, "f32"),))


def normalised(m: int = 64, n: int = 1000) -> Kernel:
    """o = x - max over the row."""
    i, j, r = axis("i0", m), axis("i1", n), axis("r0", n)
    x = load("x", (lift(i), lift(r)), "f32")
    body = f32("sub", load("x", (lift(i), lift(j)), "f32"), load("m", (lift(i),), "f32"))
    return Kernel(
        (i,), (Nest("m", (i,), (r,), "max", x, "f32"), Nest("o", (i, j), (), "map", body, "f32")), frozenset("m")
    )


def kernel_text(kernel: Kernel, buffers: dict[str, Buffer], target: Target = AVX512) -> str:
    """The function, without the prelude."""
    text = emit(kernel, buffers, target).text
    return text[text.index("static __attribute__((noinline))") :]


def test_a_map_is_one_loop_over_memory() -> None:
    text = kernel_text(added("x", "o"), {"x": matrix(64, 1024), "o": matrix(64, 1024)})
    assert "#pragma omp parallel for num_threads(2)" in text
    assert "ld<f32x16>" in text
    assert "ldt<" not in text  # 64*1024 is a multiple of the width: nothing is masked
    assert text.count("for (") == 2  # pieces for threads, vectors


def test_small_work_stays_serial() -> None:
    assert "#pragma omp" not in kernel_text(added("x", "o", 4, 16), {"x": matrix(4, 16), "o": matrix(4, 16)})


def test_a_row_kernel_masks_only_the_rest_of_a_row() -> None:
    text = kernel_text(normalised(), {"x": matrix(64, 1000), "o": matrix(64, 1000)})
    assert "acc1[4]" in text  # four accumulators
    assert "ldt<f32x16>" in text
    assert text.count("#pragma omp parallel") == 1


def test_the_isa_decides_the_width() -> None:
    buffers = {"x": matrix(64, 1024), "o": matrix(64, 1024)}
    assert "f32x8" in kernel_text(added("x", "o"), buffers, Target(isa="avx2", threads=2))
    scalar = emit(added("x", "o"), buffers, SCALAR).text
    assert "f32x4" in scalar
    assert "__builtin_ia32" not in scalar


@pytest.mark.parametrize(
    ("isa", "kind", "dtype", "run"),
    [
        ("avx512", "cumsum", "f32", "halves_sum("),
        ("avx512", "cumprod", "f32", "halves_prod("),
        ("avx512", "cumsum", "f64", "running_sum<f64x8>("),
        ("avx2", "cumsum", "f32", "running_sum<f64x8>("),
    ],
)
def test_a_scan_goes_on_in_double_by_halves_where_a_register_has_half_as_many(isa, kind, dtype, run) -> None:
    i = axis("i0", 1000)
    scan = Nest("o", (i,), (i,), kind, load("x", (lift(i),), dtype), dtype)
    buffers = {name: contiguous((lift(1000),), dtype) for name in ("x", "o")}
    assert run in kernel_text(Kernel((), (scan,)), buffers, Target(isa=isa, threads=2))


def test_only_needed_parts_of_the_prelude() -> None:
    source = emit(added("x", "o"), {"x": matrix(64, 1024), "o": matrix(64, 1024)}, AVX512)
    assert "vexp" not in source.text
    assert "#include" not in source.text
    assert source.text.count("struct of;") == 1


def test_run_time_sizes_are_parameters() -> None:
    n = size_symbol("s0")
    i = axis("i0", n)
    body = f32("add", load("x", (lift(i),), "f32"), const(1.0, "f32"))
    kernel = Kernel((i,), (Nest("o", (i,), (), "map", body, "f32"),))
    layout = contiguous((n,), "f32")
    source = emit(kernel, {"x": layout, "o": layout}, AVX512)
    assert "void kernel0(const f32 *__restrict b0, f32 *__restrict b1, const i64 size_s0)" in source.text
    assert source.launches == (Launch("seg0", ("x", "o"), ("s0",), (0, 1)),)
    assert "if(size_s0 >=" in source.text


def test_divisors_that_are_products_are_bracketed() -> None:
    """`i / n*m` would divide by n alone."""
    i, n, m = axis("i", 8), size_symbol("n"), size_symbol("m")
    expr = lift(i) // (n * m) + lift(i) % (n * m) + lift(i) // n
    assert c_text(expr, lambda atom: atom.key) == "(near_mod(i, m*n) + (i / (m*n)) + (i / n))"


def test_loops_over_products_of_run_time_sizes_are_separated() -> None:
    """`view(b, t, h*d)` of transposed heads: no division is left, so vectors can be loaded."""
    h, d, t = (size_symbol(f"s{k}") for k in range(3))
    rows = (axis("i0", t), axis("i1", h * d))
    where = (lift(rows[1]) // d, lift(rows[0]), lift(rows[1]) % d)
    kernel = Kernel(rows, (Nest("o", rows, (), "map", load("x", where, "f32"), "f32"),))
    buffers = {"x": contiguous((h, t, d), "f32"), "o": contiguous((t, h * d), "f32")}
    source = emit(kernel, buffers, AVX512)
    body = source.text[source.text.index("void kernel0(") :]
    assert "i1a" in body and "i1b" in body and "/" not in body and "%" not in body


def three_layers() -> Program:
    """Two equal kernels, an extern call, and a third equal kernel."""
    buffers = {b: matrix(64, 1024) for b in "abcde"}
    ref = TensorRef("c", buffers["c"].shape, buffers["c"].strides, lift(0))
    call = Extern(("d",), "some.op", (ref,))
    items = (added("a", "b"), added("b", "c"), call, added("d", "e"))
    out = TensorRef("e", buffers["e"].shape, buffers["e"].strides, lift(0))
    return Program(buffers, ("a",), items, (out,))


def test_equal_kernels_once_and_one_entry_per_run() -> None:
    source = emit_unit(three_layers(), AVX512)
    assert (source.n_kernels, source.n_unique) == (3, 1)
    assert source.launches == (
        Launch("seg0", ("a", "b", "c"), (), (0, 2)),
        Launch("seg1", ("d", "e"), (), (3, 4)),
    )
    assert source.text.count("static __attribute__((noinline)) void") == 1
    assert source.text.count('extern "C" void seg') == 2


def test_layout_is_part_of_what_makes_kernels_equal() -> None:
    program = three_layers()
    buffers = {**program.buffers, "e": Buffer(program.buffers["e"].shape, (lift(1), lift(64)), "f32")}
    source = emit_unit(Program(buffers, program.inputs, program.items, program.outputs), AVX512)
    assert source.n_unique == 2


def test_the_view_gives_the_same_text_as_the_program() -> None:
    program = three_layers()
    without_call = Program(program.buffers, ("a",), program.items[:2], program.outputs[:0])
    assert emit_unit(from_fx(to_fx(without_call)), AVX512).text == emit_unit(without_call, AVX512).text


def test_complex_numbers_are_refused() -> None:
    i = axis("i0", 4)
    kernel = Kernel((i,), (Nest("o", (i,), (), "map", load("x", (lift(i),), "c64"), "c64"),))
    layout = contiguous((lift(4),), "c64")
    with pytest.raises(UnsupportedError, match="no element type c64") as caught:
        emit(kernel, {"x": layout, "o": layout}, AVX512)
    assert caught.value.code == "cpp.dtype"


def test_text_does_not_depend_on_the_hash_seed() -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from cpp_harness import program_of; from cpp_random import random_case\n"
        "from cpp_harness import emit_unit; from intarsia_ir.records import Target; import hashlib\n"
        "program, _, _ = program_of([random_case(k, k % 2 == 0) for k in range(12)])\n"
        "print(hashlib.sha256(emit_unit(program, Target(isa='avx512', threads=2)).text.encode()).hexdigest())"
    )
    texts = set()
    for seed in ("0", "777"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        )
        texts.add(done.stdout)
    assert len(texts) == 1


def test_what_a_row_keeps_follows_the_stack():
    """Arrays of a row that a thread's stack doesn't hold are allocated."""
    kernel, buffers = normalised(64, 3000), {"x": matrix(64, 3000), "o": matrix(64, 3000)}
    i, j = kernel.rows[0], axis("i1", 3000)
    doubled = Nest("d", (i, j), (), "map", f32("exp", load("x", (lift(i), lift(j)), "f32")), "f32")
    r = axis("r0", 3000)
    top = Nest("m", (i,), (r,), "max", load("d", (lift(i), lift(r)), "f32"), "f32")
    body = f32("sub", load("d", (lift(i), lift(j)), "f32"), load("m", (lift(i),), "f32"))
    kernel = Kernel((i,), (doubled, top, Nest("o", (i, j), (), "map", body, "f32")), frozenset("dm"))
    small = replace(AVX512, measured=replace(AVX512.machine, stack_bytes=4096))
    assert "aligned_alloc" not in kernel_text(kernel, buffers, AVX512)
    assert "aligned_alloc" in kernel_text(kernel, buffers, small)


def test_instruction_sets_have_lanes_of_their_own():
    kernel, buffers = added("x", "o"), {"x": matrix(64, 1024), "o": matrix(64, 1024)}
    found = {isa: kernel_text(kernel, buffers, Target(isa=isa)) for isa in ("avx512", "avx2", "neon")}
    assert len(set(found.values())) == 3


HOISTED = """// dialect: tiles 5
target cpu 'avx2' 'g++' threads 1
graph(%x: f32[6, 40], %w: f32[6], %z: f32[120]) {
  buffer %y: f32[6, 40]
  launch kernel0(%b0, %b1, %b2, %b3) sets (%x, %w, %z, %y) i64 {
    walk %b3 {
      maps lanes 8 (i0: 6, i1: 40) {
        %b3: f32 memory map () [40*i0 + i1] = mul(exp(load(%b1, i0)), add(load(%b0, 40*i0 + i1), load(%b2, 3*i1)))
      }
    }
  }
  return (%y,)
}
"""


def test_values_are_hoisted_and_gathered_where_tiles_say_so() -> None:
    """The exponential is before the inner loop or in it, and what lies apart is read at once or one by one."""

    def inner_loop(words: str) -> str:
        made = tiles.parse_ir(HOISTED.replace("(i0: 6, i1: 40)", f"(i0: 6, i1: 40){words}"))
        after = printed(made).text.partition("i64 i1_ = 0;")[2]
        return after.partition("st(")[0]

    assert "vexp(" not in inner_loop("") and "strided<f32x8>" in inner_loop("")
    assert "vexp(" in inner_loop(" unhoisted") and "strided<f32x8>" in inner_loop(" unhoisted")
    assert "vexp(" not in inner_loop(" ungathered") and "strided<" not in inner_loop(" ungathered")


def test_the_row_that_a_token_chooses_is_a_number_and_not_a_vector() -> None:
    i, j = axis("i0", 19), axis("i1", 64)
    token = val("min", load("tokens", (lift(i),), "i64"), const(10, "i64"), dtype="i64")
    body = load("table", (token, lift(j)), "f32")
    buffers = {"tokens": contiguous((lift(19),), "i64"), "table": matrix(11, 64), "out": matrix(19, 64)}
    text = kernel_text(Kernel((i,), (Nest("out", (i, j), (), "map", body, "f32"),)), buffers)
    assert "i64x1 " in text and "i64x16" not in text and "ld<f32x16>" in text
