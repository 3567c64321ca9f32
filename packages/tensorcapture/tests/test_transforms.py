"""torch.func in captured code: one node for a call, with the function's graph; what can't be one breaks."""

from __future__ import annotations

import collections
import functools

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from tensor_executor import Executor
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

import intarsia_tensorcapture
from intarsia_ir.torch import Transform, verify

x, w = torch.arange(12.0).view(4, 3) / 7 - 0.5, torch.arange(9.0).view(3, 3) / 5 - 1


def sines(a):
    return (a.sin() * a).sum()


def transforms(capture):
    """Return the transforms of a graph, the outer ones only."""
    return [node.target for node in capture.graph_module.graph.nodes if isinstance(node.target, Transform)]


def captured(fn, *args):
    """Return the only capture of a call that has no break, after comparing what it gives with eager."""
    executor = Executor()
    torch.testing.assert_close(executor.call(fn, *args), fn(*args))
    (found,) = executor.captures
    assert not found.breaks
    verify(found.graph_module)
    return found


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("vmap", vmap), ("grad", grad), ("grad_and_value", grad_and_value), ("jacrev", jacrev), ("jacfwd", jacfwd),
        ("jacfwd", hessian),
    ],
)  # fmt: skip
def test_one_node(name, made):
    (found,) = transforms(captured(lambda x: made(sines)(x), x))
    assert found.name == name


@pytest.mark.parametrize("made", [vmap(sines), grad(sines), hessian(sines)])
def test_made_outside(made):
    assert len(transforms(captured(lambda x: made(x), x))) == 1


def test_made_outside_is_guarded():
    scale = 2.0

    def scaled(a):
        return a * scale

    made = vmap(scaled)
    executor = Executor()

    def f(x):
        return made(x)

    assert torch.equal(executor.call(f, x), x * 2)
    scale = 3.0
    assert torch.equal(executor.call(f, x), x * 3)


def test_what_is_read_from_outside_is_an_operand():
    found = captured(lambda x, w: vmap(lambda a: torch.tanh(a @ w) * w[0])(x), x, w)
    (node,) = [node for node in found.graph_module.graph.nodes if isinstance(node.target, Transform)]
    assert len(node.args) == 2 and node.target.n_passed == 1


def test_nested():
    (outer,) = transforms(captured(lambda x, w: vmap(grad(lambda a: (a @ w).sin().sum()))(x), x, w))
    (inner,) = [node.target for node in outer.program.graph.nodes if isinstance(node.target, Transform)]
    assert (outer.name, inner.name) == ("vmap", "grad")


def test_structures():
    pair = collections.namedtuple("pair", "a b")

    def f(x, w):
        first = vmap(lambda d, s: pair(d["a"] * s, [d["b"].sum()]), in_dims=({"a": 0, "b": None}, None))
        got = first({"a": x, "b": w}, 2.0)
        return got, grad(lambda d: (d.a * d.b[0]).sum())(pair(x, (w[0],)))

    assert len(transforms(captured(f, x, w))) == 2


def test_flex_attention_calls_its_functions_at_points(monkeypatch):
    """One node a function, which reads what it needs from outside, by tensors, ints or both."""
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)  # eager needs no compiler then
    q, table, lengths = torch.randn(2, 1, 4, 8), torch.randn(2, 4), torch.tensor([3, 1])

    def f(q, table, lengths):
        def score(s, b, h, i, j):
            return s + table[b, i] * table[1, 0] - table[-1, j]

        blocks = flex.create_block_mask(lambda b, h, i, j: j < lengths[b], 2, None, 4, 4, device="cpu")
        return flex.flex_attention(q, q, q, score_mod=score, block_mask=blocks)

    found = captured(f, q, table, lengths)
    assert [t.name for t in transforms(found) if t.name != "vmap"] == ["over_points"] * 3


def test_a_function_at_points_that_breaks(monkeypatch):
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    q, executor = torch.randn(2, 1, 4, 8), Executor()

    def f(q):
        return flex.flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s if i > j else -s)

    with pytest.raises(RuntimeError, match="data-dependent"):
        executor.call(f, q)
    assert [b.code for c in executor.captures for b in c.breaks] == ["tracer.tensor_branch"]


def test_jvp_and_vjp():
    def f(x, t):
        value, tangent = jvp(torch.tanh, (x,), (t,))
        value2, back, aux = vjp(lambda a: (a.exp(), a.cos()), x, has_aux=True)
        return value, tangent, value2, back(t), vmap(back)(torch.stack([t, t])), aux

    names = [found.name for found in transforms(captured(f, x, x * 2))]
    assert names == ["jvp", "vjp", "pullback", "vmap"]


def test_what_the_function_sees():
    seen = []

    def inside(a):
        seen.append((tuple(a.shape), a.requires_grad, torch.is_grad_enabled(), a.stride()))
        return a.sum()

    def f(x):
        with torch.no_grad():
            return vmap(grad(inside))(x), vmap(inside, in_dims=1)(x)

    Executor().call(f, x)
    captured_view, seen[:] = list(seen), []
    f(x)
    assert captured_view == seen == [((3,), True, True, (1,)), ((4,), False, False, (3,))]


def test_writes_of_tensors_from_outside():
    def f(x, w):
        total = w * 1

        def inside(a):
            total.add_(1)
            return a @ total

        return vmap(inside)(x), total * 2

    captured(f, x, w)


def test_chunks():
    (found,) = transforms(captured(lambda x, w: vmap(lambda a: a @ w, chunk_size=3)(x), x, w))
    assert dict(found.options) == {"chunk_size": 3}


def test_functional_call_leaves_the_module_as_it_was():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
    before = dict(model.named_parameters())

    def f(x):
        given = {name: p * 2 for name, p in model.named_parameters()}
        return vmap(lambda a: functional_call(model, given, (a,)))(x)

    captured(f, x)
    assert all(p is before[name] for name, p in model.named_parameters())


def branches(a):
    return a.sum() if a.sum() > 0 else a.prod()


def leaks(x):
    kept = []
    r = grad(lambda a: (kept.append(a * 2), a.sum())[1])(x)
    return r, kept


def written_between(x):
    z = x * 1
    value, back = vjp(torch.sin, z)
    z.mul_(2)
    return back(value)


def asserts(a):
    assert (a > -100).all()
    return a.sum()


def size_from_outside(x):
    n = (x > 0).sum().item()
    return grad(lambda a: a[:n].sum())(x)


class Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a):
        return a * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Overwritten(Doubled):
    @staticmethod
    def forward(a):
        return a.mul_(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(*inputs)


CALLS = []


class Counted(Doubled):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, a):
        CALLS.append(info.batch_size)
        return Doubled.apply(a), in_dims[0]


@pytest.mark.parametrize(
    ("fn", "code"),
    [
        (lambda x: grad(branches)(x), "tracer.tensor_branch"),
        (lambda x: grad(lambda a: a.sum() * a.sum().item())(x), "tracer.tensor_value"),
        (lambda x: grad(asserts)(x), "tracer.tensor_branch"),
        (lambda x: grad(lambda a: a[a > 0].sum())(x), "tracer.data_dependent"),
        (size_from_outside, "tracer.data_dependent"),
        (leaks, "tracer.codegen"),
        (written_between, "tracer.tensor_op"),
        (lambda x: grad(lambda a: Doubled.apply(a).sum())(x), None),
        (lambda x: vmap(grad(Doubled.apply))(x.view(12)), None),
        (lambda x: grad(lambda a: Overwritten.apply(a * 1).sum())(x), None),
        (lambda x: vmap(Counted.apply)(x), "tracer.tensor_op"),
        (lambda x: vjp(lambda a: a * torch.rand(3), x)[0] * 0, "tracer.tensor_op"),
        (lambda x: vmap(functools.partial(torch.add, x), chunk_size=2)(x.view(12)).sum(0), None),
    ],
)
def test_breaks(fn, code):
    found = intarsia_tensorcapture.capture(fn, (x,))
    assert [b.code for b in found.breaks[:1]] == ([] if code is None else [code])
    torch.testing.assert_close(Executor().call(fn, x), fn(x))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: vmap(lambda a: a + torch.rand(3))(x),
        lambda x: vmap(lambda a: 3)(x),
        lambda x: vmap(lambda a: a.reshape(17))(x),
        lambda x: vmap(branches)(x),
        lambda x: grad(torch.sin)(x),
        lambda x: vmap(lambda a, n: a * n)(x, 3),
        lambda x: jvp(torch.sin, (x,), (x[0],)),
    ],
)
def test_raises_what_eager_raises(fn):
    with pytest.raises((RuntimeError, ValueError)) as eager:
        fn(x)
    with pytest.raises(type(eager.value)) as caught:
        Executor().call(fn, x)
    assert str(caught.value)[:40] == str(eager.value)[:40]


def test_an_exception_of_the_function():
    def inside(a):
        raise KeyError("mine")

    def f(x):
        y = x + 1
        try:
            return vmap(inside)(y)
        except KeyError:
            return y * 2

    torch.testing.assert_close(Executor().call(f, x), f(x))
