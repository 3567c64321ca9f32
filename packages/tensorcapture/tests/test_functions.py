"""Users' autograd functions: however `apply` is reached, and whether torch writes it in Python or in C."""

from types import SimpleNamespace

import pytest
import torch
from guard_check import failures
from tensor_executor import Executor

from intarsia_ir.records import GuardKind
from intarsia_tensorcapture import capture


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x.sin() * k

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None


class Twice(Scale):
    @classmethod
    def of(cls, x):
        return cls.apply(x, 2)


class Overridden(Scale):
    @classmethod
    def apply(cls, x, k):
        return super().apply(x, k + 1)


apply = Scale.apply
PROGRAMS = {
    "class": lambda x: Scale.apply(x, 2) + 1,
    "global": lambda x: apply(x, 2) + 1,
    "local": lambda x: [f := Scale.apply, f(x, 2)][1] + 1,
    "inherited": lambda x: Twice.of(x) + 1,
    "instance": lambda x: getattr(Twice, "apply")(x, 2) + 1,
    "super": lambda x: Overridden.apply(x, 1) + 1,
    "map": lambda x: list(map(Scale.apply, [x, x + 1], [2, 3]))[1],
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_apply_is_traced(name, grad):
    x = torch.randn(3, requires_grad=grad)
    found = capture(PROGRAMS[name], (x,))
    assert not found.breaks
    called = [getattr(node.target, "__name__", node.target) for node in found.graph_module.graph.nodes]
    assert any("apply_" in target for target in called) is grad
    executor = Executor()
    torch.testing.assert_close(executor.call(PROGRAMS[name], x), PROGRAMS[name](x))


def test_apply_itself_may_be_returned():
    def f(x):
        return Scale.apply, x + 1

    function, _ = Executor().call(f, torch.ones(2))
    assert function == Scale.apply


def other_forward(ctx, x, k):
    return x * k


def holds(found, function):
    """Whether a capture is valid for another call of the function with a tensor of two ones."""
    frame = SimpleNamespace(locals={"x": torch.ones(2)}, globals=function.__globals__, closure=function.__closure__)
    return not [g for g in failures(found.guards, frame, function.__code__) if g.source is not None]


@pytest.mark.parametrize("name", ["class", "global"])
def test_what_apply_runs_is_guarded(monkeypatch, name):
    found = capture(PROGRAMS[name], (torch.ones(2),))
    assert holds(found, PROGRAMS[name])
    monkeypatch.setattr(Scale, "forward", staticmethod(other_forward))
    assert not holds(found, PROGRAMS[name])


def test_a_class_that_gains_its_own_apply_is_noticed(monkeypatch):
    found = capture(PROGRAMS["class"], (torch.ones(2),))
    monkeypatch.setattr(Scale, "apply", classmethod(lambda cls, x, k: x), raising=False)
    assert not holds(found, PROGRAMS["class"])


@torch.library.custom_op("tracer_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def test_operator_objects_are_guarded_by_identity():
    def f(op, x):
        return op(x) + 1

    x = torch.ones(3)
    for op in (torch.ops.aten.neg.default, torch.ops.aten.exp, twice):
        executor = Executor()
        assert torch.equal(executor.call(f, op, x), f(op, x))
        (found,) = executor.captures
        assert not found.breaks
        assert [g.value for g in found.guards if g.kind is GuardKind.IDENTITY and str(g.source) == "op"] == [op]
