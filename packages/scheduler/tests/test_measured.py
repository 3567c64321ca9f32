"""Rules from measurements, one at a time: when a kernel is cut, how large its tiles are, what shares a walk."""

import pytest

import intarsia_loops
from intarsia_ir.records import Target
from intarsia_loops import kernels
from intarsia_loops.index import axis, size_symbol
from intarsia_loops.program import Buffer, Kernel
from intarsia_scheduler.grid.flat import with_one_axis
from intarsia_scheduler.grid.loops import loops_of, with_square_sums
from intarsia_scheduler.grid.split import Cut
from intarsia_scheduler.measured.blocks import _along_rows, _fits_registers, _points_a_load
from intarsia_scheduler.measured.cuts import cut_of
from intarsia_scheduler.measured.others import CUTS, other_cuts
from intarsia_scheduler.memory import _Holes
from intarsia_scheduler.simple import _size

MACHINE = Target("cuda", "sm_90").machine


def kernel_of(text: str, symbols: str = "") -> tuple[Kernel, dict[str, Buffer]]:
    program = intarsia_loops.from_fx(kernels.parse_ir(f"// dialect: kernels 2\n{symbols}{text}"))
    (kernel,) = program.items
    assert isinstance(kernel, Kernel)
    return kernel, dict(program.buffers)


def summed(rows: object, *inner: object) -> tuple[Kernel, dict[str, Buffer]]:
    """A sum over all dimensions of a tensor but the first."""
    known = any(isinstance(n, str) for n in (rows, *inner))
    shape = ", ".join(map(str, (rows, *inner)))
    red = ", ".join(f"r{k}: {n}" for k, n in enumerate(inner))
    at = ", ".join(["i0", *(f"r{k}" for k in range(len(inner)))])
    return kernel_of(
        f"""graph(%x: f32[{shape}]) {{
  kernel[i0: {rows}] {{
    %y: f32[{rows}] = sum[i0: {rows}; {red}] load(%x, {at})
  }}
  return (%y,)
}}
""",
        "symbol s0 in [2, inf]\n" if known else "",
    )


# ---- cuts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1 << 20, 3 << 18, 1000003])
def test_few_long_rows_are_cut_in_equal_parts(length: int) -> None:
    cut = cut_of(*summed(4, length), MACHINE)
    if length == 1000003:  # a prime number
        assert cut is None
    else:
        assert cut is not None and cut.position == 0 and length % cut.length == 0 and 1 < length // cut.length <= 2048


def test_columns_of_narrow_points_are_cut_into_fewer_parts() -> None:
    text = """graph(%x: DTYPE[32768, 4096]) {
  kernel[i0: 4096] {
    %y: f32[4096] = sum[i0: 4096; r0: 32768] cast(load(%x, r0, i0), f32)
  }
  return (%y,)
}
"""
    lengths = [cut_of(*kernel_of(text.replace("DTYPE", dtype)), MACHINE).length for dtype in ("bf16", "f32")]
    assert lengths == [4096, 2048]


def test_rows_of_unknown_length_are_cut_where_they_are_few() -> None:
    assert cut_of(*summed(4, "s0"), MACHINE) is not None
    assert cut_of(*summed(1_000_000, "s0"), MACHINE) is None


def test_the_axis_of_unknown_size_is_cut() -> None:
    assert [cut_of(*summed(4, *inner), MACHINE).position for inner in ((8, "s0"), ("s0", 8))] == [1, 0]


def test_other_cuts_are_in_powers_of_two() -> None:
    assert all(n & (n - 1) == 0 for n in CUTS)
    kernel, _ = summed(1, 1 << 20)
    lengths = [(1 << 20) // n for n in CUTS]
    assert other_cuts(kernel, Cut(0, 3), 1, MACHINE) == ("whole", *(f"0 {n}" for n in lengths))


# ---- tiles ------------------------------------------------------------------------------------------------------


def test_a_thread_loads_eight_points_at_most() -> None:
    for dtype, points in (("i8", 8), ("bf16", 8), ("f32", 4), ("f64", 2)):
        kernel, buffers = kernel_of(
            f"""graph(%x: {dtype}[4, 512]) {{
  kernel[i0: 4] {{
    %y: {dtype}[4] = max[i0: 4; r0: 512] load(%x, i0, r0)
  }}
  return (%y,)
}}
"""
        )
        assert _points_a_load(loops_of(kernel), buffers) == points


def loaded(n_buffers: int) -> tuple[Kernel, dict[str, Buffer]]:
    names = "abcdefgh"[:n_buffers]
    body = f"load(%{names[0]}, i0, r0)"
    for name in names[1:]:
        body = f"add({body}, load(%{name}, i0, r0))"
    operands = ", ".join(f"%{name}: f32[4, 512]" for name in names)
    return kernel_of(
        f"""graph({operands}) {{
  kernel[i0: 4] {{
    %y: f32[4] = sum[i0: 4; r0: 512] {body}
  }}
  return (%y,)
}}
"""
    )


@pytest.mark.parametrize(("n_buffers", "fits"), [(1, True), (3, True), (4, False)])
def test_three_rows_as_long_as_may_be_fit_registers(n_buffers: int, fits: bool) -> None:
    kernel, buffers = loaded(n_buffers)
    assert _fits_registers(loops_of(kernel), buffers, 512, 512) is fits
    assert not _fits_registers(loops_of(kernel), buffers, 513, 512)


@pytest.mark.parametrize(("load", "along"), [("r0, i0", True), ("i0, r0", False), (None, False)])
def test_memory_runs_along_rows_where_it_runs_along_nothing_else(load: str | None, along: bool) -> None:
    body = f"load(%x, {load})" if load else "add(load(%x, r0, i0), load(%x, i0, r0))"
    kernel, buffers = kernel_of(
        f"""graph(%x: f32[64, 64]) {{
  kernel[i0: 64] {{
    %y: f32[64] = sum[i0: 64; r0: 64] {body}
  }}
  return (%y,)
}}
"""
    )
    assert _along_rows(kernel, buffers, loops_of(kernel)) is along


# ---- loops ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", ["sub(load(%x, i0, r0), load(%s, i0))", "load(%x, i0, r0)"])
def test_sums_of_squares_alone_share_the_walk_of_their_mean(second: str) -> None:
    kernel, _ = kernel_of(
        f"""graph(%x: f32[4, 512]) {{
  kernel[i0: 4] {{
    local %s: f32[4] = sum[i0: 4; r0: 512] load(%x, i0, r0)
    %y: f32[4] = sum[i0: 4; r0: 512] mul(sub(load(%x, i0, r0), load(%s, i0)), {second})
  }}
  return (%y,)
}}
"""
    )
    loops = loops_of(kernel)
    joined = with_square_sums(loops)
    assert (sum(len(loop.squares) for loop in joined) == 1) is second.startswith("sub")
    assert (joined == loops) is not second.startswith("sub")


def test_reductions_over_several_axes_of_known_size_are_over_one() -> None:
    kernel, buffers = summed(4, 8, 16)
    (step,) = with_one_axis(kernel, buffers).steps
    assert [a.extent.const() for a in step.red] == [128]


def test_sizes_that_are_not_known_count_as_large() -> None:
    assert _size(axis("i", 7)) == 7 and _size(axis("i", size_symbol("n"))) == 1 << 20


# ---- memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2), (1, 2, 0)])
def test_neighbouring_holes_are_one(order: tuple[int, ...]) -> None:
    holes = _Holes()
    offsets = [holes.take(64) for _ in range(4)]
    assert offsets == [0, 64, 128, 192]
    for k in order:
        holes.free(offsets[k], 64)
    assert holes.take(192) == 0 and holes.take(64) == 256
