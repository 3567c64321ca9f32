"""Autograd under the recorder: forward and backward in one graph, the way a joint graph is made."""

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from intarsia_ir import aten, meta
from intarsia_recorder import Recorder, graph_module, recording
from intarsia_shapes import ShapeEnv, fake_mode, fakeify


def record_joint(program, inputs, mode):
    """Return a graph of outputs and gradients over inputs and tangents, and its number of tangents."""
    recorder = Recorder(mode)
    for position, value in enumerate(inputs):
        recorder.placeholder(value, f"primal{position}")
    with recording(recorder):
        outputs = [o for o in pytree.tree_leaves(program(*inputs)) if isinstance(o, torch.Tensor)]
    differentiable = [o for o in outputs if o.requires_grad]
    primals = [x for x in inputs if x.requires_grad]
    tangents = []
    with mode:
        for position, output in enumerate(differentiable):
            tangents.append(torch.empty_strided(output.shape, output.stride(), dtype=output.dtype))
            recorder.placeholder(tangents[-1], f"tangent{position}")
    recorder.phase = "backward"
    with recording(recorder):
        gradients = torch.autograd.grad(differentiable, primals, tangents, allow_unused=True)
    recorder.emit_deferred_asserts()
    recorder.graph.output(tuple(None if g is None else recorder.node_of(g) for g in (*outputs, *gradients)))
    recorder.forget_autograd()
    return graph_module(recorder.root, recorder.graph)


def parameter(*shape):
    return torch.randn(*shape).requires_grad_()


def mlp(x, w1, b1, w2):
    return F.linear(F.gelu(F.linear(x, w1, b1)), w2).sum(-1)


def normalised_convolution(x, w, gain, bias, mean, var, count):
    count.add_(1)
    y = F.conv2d(x, w, padding=1)
    return F.relu(F.batch_norm(y, mean, var, gain, bias, training=True, momentum=0.1))


def attention(x, wq, wo, gain, bias, p=0.0):
    batch, length, width = x.shape
    h = F.layer_norm(x, (width,), gain, bias)
    q, k, v = (t.view(batch, length, 4, width // 4).transpose(1, 2) for t in F.linear(h, wq).split(width, -1))
    a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return x + F.dropout(F.linear(a.transpose(1, 2).reshape(batch, length, width), wo), p, training=p > 0)


def attention_with_dropout(*args):
    return attention(*args, p=0.3)


def written_input(x, buffer, w):
    buffer.add_(x.detach().sum(0))
    buffer.mul_(0.5)
    return (x @ w) * buffer


def written_view(x, w):
    y = x @ w
    y.t().mul_(2)
    y[0].add_(1)
    y[:, 1:3] = 5.0
    return y.relu()


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.sin(x @ w)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        inner = gradient * torch.cos(x @ w)
        return inner @ w.t() * 3, x.t() @ inner


def custom_function(x, w):
    return Sine.apply(x, w) + x


def without_grad(x, w):
    y = x @ w
    with torch.no_grad():
        scale = y.abs().max()
    return y / scale


def checkpointed(x, w1, w2):
    return checkpoint(lambda x, w1, w2: F.relu(F.relu(x @ w1) @ w2), x, w1, w2, use_reentrant=False) + x


def literals(x, w):
    return (x @ w)[:, torch.tensor([0, 2])] * torch.tensor([1.0, 2.0])


def autocast(x, w, b):
    with torch.autocast("cpu", torch.bfloat16):
        return F.linear(x, w, b).float().sum(-1)


def in_place_with_alias(x, w):
    y = F.relu(x @ w, inplace=True)
    return y, y.view(-1)


def gradient_inside(x, w):
    inner = x.detach().requires_grad_()
    with torch.enable_grad():
        energy = ((inner @ w) ** 2).sum()
        (force,) = torch.autograd.grad(energy, inner, create_graph=True)
    return force.sum(-1)


def hooked(x, w):
    y = x @ w
    y.register_hook(lambda gradient: gradient * 2)
    return y.relu()


def r(*shape):
    return lambda: torch.randn(*shape)


def p(*shape):
    return lambda: parameter(*shape)


def zero():
    return torch.tensor(0)


CASES = {
    mlp: ([r(4, 8), p(16, 8), p(16), p(8, 16)], (0,)),
    normalised_convolution: (
        [
            r(3, 4, 9, 7),
            p(8, 4, 3, 3),
            p(8),
            p(8),
            lambda: torch.zeros(8),
            lambda: torch.ones(8),
            lambda: torch.tensor(0),
        ],
        (0, 2),
    ),
    attention: ([p(3, 5, 16), p(48, 16), p(16, 16), p(16), p(16)], (0, 1)),
    attention_with_dropout: ([p(3, 5, 16), p(48, 16), p(16, 16), p(16), p(16)], (0, 1)),
    written_input: ([p(5, 4), r(4), p(4, 4)], (0,)),
    written_view: ([p(5, 4), p(4, 6)], (0,)),
    custom_function: ([p(5, 4), p(4, 4)], (0,)),
    without_grad: ([p(5, 4), p(4, 4)], (0,)),
    checkpointed: ([p(5, 4), p(4, 6), p(6, 4)], (0,)),
    literals: ([p(5, 4), p(4, 4)], (0,)),
    autocast: ([r(5, 4), p(4, 4), p(4)], (0,)),
    in_place_with_alias: ([p(5, 4), p(4, 4)], (0,)),
    gradient_inside: ([r(5, 4), p(4, 4)], (0,)),
    hooked: ([p(5, 4), p(4, 4)], (0,)),
}


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("program", CASES, ids=lambda f: f.__name__)
def test_joint_graph_equals_eager(program, symbolic):
    makers, dynamic = CASES[program]
    torch.manual_seed(1)
    examples = [make() for make in makers]
    if symbolic:
        mode = fake_mode(ShapeEnv())
        fakes = [fakeify(mode, x, f"a{n}", dynamic if n == 0 else ()) for n, x in enumerate(examples)]
    else:
        mode = FakeTensorMode(static_shapes=True)
        fakes = [mode.from_tensor(x, static_shapes=True) for x in examples]
    gm = record_joint(program, fakes, mode)
    for grown in (0, 2) if symbolic else (0,):
        check_joint(program, gm, [grow(x, dynamic if n == 0 else (), grown) for n, x in enumerate(examples)])


def grow(x, dims, by):
    shape = [size + by * (dim in dims) for dim, size in enumerate(x.shape)]
    new = torch.randn(shape) if dims else x.detach().clone()
    return new.requires_grad_(x.requires_grad)


def check_joint(program, gm, inputs):
    """Compare a run of the graph with eager autograd: outputs, gradients, written inputs."""
    eager = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    # inside a program an input may be written that requires grad, so it can't be a leaf
    torch.manual_seed(0)
    outputs = [o for o in pytree.tree_leaves(program(*eager)) if isinstance(o, torch.Tensor)]
    differentiable = [o for o in outputs if o.requires_grad]
    tangents = [torch.randn_like(o) for o in differentiable]
    primals = [x for x in eager if x.requires_grad]
    gradients = torch.autograd.grad(differentiable, primals, tangents, allow_unused=True)
    ours = [x.detach().clone() for x in inputs]
    torch.manual_seed(0)
    with torch.no_grad():
        results = aten.interpret(gm, *ours, *tangents)
    for expected, actual in zip((*outputs, *gradients), results, strict=True):
        if expected is None:
            assert actual is None
        else:
            torch.testing.assert_close(actual, expected.detach(), rtol=1e-4, atol=1e-4)
    for expected, actual in zip(eager, ours, strict=True):
        torch.testing.assert_close(actual, expected.detach(), rtol=1e-4, atol=1e-4)


def test_backward_ops_are_marked_and_carry_the_line_of_their_forward_op():
    def program(x, w):
        y = x @ w
        return torch.tanh(y)

    mode = FakeTensorMode(static_shapes=True)
    gm = record_joint(program, [mode.from_tensor(parameter(3, 3)) for _ in range(2)], mode)
    first = program.__code__.co_firstlineno
    found = {
        (meta.phase(n), str(n.target)): meta.origins(n)[-1].line - first
        for n in gm.graph.nodes
        if n.op == "call_function"
    }
    assert found["forward", "aten.tanh.default"] == found["backward", "aten.tanh_backward.default"] == 2
    assert found["forward", "aten.mm.default"] == found["backward", "aten.mm.default"] == 1


def test_regions_number_what_is_recorded_in_them():
    mode = FakeTensorMode(static_shapes=True)
    recorder = Recorder(mode)
    x = mode.from_tensor(torch.randn(3))
    recorder.placeholder(x, "x")
    with recording(recorder):
        with recorder.region("checkpoint"):
            y = x.sin()
        y = y.cos()
        with recorder.region("checkpoint"):
            y.tan()
    marks = [meta.region(n) for n in recorder.graph.nodes if n.op == "call_function"]
    assert marks == [("checkpoint", 0), None, ("checkpoint", 1)]


def test_values_hold_no_autograd_graph():
    mode = FakeTensorMode(static_shapes=True)
    gm = record_joint(mlp, [mode.from_tensor(make()) for make in CASES[mlp][0]], mode)
    values = pytree.tree_leaves([meta.value(n) for n in gm.graph.nodes if n.op == "call_function"])
    assert not any(v.requires_grad for v in values if isinstance(v, torch.Tensor))
