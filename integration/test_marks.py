"""Functions within functions: marked as not to be compiled, compiled already, or hooked from outside."""

import threading

import pytest
import torch
from torch import nn

import intarsia

RAISE = {"on_error": "raise"}

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize("mark", [intarsia.disable, torch.compiler.disable], ids=["ours", "torch's"])
def test_what_is_marked_runs_natively_with_all_it_calls(mark):
    def helper(x):
        return x.relu() * 2

    @mark
    def left_alone(x):
        return helper(x * 3)

    def f(x):
        return left_alone(x + 1) + 1

    x = torch.randn(4)
    explained = intarsia.explain(f, options=RAISE)(x)
    assert [b.code for b in explained.breaks] == ["tracer.disabled"]
    assert "left_alone is marked" in explained.breaks[0].reason
    assert intarsia.stats().graphs == 2  # before and after
    torch.testing.assert_close(intarsia.compile(f, options=RAISE)(x), f(x))


def test_a_compiled_function_inside_is_inlined():
    inner = intarsia.compile(lambda x: x.sin() * 2)
    layer = intarsia.compile(nn.Linear(4, 4))
    x = torch.randn(2, 4)
    for f in (lambda x: inner(x) + 1, lambda x: layer(x) + 1):
        intarsia.reset()
        torch.testing.assert_close(intarsia.compile(f, fullgraph=True, options=RAISE)(x), f(x))
        assert intarsia.stats().fallbacks == 0


def test_another_compiled_function_in_its_place_is_seen():
    chosen = [intarsia.compile(lambda x: x + 1), intarsia.compile(lambda x: x - 1)]

    def f(x, n):
        return chosen[n](x) * 2

    fast, x = intarsia.compile(f, fullgraph=True, options=RAISE), torch.randn(3)
    assert torch.equal(fast(x, 0), (x + 1) * 2)
    chosen.reverse()
    assert torch.equal(fast(x, 0), (x - 1) * 2)


def test_hooks_of_the_wrapper_run():
    log = []
    module = nn.Linear(4, 4)
    fast = intarsia.compile(module, options=RAISE)
    handles = [
        fast.register_forward_pre_hook(lambda m, args: log.append("before")),
        fast.register_forward_hook(lambda m, args, out: out * 2),
        fast.register_full_backward_hook(lambda m, given, gives: log.append("backward")),
    ]
    x = torch.randn(2, 4, requires_grad=True)
    out = fast(x)
    torch.testing.assert_close(out, module(x) * 2)
    out.sum().backward()
    assert log == ["before", "backward"]
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(fast(x), module(x))
    assert log == ["before", "backward"] and not module._forward_hooks and intarsia.stats().fallbacks == 0


@pytest.mark.parametrize("what", [3, None])
def test_only_what_can_be_called_is_disabled(what):
    with pytest.raises(intarsia.InvalidArgumentError, match="a callable is needed"):
        intarsia.disable(what)


@pytest.mark.peer
def test_first_called_inside_of_torch_compile():
    def f(x):
        return torch.relu(x @ x) + 1

    fast, x, graphs = intarsia.compile(f, options=RAISE), torch.randn(4, 4), []

    def backend(gm, inputs):
        graphs.append([node.name for node in gm.graph.nodes])
        return gm.forward

    # it follows the original, as every tracer does: one graph of its own, and none of ours
    torch.testing.assert_close(torch.compile(lambda x: fast(x) + 1, backend=backend)(x), f(x) + 1)
    assert len(graphs) == 1 and (intarsia.stats().graphs, intarsia.stats().fallbacks) == (0, 0)
    torch.testing.assert_close(fast(x), f(x))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)
    torch._dynamo.reset()


@pytest.mark.peer
def test_beside_torch_compile_in_another_thread():
    def failing(gm, inputs):
        raise ValueError("no")

    x = torch.randn(4)
    theirs, ours = torch.compile(lambda x: x * 2, backend="eager"), intarsia.compile(lambda x: x * 2, options=RAISE)
    theirs(x), ours(x)
    with pytest.raises(Exception, match="no"):
        torch.compile(lambda x: x.sin() + 1, backend=failing)(x)
    for _ in range(4):
        threads = [threading.Thread(target=target, args=(x,)) for target in (theirs, ours)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        intarsia.reset()
        torch.testing.assert_close(intarsia.compile(lambda x: x + 1, fullgraph=True, options=RAISE)(x), x + 1)
        assert intarsia.stats().graphs == 1
    torch._dynamo.reset()


@pytest.mark.peer
def test_what_torch_marks_of_its_own_is_compiled_as_before():
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # marks parts of the optimizers
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    intarsia.compile(optimizer.step, fullgraph=True, options=RAISE)()
    torch.testing.assert_close(weight.detach(), torch.full((3,), 0.5))
    assert (intarsia.stats().graphs, intarsia.stats().frames_eager) == (1, 0)
    torch._dynamo.reset()


@pytest.mark.peer
def test_what_users_mark_says_nothing_of_what_torch_marks():
    """All marked functions share the code of their wrapper."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # marks `LBFGS.step`
    calls = []

    @torch.compiler.disable
    def left_alone(x):
        calls.append(helper(x))

    def helper(x):
        return x + 1

    intarsia.compile(left_alone, options=RAISE)(torch.ones(2))
    assert intarsia.stats().graphs == 0 and len(calls) == 1
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        return loss

    intarsia.compile(optimizer.step, options=RAISE)(closure)
    assert intarsia.stats().graphs >= 1 and intarsia.stats().fallbacks == 0
    intarsia.compile(left_alone, options=RAISE)(torch.ones(2))
    assert len(calls) == 2 and intarsia.stats().fallbacks == 0
    torch._dynamo.reset()


def test_scripted_functions_whose_class_is_patched(monkeypatch):
    """As torch's own test tools patch it, to profile calls."""
    scripted = torch.jit.script(doubled)
    called = torch._C.ScriptFunction.__call__
    monkeypatch.setattr(torch._C.ScriptFunction, "__call__", lambda *args, **kwargs: called(*args, **kwargs))
    call = intarsia.compile(lambda x: scripted(x) + 1, fullgraph=True, options=RAISE)
    torch.testing.assert_close(call(torch.ones(2)), torch.full((2,), 3.0))


def doubled(x: torch.Tensor):
    return x * 2
