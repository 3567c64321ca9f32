"""Breaks: where the graph ends, what the user is told, and that the program goes on as in eager."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
import torch
from tensor_executor import Executor

import intarsia_pyeval
import intarsia_tensorcapture
from intarsia_ir.errors import UnsupportedError
from intarsia_pyeval.breaks import REGISTRY

COUNT = 0


def branch(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def count_nonzero(x):
    if len(torch.nonzero(x)) > 1:
        return x + 1
    return x * 3


def say(x):
    y = x * 2
    print("in the middle")
    return y + 1


def say_in_a_loop(x):
    for i in range(4):
        x = x + i
        print(i)
        x = x * 2
    return x


def say_in_a_region(x):
    with torch.no_grad():
        y = x * 2
        print(torch.is_grad_enabled())
        z = y + 1
    print(torch.is_grad_enabled())
    return z * x


def say_in_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        print(y.dtype)
        z = y @ x
    return z, x @ x


def inner(x):
    y = x + 1
    print("inner")
    return y * 2


def say_inside_a_call(x):
    y = x * 3
    z = inner(y)
    return z - 1


def item(x):
    y = x * 2
    return y if int(x.sum().item()) == 3 else y + 1


def to_list(x):
    return sorted((x * 2).tolist()), x + 1


def catch(x):
    try:
        y = x + 1
        print("before")
        raise ValueError("v")
    except ValueError as error:
        print(error)
        return y * 2
    finally:
        print("finally")


def bad_shapes(x):
    try:
        return x @ torch.ones(7, 9)
    except RuntimeError as error:
        return str(error)[:10], x + 1


def global_counter(x):
    global COUNT
    COUNT += 1
    y = x + COUNT
    print(COUNT)
    COUNT += 1
    return y * COUNT


def generator_outside(x, items=None):
    items = (i for i in range(3)) if items is None else items
    for i in items:
        x = x + i
        print(i)
    return x


def comparison_loop(x):
    n = 0
    while x.sum() < 100:
        x = x * 2
        n += 1
    return x, n


def numpy_call(x):
    y = x + 1
    z = torch.from_numpy(np.unique(np.ones(3, dtype=np.float32)))
    return y * z


def closures(x):
    scale = 2

    def f(v):
        nonlocal scale
        scale += 1
        return v * scale

    y = f(x)
    print(scale)
    return f(y), scale


CASES = {
    "branch taken": (branch, [torch.ones(3)], {"tracer.tensor_branch"}),
    "branch not taken": (branch, [-torch.ones(3)], {"tracer.tensor_branch"}),
    "nonzero of many": (count_nonzero, [torch.ones(3)], {"tracer.data_dependent"}),
    "nonzero of none": (count_nonzero, [torch.zeros(3)], {"tracer.data_dependent"}),
    "print": (say, [torch.ones(3)], {"tracer.output"}),
    "print in a loop": (say_in_a_loop, [torch.ones(3)], {"tracer.output", "tracer.repeated"}),
    "print in no_grad": (say_in_a_region, [torch.ones(3, requires_grad=True)], {"tracer.output"}),
    "print in autocast": (say_in_autocast, [torch.ones(3, 3)], None),
    "print in a call": (say_inside_a_call, [torch.ones(3)], {"tracer.output"}),
    "item": (item, [torch.ones(3)], {"tracer.tensor_value"}),
    "tolist": (to_list, [torch.ones(3)], {"tracer.tensor_value"}),
    "catch": (catch, [torch.ones(3)], None),
    "bad shapes": (bad_shapes, [torch.ones(3)], {"tracer.operation_raised", "tracer.exception"}),
    "global": (global_counter, [torch.ones(3)], {"tracer.output"}),
    "generator": (generator_outside, [torch.ones(3)], None),
    "while": (comparison_loop, [torch.ones(3)], {"tracer.tensor_branch", "tracer.repeated"}),
    "numpy": (numpy_call, [torch.ones(3)], {"tracer.numpy"}),
    "closures": (closures, [torch.ones(3)], {"tracer.output"}),
}


def outcome(call, fn, args):
    """Return result and output."""
    global COUNT
    COUNT = 0
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = call(fn, *args)
    return result, printed.getvalue(), COUNT


@pytest.mark.parametrize("name", CASES)
def test_goes_on_as_in_eager(name):
    fn, args, codes = CASES[name]
    want = outcome(lambda f, *a: f(*a), fn, [a.clone().detach().requires_grad_(a.requires_grad) for a in args])
    executor = Executor()
    got = outcome(executor.call, fn, args)
    assert repr(got[0]) == repr(want[0])
    assert got[1:] == want[1:]
    breaks = [b for capture in executor.captures for b in capture.breaks]
    assert breaks
    if codes is not None:
        assert {b.code for b in breaks} <= codes
    for broken in breaks:
        assert broken.code in REGISTRY and broken.reason and broken.remedy and broken.origin is not None
        assert broken.origin.file == __file__


def test_print_makes_two_graphs():
    executor = Executor()
    with contextlib.redirect_stdout(io.StringIO()):
        executor.call(say, torch.ones(3))
    assert [c.graph_module is not None for c in executor.captures] == [True, True]
    assert executor.captures[0].breaks[0].origin.line == say.__code__.co_firstlineno + 2


def test_names_of_resume_functions():
    found = intarsia_tensorcapture.capture(branch, (torch.ones(3),))
    line = branch.__code__.co_firstlineno
    assert list(found.code.resumes) == [f"__resume_at_{line + 2}_0", f"__resume_at_{line + 3}_1"]
    assert [code.co_name for code in found.code.resumes.values()] == [
        f"branch (after the break in line {line + 1}, from line {line + k})" for k in (2, 3)
    ]


def test_a_loop_resumes_a_bounded_number_of_times():
    """However often the loop runs, the frames that wait for each other stay few."""

    def f(x, n):
        for i in range(n):
            x = x + i
            if x.sum() > 1e9:
                break
        return x

    executor = Executor()
    torch.testing.assert_close(executor.call(f, torch.ones(2), 500), f(torch.ones(2), 500))
    assert len(executor.captures) <= 3


@pytest.mark.parametrize("fn", [branch, say, item])
def test_fullgraph_raises_with_line_and_remedy(fn):
    with pytest.raises(UnsupportedError) as caught:
        intarsia_tensorcapture.capture(fn, (torch.ones(3),), fullgraph=True)
    error = caught.value
    assert error.code in REGISTRY and error.hints and error.where[0].file == __file__


def test_fullgraph_leaves_the_programs_own_exception_alone():
    def f(x):
        raise KeyError("mine")

    assert intarsia_tensorcapture.capture(f, (torch.ones(3),), fullgraph=True).breaks[0].code == "tracer.exception"


def test_frames_that_are_not_captured():
    def gen(x):
        yield x

    async def coroutine(x):
        return x

    for fn in (gen, coroutine):
        found = intarsia_tensorcapture.capture(fn, (torch.ones(3),))
        assert found.graph_module is None and found.code.code is fn.__code__
        assert found.breaks[0].code == "tracer.frame"


def test_nothing_to_compile_runs_natively_while_what_was_looked_at_stays():
    def f(x):
        print("first")
        return x + 1

    found = intarsia_tensorcapture.capture(f, (torch.ones(3),))
    assert found.graph_module is None and found.code.code is not f.__code__
    assert [g.source.name for g in found.guards] == ["print"]
    plain = intarsia_tensorcapture.capture(lambda x: x, (1,))
    assert plain.graph_module is None and plain.code.code.co_name == "<lambda>" and not plain.breaks

    def chosen(x, n):
        return x if n == 0 else x + n

    taken = intarsia_tensorcapture.capture(chosen, (torch.ones(3), 0))
    assert taken.graph_module is None and taken.code.code is chosen.__code__ and not taken.breaks
    assert [getattr(g, "value", None) for g in taken.guards if g.source.name == "n"][-1:] == [0]


def test_requested_break():
    from torch.compiler import disable

    @disable
    def helper(x):
        return x * 2

    def f(x):
        return helper(x + 1) - 1

    executor = Executor()
    torch.testing.assert_close(executor.call(f, torch.ones(3)), torch.full((3,), 3.0))
    assert executor.captures[0].breaks[0].code == "tracer.disabled"


def test_long_python_loops_end():
    limits = intarsia_pyeval.Limits(instructions=10_000)

    def f(x):
        n = 0
        for i in range(10**9):
            n += i
        return x + n

    found = intarsia_tensorcapture.capture(f, (torch.ones(3),), limits=limits)
    assert found.breaks[0].code == "tracer.budget"


def test_deep_recursion_ends():
    def down(x, n):
        return x if n == 0 else down(x + 1, n - 1)

    executor = Executor()
    torch.testing.assert_close(executor.call(down, torch.ones(2), 40), torch.full((2,), 41.0))
    found = intarsia_tensorcapture.capture(down, (torch.ones(2), 500), limits=intarsia_pyeval.Limits(depth=60))
    assert found.breaks[0].code == "tracer.depth" and found.code.code is down.__code__


def test_every_code_has_a_summary():
    for kind in REGISTRY.values():
        assert kind.summary and kind.remedy


def test_what_raises_behind_a_handler_that_nothing_reaches():
    def f(t):
        try:  # noqa: SIM105  (CPython drops the region and leaves its handler)
            pass
        except Exception as error:  # noqa: F841
            pass
        print(end="")
        return t + missing  # noqa: F821

    with pytest.raises(NameError, match="missing"):
        Executor().call(f, torch.ones(2))


def test_a_local_that_only_another_path_binds_is_passed_on_there():
    def f(a, b):
        if a.shape != b.shape:
            found = -a
        print(end="")
        return found.t() + 1

    executor = Executor()
    with pytest.raises(UnboundLocalError):
        executor.call(f, torch.ones(2, 3), torch.ones(2, 3))
    torch.testing.assert_close(executor.call(f, torch.ones(4, 3), torch.ones(2, 3)), torch.zeros(3, 4))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, w: (x @ w, 5)[1] + x, "same dtype"),
        (lambda x, w: torch.nn.functional.linear(x, w).sum() * 0 + x, "same dtype"),
    ],
)
def test_products_of_several_types_raise_as_in_eager_though_nobody_takes_them(function, message):
    with pytest.raises(RuntimeError, match=message):
        Executor().call(function, torch.ones(2, 3, dtype=torch.float64), torch.ones(3, 3))


def test_an_out_that_would_be_resized_breaks():
    def f(x, y):
        x.add_(1)
        torch.add(y, 1, out=x)
        return x * 2

    found = intarsia_tensorcapture.capture(f, (torch.ones(3, 3), torch.ones(1, 3)))
    assert found.breaks[0].code == "tracer.tensor_op" and "resize" in found.breaks[0].reason


class Subclass(torch.Tensor):
    """A tensor that isn't traced: torch asks it about every operation, and it doesn't say what it is made of."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


FOREIGN = {
    "subclass": ((torch.ones(3).as_subclass(Subclass),), "tracer.tensor_input", "test_breaks.Subclass"),
    "sparse": ((torch.eye(3).to_sparse(),), "tracer.tensor_input", "sparse_coo tensor"),
    "generator": (((n for n in range(3)),), "tracer.iterator", "generator that was made outside"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_traced_is_named(name):
    def f(x):
        return x + 1

    args, code, words = FOREIGN[name]
    found = intarsia_tensorcapture.capture(list_of if name == "generator" else f, args).breaks[0]
    assert found.code == code and words in found.reason


def list_of(x):
    return list(x)


SPARSE = {
    "embedding": (lambda w, i: torch.nn.functional.embedding(i, w, padding_idx=0, sparse=True), "sparse=True"),
    "bag": (lambda w, i: torch.nn.functional.embedding_bag(i, w, i, mode="sum", sparse=True), "sparse=True"),
    "gather": (lambda w, i: torch.gather(w, 0, i[:, None], sparse_grad=True), "sparse_grad=True"),
}


@pytest.mark.parametrize("name", SPARSE)
def test_lookups_whose_gradients_are_sparse_are_named(name):
    look_up, option = SPARSE[name]
    table, index = torch.ones(4, 3), torch.tensor([0, 2])
    assert not intarsia_tensorcapture.capture(look_up, (table, index)).breaks
    table.requires_grad_()
    found = intarsia_tensorcapture.capture(lambda w, i: (w * 2, look_up(w, i)), (table, index))
    assert found.breaks[0].code == "tracer.tensor_op" and f"sparse, as {option}" in found.breaks[0].reason
    assert found.graph_module is not None and "mul" in found.graph_module.code
    computed = intarsia_tensorcapture.capture(lambda w, i: look_up(w * 2, i), (table, index))
    assert computed.breaks and "mul" not in getattr(computed.graph_module, "code", "")


def test_transforms_are_named():
    seen = []

    def f(x):
        found = [intarsia_tensorcapture.capture(g, (x,)) for g in (lambda x: x + 1, lambda x: torch.sin(x))]
        seen.extend(capture.breaks[0] for capture in found)
        return x.sum()

    torch.func.grad(f)(torch.ones(3))
    torch.func.vmap(f)(torch.ones(2, 3))
    assert len(seen) == 4  # torch's own jvp scripts functions, which tests of packages must not
    assert {broken.code for broken in seen} == {"tracer.tensor_input"}
    assert all("torch.func transform" in broken.reason for broken in seen)


@pytest.mark.parametrize("name", ["unsqueeze_", "t_", "squeeze_", "transpose_", "swapdims_"])
def test_an_existing_tensor_gets_another_shape_outside_of_the_graph(name):
    arguments = {"unsqueeze_": (0,), "transpose_": (0, 1), "swapdims_": (0, 1)}.get(name, ())

    def f(x):
        y = x + 1
        getattr(x, name)(*arguments)
        getattr(y, name)(*arguments)
        return x * 2, y

    executor = Executor()
    ours, eager = torch.ones(2, 1), torch.ones(2, 1)
    results, expected = executor.call(f, ours), f(eager)
    assert ours.shape == eager.shape and ours.stride() == eager.stride()
    for result, wanted in zip(results, expected, strict=True):
        assert torch.equal(result, wanted) and result.stride() == wanted.stride()
    broken, *_ = executor.captures[0].breaks
    assert broken.code == "tracer.tensor_op" and "shape or strides" in broken.reason
    assert executor.captures[0].example_inputs[0].shape == (2, 1) and executor.captures[-1].breaks == ()


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_a_recurrent_network_off_the_cpu_ends_the_graph_where_gradients_are_needed(kind):
    def function(x):
        return module(x)[0] * 2

    module, x = kind(3, 4, device="meta"), torch.ones(5, 2, 3, device="meta")
    breaks = intarsia_tensorcapture.capture(function, (x,)).breaks
    assert [found.code for found in breaks] == ["tracer.tensor_op"] and "on a GPU" in breaks[0].reason
    with torch.no_grad():
        assert not intarsia_tensorcapture.capture(function, (x,)).breaks


def test_a_graph_has_one_gpu():
    """A model over several GPUs is a graph for each; the CPU may take part in any."""

    def function(x):
        y = torch.ones(3, device="cuda:0") * 2 + 1
        return y.to("meta") if x.shape[0] == 3 else y + x

    (found,) = intarsia_tensorcapture.capture(function, (torch.ones(3),)).breaks
    assert found.code == "tracer.device" and "to is between cuda:0 and meta" in found.reason

    def beside_the_cpu(x):
        return (torch.ones(3, device="cuda:0") * 2).cpu() + x

    assert not intarsia_tensorcapture.capture(beside_the_cpu, (torch.ones(3),)).breaks
