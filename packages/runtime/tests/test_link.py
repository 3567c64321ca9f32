"""The generated wrapper over hand-written units: arena, externs, views, results that would alias, sizes, threads."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from intarsia_ir.aten import functional_form, parse_ir
from intarsia_ir.errors import InternalError, InvalidArgumentError, UnsupportedError
from intarsia_ir.records import KernelSource, Launch, Target
from intarsia_loops import to_fx
from intarsia_loops.index import axis, lift, size_symbol
from intarsia_loops.program import (
    Buffer,
    Condition,
    Extern,
    Kernel,
    Nest,
    Placement,
    Program,
    TensorRef,
    const,
    load,
    val,
)
from intarsia_runtime import Cache, Runner, build, link
from intarsia_runtime.link import _draws

aten = torch.ops.aten
UNIT = """typedef long i64;
extern "C" void add1(float* x, float* y) { for (i64 i = 0; i < 6; i++) y[i] = x[i] + 1; }
extern "C" void times2(float* x, float* y) { for (i64 i = 0; i < 6; i++) y[i] = x[i] * 2; }
extern "C" void both(float* x, float* y, float* z) { for (i64 i = 0; i < 6; i++) { y[i] = x[i] + 1; z[i] = x[i] * 2; } }
extern "C" void sized(float* x, float* y, i64 n) { for (i64 i = 0; i < n; i++) y[i] = x[i] + n; }
"""
ENTRIES = {"add1": 2, "times2": 2, "both": 3, "sized": 3}
ITEM = Kernel((), ())


def buffer(*shape: Any, strides: tuple[Any, ...] | None = None, dtype: str = "f32") -> Buffer:
    if strides is None:
        strides = tuple(lift(1) for _ in shape)
        for n in range(len(shape) - 1, 0, -1):
            strides = (*strides[: n - 1], strides[n] * shape[n], *strides[n:])
    return Buffer(tuple(map(lift, shape)), tuple(map(lift, strides)), dtype)


def ref(name: str, shape: tuple[Any, ...], strides: tuple[Any, ...], offset: Any = 0) -> TensorRef:
    return TensorRef(name, tuple(map(lift, shape)), tuple(map(lift, strides)), lift(offset))


def whole(name: str) -> TensorRef:
    return ref(name, (2, 3), (3, 1))


@pytest.fixture
def linked(cache: Cache, target: Target) -> Callable[..., Runner]:
    """Link a program whose items are externs or (entry, buffers[, sizes]) of UNIT."""

    def make(
        items: list[Any],
        outputs: tuple[Any, ...],
        *,
        inputs: tuple[str, ...] = ("x",),
        buffers: Mapping[str, Buffer] | None = None,
        placement: Placement | None = None,
        constants: Mapping[str, Any] | None = None,
        debug: bool = True,
    ) -> Runner:
        launches = tuple(
            Launch(item[0], item[1], item[2] if len(item) > 2 else (), (n, n + 1))
            for n, item in enumerate(items)
            if isinstance(item, tuple)
        )
        every = tuple(Launch(e, ("x",) * n) for e, n in ENTRIES.items())  # so that all trampolines are built
        library = build(KernelSource(UNIT, "cpp", launches=every), target, cache=cache)
        names = {*inputs, *(b for launch in launches for b in launch.buffers)}
        names |= {out for item in items if isinstance(item, Extern) for out in item.outs if out}
        every_buffer = {name: buffer(2, 3) for name in sorted(names) if not name.startswith(("s", "u"))} | dict(
            buffers or {}
        )
        program = Program(
            every_buffer,
            inputs,
            tuple(ITEM if isinstance(item, tuple) else item for item in items),
            outputs,
            placement=placement,
            constants=constants or {},
        )
        return link(program, KernelSource(UNIT, "cpp", launches=launches), library, debug=debug)

    return make


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(6.0).view(2, 3)


def test_one_kernel(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    run = linked([("add1", ("x", "y"))], (whole("y"),), debug=False)
    (y,) = run(x)
    assert torch.equal(y, x + 1)
    assert run.source == (
        "def run(x):\n"
        "    if _profiled(): return _ranged(x)\n"
        "    y = _empty_strided((2, 3), (3, 1), dtype=_f32, device=_device)\n"
        "    _add1(x.data_ptr(), y.data_ptr())\n"
        "    return (y, )\n"
    )
    assert run(x)[0].data_ptr() != y.data_ptr()


def test_an_input_that_starts_inside_its_storage(linked: Callable[..., Runner]) -> None:
    base = torch.arange(20.0)
    x = base[4:10].view(2, 3)
    neg = Extern(("n",), aten.neg.default, (ref("x", (2,), (3,), 1),))
    run = linked([neg, ("add1", ("x", "y"))], (whole("y"), ref("n", (2,), (1,))), buffers={"n": buffer(2)})
    y, n = run(x)
    assert torch.equal(y, x + 1)
    assert torch.equal(n, -x[:, 1])


def test_intermediates_live_in_one_arena(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    run = linked(
        [("add1", ("x", "a")), ("times2", ("a", "b")), ("add1", ("b", "y"))],
        (whole("y"),),
        placement=Placement(128, {"a": 0, "b": 64}),
    )
    assert torch.equal(run(x)[0], (x + 1) * 2 + 1)
    assert "_empty(128, dtype=_u8, device=_device)" in run.source
    assert "_times2(_at, _at + 64)" in run.source


def test_without_a_plan_intermediates_are_dropped_early(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    run = linked([("add1", ("x", "a")), ("times2", ("a", "b")), ("add1", ("b", "y"))], (whole("y"),))
    assert torch.equal(run(x)[0], (x + 1) * 2 + 1)
    lines = [line.strip() for line in run.source.splitlines()]
    assert lines.index("del a") < lines.index("_add1(b.data_ptr(), y.data_ptr())")
    assert "del b" in lines


class Live(TorchDispatchMode):
    """Counts the bytes of the tensors that calls under it made and that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in given:
                self.now += tensor.untyped_storage().nbytes()
                weakref.finalize(tensor, self.freed, tensor.untyped_storage().nbytes())
        self.peak = max(self.peak, self.now)
        return made

    def freed(self, n_bytes: int) -> None:
        self.now -= n_bytes


@pytest.mark.parametrize("apart", [False, True])
def test_buffers_apart_from_the_arena_die_at_their_last_use(
    linked: Callable[..., Runner], x: torch.Tensor, apart: bool
) -> None:
    """In the arena a, b and c stay beside the results of calls; apart, what a held is free when d and e are made."""
    calls = [
        ("add1", ("x", "a")),
        ("times2", ("a", "b")),
        ("both", ("b", "c", "a2")),
        Extern(("d",), aten.add.Tensor, (whole("c"), whole("a2"))),
        Extern(("e",), aten.neg.default, (whole("d"),)),
        Extern(("f",), aten.add.Tensor, (whole("d"), whole("e"))),
    ]
    placement = None if apart else Placement(256, {"a": 0, "b": 64, "c": 128, "a2": 192})
    run = linked(calls, (whole("f"),), placement=placement, debug=False)
    with Live() as live:
        (f,) = run(x)
    assert torch.equal(f, torch.zeros(2, 3))
    assert live.peak == (3 * 24 if apart else 256 + 3 * 24)
    assert live.now == 24


def test_what_nothing_reads_of_a_call_is_freed_at_once(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    buffers = {"v": buffer(2), "n": buffer(2, 3)}
    call = Extern(("v", "i"), aten.max.dim, (whole("x"), 1))
    calls = [call, Extern(("n",), aten.neg.default, (whole("x"),))]
    run = linked(calls, (ref("v", (2,), (1,)), whole("n")), buffers=buffers, debug=False)
    with Live() as live:
        v, n = run(x)
    assert torch.equal(v, x.max(1).values) and torch.equal(n, -x)
    assert live.peak == 2 * 4 + 6 * 4  # and not the indices, of 16 bytes, beside the second call's


def test_extern_reads_the_arena(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    mm = Extern(("m",), aten.mm.default, (ref("a", (2, 3), (3, 1)), ref("b", (3, 2), (1, 3))))
    run = linked(
        [("both", ("x", "a", "b")), mm, ("add1", ("x", "y"))],
        (ref("m", (2, 2), (2, 1)), whole("y")),
        buffers={"m": buffer(2, 2)},
        placement=Placement(256, {"a": 64, "b": 128}),
    )
    m, y = run(x)
    assert torch.equal(m, (x + 1) @ (x * 2).t())
    assert torch.equal(y, x + 1)
    assert run.source.count(".view(_f32)") == 1
    assert "_view1 = _as_strided(_arena_f32, (3, 2), (1, 3), 32)" in run.source
    assert "m = _aten_mm_default(_view0, _view1)" in run.source


def test_results_that_are_views_of_a_buffer(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    run = linked([("add1", ("x", "y"))], (ref("y", (3, 2), (1, 3)),))
    (result,) = run(x)
    assert torch.equal(result, (x + 1).t())
    assert result.stride() == (1, 3)


def test_results_share_no_memory(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    outputs = (whole("y"), ref("y", (3,), (1,), 3), whole("x"), ref("x", (4, 3), (0, 1)), whole("c"), 7, None)
    run = linked([("add1", ("x", "y"))], outputs, buffers={"c": buffer(2, 3)}, constants={"c": torch.ones(2, 3)})
    results = run(x)
    expected = [x + 1, (x + 1)[1], x, x[:1].expand(4, 3), torch.ones(2, 3)]
    assert results[5:] == (7, None)
    for result, value in zip(results, expected, strict=False):
        assert torch.equal(result, value)
    storages = {t.untyped_storage().data_ptr() for t in (x, *results[:5])}
    assert len(storages) == 6
    assert run(x)[4] is not results[4]


def test_extern_with_several_results(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    norm = Extern(("n", "", "r"), aten.native_layer_norm.default, (whole("x"), (lift(3),), None, None, 1e-5))
    run = linked([norm], (whole("n"), ref("r", (2, 1), (1, 1))), buffers={"r": buffer(2, 1)})
    expected = aten.native_layer_norm.default(x, [3], None, None, 1e-5)
    for result, value in zip(run(x), (expected[0], expected[2]), strict=True):
        assert torch.equal(result, value)


def test_extern_with_a_list_of_results(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    """Schemas that say that a result is a view are obeyed: it is copied."""
    unbind = Extern(("", "b"), aten.unbind.int, (whole("x"),))
    run = linked([unbind], (ref("b", (3,), (1,)),), buffers={"b": buffer(3)})
    (b,) = run(x)
    assert torch.equal(b, x[1])
    assert b.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


@pytest.mark.parametrize(("written", "kept"), [("y", ""), ("y", "y"), ("x", "")])
def test_extern_that_writes_takes_memory_that_nothing_else_needs(
    linked: Callable[..., Runner], x: torch.Tensor, written: str, kept: str
) -> None:
    """An input, and what is read afterwards, is copied before."""
    given = []
    with torch.library._scoped_library("runtime_link", "FRAGMENT") as library:
        library.define("bump(Tensor(a!) x, Tensor y) -> ()")

        def bump(x: torch.Tensor, y: torch.Tensor) -> None:
            given.append(x.data_ptr())
            x.add_(y)

        library.impl("bump", bump, "CPU")
        form = functional_form(torch.ops.runtime_link.bump.default)
        other = "x" if written == "y" else "y"
        items = [("add1", ("x", "y")), Extern(("n",), form, (whole(written), whole(other)))]
        run = linked(items, (whole("n"), *([whole(kept)] if kept else [])))
        before = x.clone()
        n, *others = run(x)
    assert torch.equal(n, 2 * before + 1) and torch.equal(x, before)
    assert all(torch.equal(other, before + 1) for other in others)
    is_in_place = written == "y" and not kept
    assert ("runtime_link_bump_default_0" in run.source) == is_in_place
    assert given == [n.data_ptr()]


def test_extern_whose_results_include_a_number(linked: Callable[..., Runner]) -> None:
    """outs has entries for the tensor results only."""
    frexp = Extern(("m", "e"), aten.frexp.Tensor, (whole("x"),))
    run = linked([frexp], (whole("m"), whole("e")), buffers={"e": buffer(2, 3, dtype="i32")})
    mantissa, exponent = run(torch.full((2, 3), 6.0))
    assert (mantissa[0, 0].item(), exponent[0, 0].item()) == (0.75, 3)


def test_extern_result_that_may_be_its_operand(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    dropout = Extern(("d", ""), aten.native_dropout.default, (whole("x"), 0.5, False))
    (d,) = linked([dropout], (whole("d"),))(x)
    assert torch.equal(d, x)
    assert d.data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    ("call", "rest", "kwargs", "draws"),
    [
        (aten.neg.default, (), {}, False),
        (aten.native_dropout.default, (0.5, True), {}, True),
        (aten.scaled_dot_product_attention.default, (whole("x"), whole("x")), {}, False),
        (aten.scaled_dot_product_attention.default, (whole("x"), whole("x"), None, 0.0), {}, False),
        (aten.scaled_dot_product_attention.default, (whole("x"), whole("x"), None, 0.1), {}, True),
        (aten.scaled_dot_product_attention.default, (whole("x"), whole("x")), {"dropout_p": 0.1}, True),
        (torch.neg, (), {}, True),
    ],
)
def test_which_calls_may_draw(call: Any, rest: tuple[Any, ...], kwargs: dict[str, Any], draws: bool) -> None:
    """Attention draws where it has dropout only; of what isn't an operator nothing is known."""
    assert _draws(Extern(("n",), call, (whole("x"), *rest), tuple(kwargs.items()))) is draws


def test_extern_result_with_other_strides(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    """ATen's layout wins over nothing: the program was planned with the strides of its buffers."""
    neg = Extern(("n",), aten.neg.default, (whole("x"),))
    run = linked(
        [neg, ("add1", ("n", "y"))], (whole("y"), ref("n", (2, 3), (1, 2))), buffers={"n": buffer(2, 3, strides=(1, 2))}
    )
    y, n = run(x)
    assert n.stride() == (1, 2)
    assert torch.equal(n, -x)
    assert torch.equal(y.view(-1), 1 - x.t().reshape(-1))


def test_extern_result_with_other_strides_of_size_one(linked: Callable[..., Runner]) -> None:
    neg = Extern(("n",), aten.neg.default, (ref("x", (1, 3), (3, 1)),))
    run = linked([neg], (ref("n", (1, 3), (77, 1)),), buffers={"x": buffer(1, 3), "n": buffer(1, 3, strides=(77, 1))})
    (n,) = run(torch.ones(1, 3))
    assert n.stride() == (77, 1)


def test_extern_result_of_another_size_is_a_fault(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    neg = Extern(("n",), aten.neg.default, (ref("x", (3,), (1,)),))
    run = linked([neg], (whole("n"),), debug=False)
    with pytest.raises(InternalError, match=r"float32 \(3,\), where torch.float32 \(2, 3\) was predicted"):
        run(x)


def test_extern_result_of_another_type_is_a_fault(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    neg = Extern(("n",), aten.neg.default, (whole("x"),))
    run = linked([neg], (whole("n"),), buffers={"n": buffer(2, 3, dtype="i64")}, debug=False)
    with pytest.raises(InternalError, match=r"float32 \(2, 3\), where torch.int64 \(2, 3\) was predicted"):
        run(x)


def test_extern_result_of_another_size_that_only_a_library_gets(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    """Eager's kernel gave it, and eager's kernel takes it: nothing relies on what was predicted."""
    calls = [
        Extern(("n",), aten.neg.default, (ref("x", (3,), (1,)),)),
        Extern(("t",), aten.sum.default, (whole("n"),)),
    ]
    run = linked(calls, (ref("t", (), ()),), buffers={"n": buffer(2, 3), "t": buffer()}, debug=False)
    assert run.handed_on == frozenset() and run.kept.keys() == {0}
    assert run(x)[0] == -3


def test_extern_result_of_another_size_that_a_kernel_or_a_view_reads(
    linked: Callable[..., Runner], x: torch.Tensor
) -> None:
    neg = Extern(("n",), aten.neg.default, (ref("x", (3,), (1,)),))
    of_view = Extern(("t",), aten.sum.default, (ref("n", (3,), (1,)),))
    for reads, result in ((("add1", ("n", "y")), whole("y")), (of_view, ref("t", (), ()))):
        run = linked([neg, reads], (result,), buffers={"n": buffer(2, 3), "t": buffer()}, debug=False)
        with pytest.raises(InternalError, match="was predicted"):
            run(x)


def test_a_result_that_the_caller_hands_on(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    neg = Extern(("n",), aten.neg.default, (ref("x", (3,), (1,)),))
    run = linked([neg], (whole("n"),), buffers={"n": buffer(2, 3)}, debug=False)
    run.kept[0].relied_on = False
    assert run(x)[0].shape == (3,)
    with pytest.raises(InternalError, match="was predicted"):  # a type is relied on in any case
        run.kept[0](x.double(), (2, 3), torch.float32)
    total = Extern(("t",), aten.sum.default, (whole("x"),))
    assert linked([total], (ref("t", (), ()),), buffers={"t": buffer()}, debug=False).handed_on == {0}
    both = linked([total, ("add1", ("x", "y"))], (ref("t", (), ()), whole("y")), buffers={"t": buffer()}, debug=False)
    assert both.handed_on == frozenset()


def test_arguments_of_every_kind(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    kwargs = (("alpha", float("inf")),)
    add = Extern(("a",), aten.add.Tensor, (whole("x"), whole("x")), kwargs)
    cat = Extern(("c",), aten.cat.default, ((whole("a"), whole("x")), 1))
    to = Extern(("t",), aten._to_copy.default, (whole("x"),), (("dtype", torch.float64),))
    run = linked(
        [add, cat, to],
        (ref("c", (2, 6), (6, 1)), whole("t")),
        buffers={"c": buffer(2, 6), "t": buffer(2, 3, dtype="f64")},
    )
    c, t = run(x + 1)
    assert torch.equal(c, torch.cat([torch.full((2, 3), float("inf")), x + 1], 1))
    assert t.dtype == torch.float64


def test_extern_for_its_effect(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    check = Extern((), aten._assert_async.msg, (ref("b", (), ()), "x is negative"))
    run = linked(
        [Extern(("b",), aten.any.default, (whole("x"),)), check, ("add1", ("x", "y"))],
        (whole("y"),),
        buffers={"b": buffer(dtype="b8")},
    )
    assert torch.equal(run(x)[0], x + 1)
    with pytest.raises(RuntimeError, match="x is negative"):
        run(torch.zeros(2, 3))


def test_random_externs_draw_from_torchs_generator(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    one = Extern(("a",), aten.rand_like.default, (whole("x"),))
    two = Extern(("b",), aten.rand_like.default, (whole("x"),))
    run = linked([one, two], (whole("a"), whole("b")))
    torch.manual_seed(3)
    results = run(x)
    torch.manual_seed(3)
    assert torch.equal(results[0], torch.rand(2, 3))
    assert torch.equal(results[1], torch.rand(2, 3))


def test_externs_run_below_autograd_and_autocast(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    mm = Extern(("m",), aten.mm.default, (whole("x"), ref("x", (3, 2), (1, 3))))
    run = linked([mm], (ref("m", (2, 2), (2, 1)),), buffers={"m": buffer(2, 2)})
    with torch.autocast("cpu"):
        (m,) = run(x.requires_grad_())
    assert m.dtype == torch.float32
    assert not m.requires_grad
    assert torch.is_grad_enabled()


def test_sizes_are_passed_or_read_off_an_input(linked: Callable[..., Runner]) -> None:
    s0 = size_symbol("s0")
    buffers = {"x": buffer(s0), "y": buffer(s0), "z": buffer(s0 * 2)}
    kernel = ("sized", ("x", "y"), ("s0",))
    cat = Extern(("z",), aten.cat.default, ((ref("y", (s0,), (1,)), ref("x", (s0,), (1,))),))
    outputs = (ref("z", (s0 * 2,), (1,)), ref("z", (s0 // 2,), (2,), s0))
    read = linked([kernel, cat], outputs, buffers=buffers)
    passed = linked([kernel, cat], outputs, inputs=("s0", "x"), buffers=buffers)
    for n in (2, 5, 9):
        x = torch.arange(float(n))
        expected = torch.cat([x + n, x])
        for results in (read(x), passed(n, x)):
            assert torch.equal(results[0], expected)
            assert torch.equal(results[1], expected[n::2][: n // 2])


def test_a_size_that_nothing_shows(linked: Callable[..., Runner]) -> None:
    s0 = size_symbol("s0")
    with pytest.raises(UnsupportedError, match="size symbol s0"):
        linked([("sized", ("x", "y"), ("s0",))], (whole("y"),), buffers={"y": buffer(s0 * 2, 3)})


def test_empty_tensors(linked: Callable[..., Runner]) -> None:
    s0 = size_symbol("s0", lo=0)
    buffers = {"x": buffer(s0), "y": buffer(s0)}
    run = linked([("sized", ("x", "y"), ("s0",))], (ref("y", (s0,), (1,)),), buffers=buffers)
    (y,) = run(torch.empty(0))
    assert y.shape == (0,)


def test_constants_are_bound(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    run = linked([("add1", ("c", "y"))], (whole("y"),), constants={"c": x * 3}, buffers={"c": buffer(2, 3)})
    assert torch.equal(run(x)[0], x * 3 + 1)
    scalar = Extern(("m",), aten.mul.Tensor, (whole("x"), ref("k", (), ())))
    run = linked([scalar], (whole("m"),), constants={"k": 4}, buffers={"k": buffer()})
    assert torch.equal(run(x)[0], x * 4)


def test_names_that_are_no_identifiers(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    names = ("x.1", "x_1", "_x_1", "for", "1", "", "run", "_arena", "é")
    chain = [("add1", pair) for pair in itertools.pairwise(names)]
    run = linked(chain, (whole(names[-1]),), inputs=(names[0],), buffers={name: buffer(2, 3) for name in names})
    assert torch.equal(run(x)[0], x + len(names) - 1)


def test_debug_checks_what_guards_should_have(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    run = linked([("add1", ("x", "y"))], (whole("y"),), debug=True)
    for wrong in (x.double(), x.t(), x[0], x.expand(2, 2, 3), x.t().contiguous().t(), 3):
        with pytest.raises(InternalError, match="input x"):
            run(wrong)


def test_launches_must_cover_the_program(linked: Callable[..., Runner], cache: Cache, target: Target) -> None:
    library = build(KernelSource(UNIT, "cpp"), target, cache=cache)
    program = Program({"x": buffer(2, 3), "y": buffer(2, 3)}, ("x",), (ITEM, ITEM), (whole("y"),))
    for launches in (
        (),
        (Launch("add1", ("x", "y"), (), (1, 2)),),
        (Launch("add1", ("x", "y"), (), (0, 2)), Launch("add1", ("x", "y"), (), (1, 2))),
        (Launch("add1", ("x", "y"), (), (0, 0)),),
    ):
        with pytest.raises(InvalidArgumentError):
            link(program, KernelSource(UNIT, "cpp", launches=launches), library)


def test_a_graph_module_is_taken_for_its_program(linked: Callable[..., Runner], cache: Cache, target: Target) -> None:
    axis0 = axis("i0", 6)
    nest = Nest("y", (axis0,), (), "map", val("add", load("x", (axis0,), "f32"), const(1.0, "f32"), dtype="f32"), "f32")
    buffers = {"x": buffer(6), "y": buffer(6)}
    program = Program(buffers, ("x",), (Kernel((axis0,), (nest,)),), (ref("y", (6,), (1,)),))
    source = KernelSource(UNIT, "cpp", launches=(Launch("add1", ("x", "y"), (), (0, 1)),))
    run = link(to_fx(program), source, build(source, target, cache=cache))
    assert run(torch.zeros(6))[0].tolist() == [1] * 6


def test_threads_share_one_wrapper(linked: Callable[..., Runner]) -> None:
    mm = Extern(("m",), aten.mm.default, (ref("a", (2, 3), (3, 1)), ref("b", (3, 2), (1, 3))))
    run = linked(
        [("both", ("x", "a", "b")), mm],
        (ref("m", (2, 2), (2, 1)),),
        buffers={"m": buffer(2, 2)},
        placement=Placement(128, {"a": 0, "b": 64}),
    )
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = torch.full((2, 3), float(seed))
        expected = (x + 1) @ (x * 2).t()
        wrong.extend(seed for _ in range(300) if not torch.equal(run(x)[0], expected))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_outlives_a_dropped_wrapper(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    run = linked([("add1", ("x", "y"))], (whole("y"),), constants={"c": torch.ones(2, 3)}, buffers={"c": buffer(2, 3)})
    run(x)
    gone = weakref.ref(run)
    del run
    gc.collect()
    assert gone() is None


def test_tracebacks_show_the_generated_line(linked: Callable[..., Runner]) -> None:
    import traceback

    run = linked([("add1", ("x", "y"))], (whole("y"),), debug=False)
    try:
        run(None)
    except AttributeError as error:
        assert "_add1(x.data_ptr(), y.data_ptr())" in "".join(traceback.format_exception(error))


def test_sizes_that_calls_give_are_read_from_their_results(linked: Callable[..., Runner]) -> None:
    """A call's result tells u0, and a number is u1; nothing records the run, which would keep these sizes."""
    u0, u1 = size_symbol("u0", 0), size_symbol("u1", 0)
    buffers = {
        "x": buffer(6),
        "n": Buffer((), (), "i64"),
        "at": Buffer((u0, lift(1)), (lift(1), u0), "i64"),
        "y": Buffer((u1,), (lift(1),), "f32"),
    }
    items = [
        Extern(("at",), aten.nonzero.default, (ref("x", (6,), (1,)),)),
        Extern(("u1",), aten._local_scalar_dense.default, (ref("n", (), ()),)),
        Extern((), aten._assert_scalar.default, (Condition("<=", u1, u0), "more than there are")),
        Extern(("y",), aten.ones.default, ((u1,),)),
    ]
    run = linked(items, (TensorRef("y", (u1,), (lift(1),), lift(0)), u0), inputs=("x", "n"), buffers=buffers)
    x = torch.tensor([0.0, 1.0, 2.0, 0.0, 3.0, 0.0])
    for n in (0, 1, 3):
        y, found = run(x, torch.tensor(n))
        assert found == 3
        torch.testing.assert_close(y, torch.ones(n))
    with pytest.raises(RuntimeError, match="more than there are"):
        run(x, torch.tensor(4))
    assert run.symbolic and run.uses_host


def held_by(value: torch.Tensor) -> Any:
    text = """// dialect: aten 2
graph(%p: b8[], %x: f32[2, 3]) {
  %0: (f32[2, 3],) = cond[
    graph(%x: f32[2, 3]) {
      %0: f32[2, 3] = aten.neg.default(%x)
      return (%0,)
    }
    graph(%x: f32[2, 3]) {
      %0: f32[2, 3] = get_attr('held')
      %1: f32[2, 3] = aten.add.Tensor(%x, %0)
      return (%1,)
    }
  ](%p, %x)
  return (%x,)
}
"""
    gm = parse_ir(text, constants={"0.1.held": value})
    return next(node.target for node in gm.graph.nodes if node.op == "call_function")


def test_calls_with_equal_graphs_that_hold_other_tensors(linked: Callable[..., Runner], x: torch.Tensor) -> None:
    p = ref("p", (), ())
    calls = [Extern((f"y{n}",), held_by(torch.full((2, 3), float(n))), (p, whole("x"))) for n in range(2)]
    run = linked(calls, (whole("y0"), whole("y1")), inputs=("p", "x"), buffers={"p": buffer(dtype="b8")})
    for found, expected in zip(run(torch.tensor(False), x), (x, x + 1), strict=True):
        assert torch.equal(found, expected)
    assert all(torch.equal(y, -x) for y in run(torch.tensor(True), x))
    assert not run.draws
