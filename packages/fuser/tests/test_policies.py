"""What the shipped policies reach, and what they leave alone."""

from __future__ import annotations

import pytest
from fuser_programs import Builder, aten, chain, conv_norm_relu, encoder, op, residual_layer_norm, softmax, wide

from intarsia_fuser import Fuse, Greedy, InductorLike, Inline, NoFusion, apply_program, plan
from intarsia_ir.records import Target
from intarsia_loops import loops
from intarsia_loops.program import Extern, Kernel, const
from intarsia_loops.rewrites import canonical


def fused(program, policy=None):
    """The kernels that a policy makes."""
    made = plan(program, policy=policy, target=Target(isa="avx512", threads=2), check=False)
    kernels = apply_program(program, made)
    found = [item for item in kernels.items if isinstance(item, Kernel)]
    assert len(found) == made.after.kernels
    return found


@pytest.mark.parametrize("policy", [Greedy(), InductorLike()], ids=lambda p: p.name)
@pytest.mark.parametrize(
    "program",
    [chain(), softmax(), residual_layer_norm(), conv_norm_relu()],
    ids=["chain", "softmax", "residual + layer norm", "batch norm + relu"],
)
def test_one_kernel(policy, program):
    assert len(fused(program, policy)) == 1


def test_no_fusion_makes_a_kernel_of_every_live_nest():
    assert len(fused(softmax(), NoFusion())) == 5


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_softmax_of_few_short_rows_is_one_kernel(rows):
    assert len(fused(softmax(rows, 64))) == 1


def test_an_encoder_layer_has_three_kernels_and_equal_layers_equal_ones():
    one, four = fused(encoder(1)), fused(encoder(4))
    assert len(one) == 3 and len(four) == 12
    assert len({canonical(k)[0] for k in four}) == len({canonical(k)[0] for k in one}) == 2


def test_the_biases_and_activation_join_between_two_matmuls():
    (gelu,) = [k for k in fused(encoder(1)) if len(k.steps) == 1]
    assert gelu.steps[0].kind == "map" and len(gelu.rows) == 2


def test_wide_programs_get_kernels_of_bounded_results():
    kernels = fused(wide(40))
    assert sorted(len(k.writes()) for k in kernels) == [4, 12, 12, 12]
    assert len(fused(wide(40), Greedy(max_results=1))) == 40


def test_long_chains_get_kernels_of_bounded_size():
    kernels = fused(chain(400, 8), Greedy(max_body=20, max_nodes=100))
    assert 5 <= len(kernels) < 40
    # an operation of the chain is at most four scalar ones
    assert all(sum(s.body.size for s in k.steps) <= 3 * 100 for k in kernels)


# ---- folds over everything, along columns, along rows ----------------------------------------------------------


@pytest.mark.parametrize("size", [8, 1024])
def test_a_full_sum_takes_what_feeds_it_and_its_epilogue(size):
    b = Builder()
    x = b.input((size, size))
    e = b.map((size, size), lambda i, j: op("exp", b.load(x, i, j)))
    total = b.reduce("sum", (), (size, size), lambda r, q: b.load(e, r, q))
    mean = b.map((), lambda: op("mul", b.load(total), const(2.0**-20, "f32")))
    (kernel,) = fused(b.program(e, mean))
    assert kernel.rows == () and kernel.local == {total}


def test_maps_do_not_become_one_row_without_a_full_sum():
    b = Builder()
    x = b.input((64, 64))
    e = b.map((64, 64), lambda i, j: op("exp", b.load(x, i, j)))
    turned = b.map((64, 64), lambda i, j: op("add", b.load(e, j, i), b.load(e, i, j)))
    made = plan(b.program(e, turned), check=False)
    assert made.after.kernels == 2 and made.log[-1].code == "greedy.no_row"


def test_a_column_sum_does_not_take_the_rows_that_feed_it():
    b = Builder()
    x = b.input((256, 256))
    e = b.map((256, 256), lambda i, j: op("exp", b.load(x, i, j)))
    columns = b.reduce("sum", (256,), (256,), lambda j, r: b.load(e, r, j))
    assert len(fused(b.program(e, columns))) == 2


@pytest.mark.parametrize("across", [True, False], ids=["columns", "rows"])
def test_folds_of_one_input_along_one_axis_become_one_kernel(across):
    b = Builder()
    x = b.input((256, 256))

    def at(i, r):
        return b.load(x, r, i) if across else b.load(x, i, r)

    mean = b.reduce("sum", (256,), (256,), at)
    spread = b.reduce("max", (256,), (256,), lambda i, r: op("sub", at(i, r), b.load(mean, i)))
    assert len(fused(b.program(mean, spread))) == 1


def test_folds_across_and_along_rows_stay_apart():
    b = Builder()
    x, y = b.input((256, 256)), b.input((256, 256))
    columns = b.reduce("sum", (256,), (256,), lambda i, r: b.load(x, r, i))
    rows = b.reduce("max", (256,), (256,), lambda i, r: op("sub", b.load(y, i, r), b.load(columns, i)))
    made = plan(b.program(rows), check=False)
    assert made.after.kernels == 2 and made.log[-1].code == "greedy.pattern"


def middle_softmax(n, c, h):
    b = Builder()
    x = b.input((n, c, h))
    m = b.reduce("max", (n, h), (c,), lambda i, k, r: b.load(x, i, r, k))
    e = b.map((n, c, h), lambda i, j, k: op("exp", op("sub", b.load(x, i, j, k), b.load(m, i, k))))
    z = b.reduce("sum", (n, h), (c,), lambda i, k, r: b.load(e, i, r, k))
    return b.program(b.map((n, c, h), lambda i, j, k: op("div", b.load(e, i, j, k), b.load(z, i, k))))


def test_softmax_over_a_middle_dimension_is_one_kernel_when_rows_are_many_and_small():
    assert len(fused(middle_softmax(16, 8, 32))) == 1
    assert len(fused(middle_softmax(2, 8, 32))) == 1  # one thread does it all
    few, wide = plan(middle_softmax(2, 64, 1024), check=False), plan(middle_softmax(16, 1024, 1024), check=False)
    assert (few.after.kernels, wide.after.kernels) == (4, 4)
    assert "greedy.few_rows" in {e.code for e in few.log} and "greedy.wide_row" in {e.code for e in wide.log}


def test_results_in_different_layouts_stay_apart():
    b = Builder()
    x = b.input((64, 64))
    first, second = (b.map((64, 64), lambda i, j: op("exp", b.load(x, i, j))) for _ in range(2))
    flat = b.buffers[second]
    b.buffers[second] = type(flat)(flat.shape, tuple(reversed(flat.strides)), flat.dtype)
    made = plan(b.program(first, second), check=False)
    assert made.after.kernels == 2 and made.log[-1].code == "greedy.layouts"


def test_heavy_work_is_repeated_only_where_it_is_cheap():
    def program(inner):
        """exp of a vector, read along the rows (`inner` False) or the columns of a matrix."""
        b = Builder()
        x, v = b.input((4096, 1024)), b.input((1024 if inner else 4096,))
        e = b.map(b.shape(v), lambda i: op("exp", b.load(v, i)))
        out = b.map((4096, 1024), lambda i, j: op("mul", b.load(x, i, j), b.load(e, j if inner else i)))
        return b.program(out)

    assert len(fused(program(inner=False))) == 1  # once a row
    assert len(fused(program(inner=True))) == 2  # once an element


def test_heavy_work_stays_out_of_scans():
    b = Builder()
    x = b.input((64, 64))
    e = b.map((64, 64), lambda i, j: op("exp", b.load(x, i, j)))
    (kernel,) = fused(b.program(b.scan("cumsum", (64, 64), 1, lambda i, j: b.load(e, i, j))))
    assert [s.kind for s in kernel.steps] == ["map", "cumsum"]


def test_an_extern_call_keeps_what_it_reads_in_memory():
    b = Builder()
    x = b.input((64, 64))
    a = b.map((64, 64), lambda i, j: op("exp", b.load(x, i, j)))
    m = b.extern(aten.mm.default, (64, 64), a, a)
    program = b.program(b.map((64, 64), lambda i, j: op("add", b.load(m, i, j), b.load(a, i, j))))
    kernels = apply_program(program, plan(program, check=False))
    assert [type(item) for item in kernels.items] == [Kernel, Extern, Kernel]
    assert all(not k.local for k in kernels.items if isinstance(k, Kernel))


# ---- a policy of a user's own ----------------------------------------------------------------------------------


class Epilogues:
    """Merge a map into the kernel of the one thing that it reads from; nothing else."""

    name, version = "epilogues", "1"

    def decide(self, graph):
        for name in graph.nests:
            made = [b for b in graph.nest_work(name).reads if graph.has_nest(b)]
            if graph.nest(name).kind == "map" and len(made) == 1:
                if graph.nest(made[0]).kind == "map" and not graph.pinned(made[0]) and len(graph.readers(made[0])) == 1:
                    yield Inline(made[0], name, why="one reader")
                else:
                    yield Fuse(made[0], name, graph.depth(made[0], name), why="epilogue")


def test_a_policy_is_any_object_with_three_members():
    made = plan(residual_layer_norm(), policy=Epilogues(), check=False)
    assert made.policy == "epilogues 1" and made.after.kernels < made.before.kernels
    assert len(fused(chain(), Epilogues())) == 1


def test_machines_differ_in_what_is_cheaper_to_repeat():
    """A GPU computes more for each byte, and a launch costs it more, than a CPU."""
    program = loops.parse_ir(
        """// dialect: loops 2
graph(%x: f32[1024], %w: f32[1024]) {
  %e: f32[1024] = map[i0: 1024] exp(mul(load(%x, i0), load(%w, i0)))
  %y: f32[16, 1024] = map[i0: 16, i1: 1024] add(load(%e, i1), index_f(i0))
  return (%y,)
}
""".replace("index_f(i0)", "cast(index(i0), f32)")
    )
    made = {isa: plan(program, target=Target(device, isa)) for device, isa in (("cpu", "avx512"), ("cuda", "sm_90"))}
    assert made["avx512"].cost != made["sm_90"].cost
    assert (made["avx512"].after.kernels, made["sm_90"].after.kernels) == (2, 1)


def test_accelerators_are_costed_by_their_own_numbers():
    program = loops.parse_ir("""// dialect: loops 2
graph(%x: f32[65536, 1024]) {
  %y: f32[65536, 1024] = map[i0: 65536, i1: 1024] neg(load(%x, i0, i1))
  return (%y,)
}
""")
    us = [plan(program, target=Target("cuda", isa)).before.predicted_us for isa in ("sm_80", "sm_90", "gfx942")]
    assert us[0] > us[1] > us[2] > 0
    wide, narrow = (plan(program, target=Target(isa="avx512", threads=n)).before.predicted_us for n in (16, 1))
    assert narrow > 10 * wide


def test_inductor_like_keeps_maps_over_other_ranges_apart():
    """Queries and keys with a table of positions in common, heads in one axis or in two: as many points, two loops."""

    def kernels(heads):
        b = Builder()
        q, k, table = b.input((2, 8, 16)), b.input((2, 4, 16)), b.input((2, 16))
        a = b.map((2, 8, 16), lambda i, j, d: op("mul", b.load(q, i, j, d), b.load(table, i, d)))
        if heads == 2:
            c = b.map((2, 4, 2, 16), lambda i, j, r, d: op("mul", b.load(k, i, j, d), b.load(table, i, d)))
        else:
            c = b.map((2, 8, 16), lambda i, j, d: op("mul", b.load(q, i, j, d), b.load(table, i, d)))
        return plan(b.program(a, c), policy=InductorLike()).after.kernels

    assert (kernels(heads=1), kernels(heads=2)) == (1, 2)
