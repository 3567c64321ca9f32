"""Grad mode and autocast: regions in the graph, state at the end, guards at the beginning."""

from __future__ import annotations

import operator

import pytest
import torch
from tensor_executor import Executor

import intarsia_tensorcapture
from intarsia_ir.records import GuardKind

ENTER = torch.amp.autocast_mode._enter_autocast
EXIT = torch.amp.autocast_mode._exit_autocast


def regions(capture):
    """Return the region nodes of a graph as (target, first argument)."""
    wanted = (torch._C._set_grad_enabled, ENTER, EXIT)
    nodes = [node for node in capture.graph_module.graph.nodes if node.target in wanted]
    return [(node.target, node.args[0] if node.target is not EXIT else None) for node in nodes]


def test_no_grad_is_a_region():
    def f(x):
        with torch.no_grad():
            y = x * 2
        return x + y

    x = torch.ones(2, requires_grad=True)
    executor = Executor()
    got = executor.call(f, x)
    assert got.requires_grad
    (found,) = executor.captures
    assert regions(found) == [(torch._C._set_grad_enabled, False), (torch._C._set_grad_enabled, True)]
    assert found.signature.exit_grad_mode is None
    torch.autograd.grad(got.sum(), x)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_decorators(mode):
    @mode()
    def f(x):
        return x * 2

    def g(x):
        return f(x) + x

    x = torch.ones(2, requires_grad=True)
    executor = Executor()
    assert executor.call(g, x).requires_grad == g(x).requires_grad
    assert not executor.captures[0].breaks


def test_set_grad_enabled_leaves_its_mode():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2

    executor = Executor()
    try:
        executor.call(f, torch.ones(2, requires_grad=True))
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    (found,) = executor.captures
    assert found.signature.exit_grad_mode is False


def test_tracing_leaves_the_mode_alone():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2

    intarsia_tensorcapture.capture(f, (torch.ones(2),))
    assert torch.is_grad_enabled()


def test_autocast_is_a_region():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        return y, x @ x

    x = torch.randn(3, 3)
    executor = Executor()
    got, want = executor.call(f, x), f(x)
    assert [t.dtype for t in got] == [t.dtype for t in want] == [torch.bfloat16, torch.float32]
    assert regions(executor.captures[0]) == [(ENTER, "cpu"), (EXIT, None)]
    assert not torch.is_autocast_enabled("cpu")


def test_mode_at_entry_is_guarded():
    with torch.no_grad():
        found = intarsia_tensorcapture.capture(lambda x: x + 1, (torch.ones(2),))
    (guard,) = [g for g in found.guards if g.kind is GuardKind.GRAD_MODE]
    assert guard.enabled is False


def test_questions_about_the_compiler():
    def f(x):
        if torch.compiler.is_compiling() and torch.compiler.is_dynamo_compiling():
            return x + 1
        return x.item()

    executor = Executor()
    torch.testing.assert_close(executor.call(f, torch.ones(2)), torch.full((2,), 2.0))
    assert not executor.captures[0].breaks and not torch.compiler.is_compiling()


def test_function_modes_are_asked():
    from torch.overrides import TorchFunctionMode

    class Double(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {})) * 2 if func is torch.add else func(*args, **(kwargs or {}))

    with Double():
        found = intarsia_tensorcapture.capture(lambda x: torch.add(x, 1), (torch.ones(2),))
        made = intarsia_tensorcapture.capture(lambda: torch.add(torch.ones(2), 1))
    for capture in (found, made):
        targets = [node.target for node in capture.graph_module.graph.nodes if node.op == "call_function"]
        assert targets[-2:] == [torch.add, operator.mul] and not capture.breaks


def test_transforms_are_left_to_eager():
    seen = []

    def f(x):
        seen.append(intarsia_tensorcapture.capture(lambda v: v * 2, (x,)).graph_module)
        return (x * x).sum()

    torch.func.grad(f)(torch.ones(2))
    torch.func.vmap(f)(torch.ones(2, 2))
    assert seen == [None, None]


def half_precision(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.nn.functional.linear(x, x)
        with torch.autocast("cpu", enabled=False):
            w = y.float() @ x
        z = torch.softmax(y, -1)
    h = x.to(torch.float16)
    return y, w, z, y + z.float(), h * 0.1 + h, h > 0.3, torch.cat([h.float(), x]), h.mean(-1)


@pytest.mark.parametrize("outside", [None, torch.bfloat16, torch.float16], ids=str)
def test_graphs_with_half_types_are_eager_to_the_bit(outside):
    x = torch.randn(4, 4)
    with torch.autocast("cpu", dtype=outside or torch.bfloat16, enabled=outside is not None):
        executor = Executor()
        got, expected = executor.call(half_precision, x), half_precision(x)
    assert [c.breaks for c in executor.captures] == [()]
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == theirs.dtype and torch.equal(mine, theirs)


LOW = torch.autocast("cpu", dtype=torch.bfloat16)


@LOW
def decorated(x):
    return x @ x


def test_a_context_made_before_is_guarded_by_what_it_was_made_with():
    executor = Executor()
    x = torch.randn(3, 3)
    got = executor.call(lambda x: decorated(x) + 1, x)
    assert got.dtype == torch.bfloat16 and torch.equal(got, decorated(x) + 1)
    (found,) = executor.captures
    assert not found.breaks and torch.bfloat16 in [g.value for g in found.guards if g.kind is GuardKind.CONSTANT]


def test_factories_make_tensors_on_the_device_of_their_region():
    def f(x):
        with torch.device("meta"):
            a = torch.ones(2)
            with torch.device("cpu"):
                b = torch.arange(3) + x
            named = torch.zeros(2, device="cpu"), torch.zeros_like(x), torch.nn.functional.one_hot(x.long(), 5)
            c = torch.empty(1), torch.tensor(2.0), torch.get_default_device()
        return (a, *c[:2]), (b, *named, torch.ones(2)), c[2], torch.get_default_device()

    executor = Executor()
    x = torch.ones(3)
    got, expected = executor.call(f, x), f(x)
    assert [[t.device for t in part] for part in got[:2]] == [[t.device for t in part] for part in expected[:2]]
    assert got[2:] == expected[2:]
    assert all(map(torch.equal, got[1], expected[1]))
    (found,) = executor.captures
    assert not found.breaks and not torch._C._len_torch_function_stack()


def test_a_break_leaves_the_device_of_its_region_entered():
    def f(x):
        with torch.device("meta"):
            a = torch.ones(2) * 2
            print(end="")
            return a, torch.ones(2), x + 1

    executor = Executor()
    got = executor.call(f, torch.ones(3))
    assert [t.device.type for t in got] == ["meta", "meta", "cpu"]
    assert executor.captures[0].graph_module is not None and not torch._C._len_torch_function_stack()


@pytest.mark.parametrize("outside", ["meta", "cpu"])
def test_a_device_that_is_entered_outside_is_noticed(outside):
    def f(x):
        with torch.device("cpu"):
            x = x + 1
        return x, torch.ones(1), torch.get_default_device()

    with torch.device(outside):
        got = Executor().call(f, torch.ones(3, device="cpu"))
    assert [t.device.type for t in got[:2]] == ["cpu", outside] and got[2].type == outside


def test_inference_mode_is_a_region_without_gradients():
    def f(x):
        with torch.inference_mode():
            y = x * 2
        return y, y.is_inference(), x + 1

    x = torch.ones(2, requires_grad=True)
    executor = Executor()
    y, seen, z = executor.call(f, x)
    (found,) = executor.captures
    assert not found.breaks
    assert regions(found) == [(torch._C._set_grad_enabled, False), (torch._C._set_grad_enabled, True)]
    assert y.is_inference() and seen and not z.is_inference() and z.requires_grad
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def test_inference_mode_goes_on_behind_a_break():
    def f(x):
        with torch.no_grad(), torch.inference_mode():
            y = x * 2
            print(end="")
            z = y + 1
        return z, torch.is_grad_enabled()

    z, graded = Executor().call(f, torch.ones(2, requires_grad=True))
    assert z.is_inference() and graded
    assert torch.is_grad_enabled()


def test_inference_mode_is_put_back_where_tracing_breaks_in_it():
    def f(x):
        with torch.inference_mode():
            return x.data_ptr()

    assert intarsia_tensorcapture.capture(f, (torch.ones(2),)).breaks
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def test_code_in_inference_mode_that_switches_it_off_breaks():
    def f(x):
        with torch.inference_mode(False):
            return x * 2

    with torch.inference_mode():
        (found,) = intarsia_tensorcapture.capture(f, (torch.ones(2),)).breaks
    assert "switched off" in found.reason


def test_a_write_to_an_inference_tensor_of_the_caller_breaks():
    def f(x):
        with torch.inference_mode():
            x[1:].mul_(2)
        return x

    with torch.inference_mode():
        x = torch.ones(3)
    found = intarsia_tensorcapture.capture(f, (x,))
    assert "an inference tensor of the caller's" in found.breaks[0].reason
    assert found.graph_module is None or all(node.target != "mul_" for node in found.graph_module.graph.nodes)


def test_the_default_dtype_is_a_setting_of_the_graph_and_a_guard():
    def f(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(2)
        torch.set_default_dtype(torch.float32)
        return x + y, torch.get_default_dtype()

    found = intarsia_tensorcapture.capture(f, (torch.ones(2),))
    assert not found.breaks and torch.get_default_dtype() is torch.float32
    (ones,) = [node for node in found.graph_module.graph.nodes if node.target is torch.ones]
    assert ones.kwargs["dtype"] is torch.float64
    assert [g.dtype for g in found.guards if g.kind is GuardKind.DEFAULT_DTYPE] == [torch.float32]


def test_an_operation_that_takes_a_changed_default_breaks():
    def f(x):
        torch.set_default_dtype(torch.float64)
        return torch.arange(3) / 2

    (found,) = intarsia_tensorcapture.capture(f, (torch.ones(2),)).breaks
    assert "default dtype" in found.reason and torch.get_default_dtype() is torch.float32


def test_a_backend_flag_is_a_guard():
    def f(x):
        return x * 2, torch.get_float32_matmul_precision()

    found = intarsia_tensorcapture.capture(f, (torch.ones(2),))
    assert not found.breaks
    guards = {str(guard.source): getattr(guard, "value", None) for guard in found.guards}
    assert guards["operator.call(modules['torch._C']._get_float32_matmul_precision)"] == "highest"


def test_the_region_around_the_call_is_guarded_and_its_device_named():
    def f(x):
        return torch.ones(2), x + torch.zeros(1, device="cpu"), torch.nn.functional.one_hot(x.long(), 5)

    with torch.device("meta"):
        found = intarsia_tensorcapture.capture(f, (torch.ones(3, device="cpu"),))
    assert not found.breaks
    made = [
        node.kwargs.get("device") for node in found.graph_module.graph.nodes if node.target in (torch.ones, torch.zeros)
    ]
    assert made == [torch.device("meta"), "cpu"]
    (modes,) = [g.modes for g in found.guards if g.kind is GuardKind.TORCH_MODES]
    assert modes == (torch.device("meta"),)


def test_a_default_device_that_is_set_is_set_behind_the_graph():
    def f(x):
        torch.set_default_device("meta")
        return torch.ones(2), x + 1, torch.get_default_device()

    executor = Executor()
    try:
        got = executor.call(f, torch.ones(3))
        assert got[0].device == got[2] == torch.get_default_device() == torch.device("meta")
        assert torch.equal(got[1], torch.full((3,), 2.0, device="cpu"))
    finally:
        torch.set_default_device(None)
    assert not executor.captures[0].breaks


def test_a_default_device_is_not_set_inside_of_a_region():
    def f(x):
        with torch.device("meta"):
            torch.set_default_device("cpu")
        return x + 1

    (broken, *_) = intarsia_tensorcapture.capture(f, (torch.ones(3),)).breaks
    assert "inside of a region" in broken.reason
