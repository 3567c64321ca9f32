"""Steps of torch's optimizers, and `torch._foreach_*` with numbers that change: in the graph, nothing relied on."""

import types

import pytest
import torch

from intarsia_ir.records import ArgumentSource, GuardKind, ItemSource, Symbolic
from intarsia_pyeval import link
from intarsia_tensorcapture import capture

LR = ArgumentSource("lr")


def compiled(f, args, symbolic):
    """Return the capture, and `f` by it."""
    found = capture(f, args, dynamic=symbolic, fullgraph=True)
    code = link(found.code, dict.fromkeys(found.code.holes, found.graph_module))
    return found, types.FunctionType(code, f.__globals__, f.__name__, None, f.__closure__)


def relied_on(found):
    return [g.source for g in found.guards if g.kind is GuardKind.CONSTANT]


FOREACH = {
    "mul": lambda a, b, c, lr: torch._foreach_mul(a, lr),
    "mul_": lambda a, b, c, lr: torch._foreach_mul_(a, 1 - lr * 0.5),
    "add": lambda a, b, c, lr: torch._foreach_add(a, lr),
    "add with alpha": lambda a, b, c, lr: torch._foreach_add(a, b, alpha=-lr),
    "sub with alpha": lambda a, b, c, lr: torch._foreach_sub_(a, b, alpha=lr),
    "numbers": lambda a, b, c, lr: torch._foreach_div(a, [lr, 2 * lr]),
    "lerp_": lambda a, b, c, lr: torch._foreach_lerp_(a, b, lr),
    "addcmul_": lambda a, b, c, lr: torch._foreach_addcmul_(a, b, c, lr),
    "addcmul by name": lambda a, b, c, lr: torch._foreach_addcmul(a, b, c, value=lr),
    "addcdiv numbers": lambda a, b, c, lr: torch._foreach_addcdiv(a, b, c, [lr, -lr]),
}


@pytest.mark.parametrize("name", FOREACH)
def test_foreach_takes_a_number_that_changes(name):
    f = FOREACH[name]

    def lists():
        torch.manual_seed(0)
        return [[torch.randn(3, 4), torch.rand(5) + 1] for _ in range(3)]

    found, g = compiled(f, (*lists(), 0.1), Symbolic(numbers=frozenset([LR])))
    assert LR not in relied_on(found)
    for number in (0.1, 0.7):
        mine, theirs = lists(), lists()
        torch.testing.assert_close(g(*mine, number), f(*theirs, number))
        torch.testing.assert_close(mine, theirs)


def test_foreach_in_place_gives_what_eager_gives():
    def f(a, lr):
        return torch._foreach_mul_(a, lr)

    a = [torch.ones(2)]
    _, g = compiled(f, (a, 0.1), Symbolic(numbers=frozenset([LR])))
    assert (g(a, 0.1) is a) == (f(a, 0.1) is a)


def test_numbers_of_tensors_may_be_tensors():
    def f(x, a, b, n):
        return torch._foreach_addcdiv([x], [a], [b], n)[0], x.addcmul(a, b, value=n[0]), x.add(a, alpha=n[0])

    x, a, b, n = torch.randn(4), torch.randn(4), torch.rand(4) + 1, torch.tensor([0.3])
    _, g = compiled(f, (x, a, b, n), Symbolic())
    torch.testing.assert_close(g(x, a, b, n), f(x, a, b, n))


def test_what_requires_grad_is_no_number_in_eager_either():
    def f(x, n):
        return x.add(x, alpha=n)

    x, n = torch.randn(4), torch.tensor(0.3, requires_grad=True)
    with pytest.raises(TypeError):
        f(x, n)
    (found,) = capture(f, (x, n), fullgraph=True).breaks  # left to eager, which raises its own error
    assert found.code == "tracer.operation_raised" and "must be Number" in found.reason


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_round_once(dtype):
    def f(x, a, b, lr):
        y = x.clone()
        y.lerp_(a, lr).addcdiv_(a, b, value=-lr).add_(a, alpha=lr)
        return y, x.lerp(a, lr), x.addcmul(a, b, value=lr), x.addcdiv(a, b, value=lr), x.sub(a, alpha=lr)

    x, a, b = (torch.rand(64).add(0.5).to(dtype) for _ in range(3))
    found, g = compiled(f, (x, a, b, 0.1), Symbolic(numbers=frozenset([LR])))
    assert LR not in relied_on(found)
    torch.testing.assert_close(g(x, a, b, 0.0123), f(x, a, b, 0.0123), rtol=0, atol=0)


def test_weights_and_powers():
    def f(x, y, lr):
        return torch.lerp(x, y, lr), x.lerp(y, weight=lr), lr**y, torch.pow(lr, y)

    x, y = torch.randn(4), torch.randn(4)
    found, g = compiled(f, (x, y, 0.1), Symbolic(numbers=frozenset([LR])))
    assert LR not in relied_on(found)
    torch.testing.assert_close(g(x, y, 0.7), f(x, y, 0.7))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=False),
    "adamw foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_graph_that_relies_on_no_rate(name):
    def parameters():
        torch.manual_seed(0)
        made = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(5))]
        for p in made:
            p.grad = torch.randn_like(p)
        return made

    def f(optimizer):
        optimizer.step()

    states = []
    for way in ("eager", "captured"):
        optimizer = OPTIMIZERS[name](parameters())
        step = f
        if way == "captured":
            _, first = compiled(f, (optimizer,), Symbolic())
            first(optimizer)  # this one makes the state
            groups = next(g.source.base for g in _.guards if str(g.source).endswith("['lr']"))
            lr = ItemSource(groups, "lr")
            found, step = compiled(f, (optimizer,), Symbolic(numbers=frozenset([lr])))
            assert lr not in relied_on(found)
        else:
            step(optimizer)
        for rate in (0.1, 0.05, 0.3):
            optimizer.param_groups[0]["lr"] = rate
            step(optimizer)
        states.append(list(optimizer.param_groups[0]["params"]))
        states[-1] += [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    assert len(states[0]) == len(states[1])
    torch.testing.assert_close(states[1], states[0])
