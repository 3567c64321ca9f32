"""torch.func, control flow as operators, gradients taken inside, autograd functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from functorch.experimental.control_flow import map as map_rows
from torch import nn, randn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

from integration.python.program import made, program

# torch wraps this method when it is called for the first time
torch.optim.SGD([nn.Parameter(torch.ones(1))]).zero_grad()


def loss(w, x):
    return (x @ w).sigmoid().mean()


@program("torch.func", lambda: (randn(3), randn(4, 3)))
def gradient_of_a_loss(w, x):
    return grad(loss)(w, x)


@program("torch.func", lambda: (randn(3), randn(4, 3)))
def value_and_gradient(w, x):
    g, value = grad_and_value(loss)(w, x)
    return w - 0.1 * g, value


@program("torch.func", lambda: (randn(3), randn(4, 3)))
def gradient_per_sample(w, x):
    return vmap(grad(lambda w, row: (row @ w).tanh()), in_dims=(None, 0))(w, x)


@program("torch.func", lambda: (randn(5, 3), randn(5, 3)))
def batched_products(x, y):
    return vmap(torch.dot)(x, y), vmap(lambda a, b: a.outer(b), out_dims=1)(x, y)


@program("torch.func", lambda: (randn(3),))
def jacobian_in_reverse(x):
    return jacrev(lambda t: t.sin() * t.sum())(x)


@program("torch.func", lambda: (randn(3),))
def jacobian_forward(x):
    return jacfwd(lambda t: t.exp() * 2)(x)


@program("torch.func", lambda: (randn(3),))
def hessian_of_a_norm(x):
    return hessian(lambda t: (t**4).sum())(x)


@program("torch.func", lambda: (randn(3), randn(3)))
def tangent_and_cotangent(x, v):
    value, tangent = jvp(torch.sin, (x,), (v,))
    _, pull = vjp(torch.cos, x)
    return value, tangent, pull(v)[0]


@program("torch.func", lambda: (randn(4, 3),))
def vmap_over_nested(x):
    return vmap(vmap(lambda t: t * 2 + 1))(x), vmap(lambda row: row.softmax(0), in_dims=1, out_dims=1)(x)


@made("torch.func", lambda: (randn(2, 3),))
def call_with_other_parameters():
    layer = nn.Linear(3, 2)
    other = {k: torch.ones_like(v) for k, v in layer.state_dict().items()}

    def call(x):
        return functional_call(layer, other, (x,)) + layer(x)

    return call


@program("torch.cond and loops", lambda: (randn(4),))
def cond_on_a_sum(x):
    return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))


@program("torch.cond and loops", lambda: (randn(4), randn(4)))
def cond_of_two(x, y):
    return torch.cond((x > y).any(), lambda a, b: a * b, lambda a, b: a - b, (x, y)).sum()


@program("torch.cond and loops", lambda: (randn(3),))
def doubled_while_small(x):
    _, y = while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), x))
    return y


@program("torch.cond and loops", lambda: (randn(5, 3),))
def map_of_rows(x):
    return map_rows(lambda row, scale: row.sin() * scale, x, torch.tensor(2.0))


@program("torch.cond and loops", lambda: (randn(5, 3),))
def scan_of_sums(x):
    last, rows = scan(lambda carry, row: (carry + row, (carry * row).clone()), torch.zeros(3), x)
    return last, rows


@program("torch.cond and loops", lambda: (randn(6, 2),))
def associative_scan_of_products(x):
    return associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic")


@program("gradients inside", lambda: (randn(3),))
def gradient_by_autograd(x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((x**3).sum(), x)
    return g


@program("gradients inside", lambda: (randn(3),))
def second_derivative(x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
    return g.detach(), h


@made("gradients inside", lambda: (randn(4, 3),), graphs=2, breaks=("tracer.tensor_op",), calls=3, recompiles=1)
def backward_into_parameters():
    layer = nn.Linear(3, 1)

    def step(x):
        with torch.enable_grad():
            layer.zero_grad()
            layer(x).square().mean().backward()
        return layer.weight.grad.clone()

    return step


@made(
    "gradients inside",
    lambda: (randn(4, 3),),
    graphs=3,
    breaks=(
        "tracer.disabled",
        "tracer.tensor_op",
    ),
)
def whole_training_step():
    layer = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(x):
        with torch.enable_grad():
            optimizer.zero_grad()
            error = layer(x).square().mean()
            error.backward()
            optimizer.step()
        return error.detach()

    return step


@program("gradients inside", lambda: (randn(3),))
def requires_grad_is_set(x):
    with torch.enable_grad():
        y = x * 2
        y = y.detach()
        y.requires_grad = True
        z = (y * y).sum()
    return z.detach(), y.requires_grad, z.requires_grad


@program("gradients inside", lambda: (randn(3),))
def force_of_an_energy(x):
    def energy(r):
        return (r[:, None] - r[None, :]).square().add(1).reciprocal().sum()

    with torch.enable_grad():
        r = x.clone().requires_grad_()
        return -torch.autograd.grad(energy(r), r)[0]


SCALE = 3.0


class Scaled(torch.autograd.Function):
    """Reads a global and an operator."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.relu(x) * SCALE

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0) * SCALE


@program(
    "autograd.Function",
    lambda: (randn(3),),
    graphs=5,
    breaks=(
        "tracer.tensor_op",
        "tracer.mutation",
        "tracer.tensor_op",
        "tracer.attribute",
    ),
)
def function_that_reads_a_global(x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(Scaled.apply(x).sum(), x)[0]


class Clamped(torch.autograd.Function):
    """Takes a number, and has no gradient for it."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        ctx.mark_non_differentiable()
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-ctx.limit, ctx.limit), None


@program("autograd.Function", lambda: (randn(3), 0.5))
def function_with_a_number(x, limit):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        y = Clamped.apply(x, limit)
        return y.detach(), torch.autograd.grad((y * 3).sum(), x)[0]
