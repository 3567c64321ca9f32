"""torch.func as people write it: captured whole, compiled, and what eager gives; with compile inside of it as well."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

import intarsia

torch.manual_seed(0)
MODEL = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
SCALAR = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 1))
NORMED = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True).eval()
CONVOLUTION = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(0), nn.Linear(32, 2))
ENSEMBLE = [nn.Linear(3, 2) for _ in range(4)]
BASE = nn.Linear(3, 2, device="meta")
STACKED = stack_module_state(ENSEMBLE)
PARAMS = {name: p.detach() for name, p in MODEL.named_parameters()}
X, Y, T = torch.randn(5, 3), torch.randn(5, 2), torch.randint(0, 2, (5,))
W = torch.randn(3, 3)
IMAGES = torch.randn(4, 1, 6, 6)


def sines(x):
    return (x.sin() * x).sum()


def loss_of(params, x, y):
    return F.mse_loss(functional_call(MODEL, params, (x,)), y)


def energy(x):
    return SCALAR(x).squeeze(-1)


def u(params, t, x):
    """Return the solution that a network is, in a point."""
    return functional_call(SCALAR, params, (torch.stack([t, x, t * x]),)).squeeze(-1)


def residual(params, t, x):
    u_t = grad(u, argnums=1)(params, t, x)
    u_xx = grad(grad(u, argnums=2), argnums=2)(params, t, x)
    return u_t - 0.1 * u_xx


def adapted(params, x, y):
    """Return the loss after one step of the inner loop."""
    inner = grad(loss_of)(params, x, y)
    return loss_of({name: p - 0.1 * inner[name] for name, p in params.items()}, x, y)


def under_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ W).float().sum()


def natural(f, x):
    """Return a product of the Gauss-Newton matrix with a vector."""
    value, tangent = jvp(f, (x,), (torch.ones_like(x),))
    _, back = vjp(f, x)
    return value, back(tangent)[0]


SCALAR_PARAMS = dict(SCALAR.named_parameters())
TIMES, PLACES = torch.linspace(0, 1, 6), torch.linspace(-1, 1, 6)

PROGRAMS = {
    "vmap": (lambda x: vmap(torch.sin)(x), (X,)),
    "vmap of a function": (lambda x: vmap(lambda a: torch.tanh(a @ W) - a.mean())(x), (X,)),
    "batched dot": (lambda x, y: vmap(torch.dot)(x, y), (X, X + 1)),
    "batched matmul": (lambda x, y: vmap(torch.mm, in_dims=(None, 0))(x, y), (W, torch.randn(4, 3, 2))),
    "pairwise distances": (lambda x: vmap(lambda a: vmap(lambda b: (a - b).norm())(x))(x), (X,)),
    "in_dims": (lambda x, y: vmap(lambda a, b: a @ b, in_dims=(1, 0))(x, y), (X, X.T.contiguous())),
    "out_dims": (lambda x: vmap(lambda a: (a * 2, a.sum()), out_dims=(1, 0))(x), (X,)),
    "structures": (lambda d: vmap(lambda d: {"s": d["x"] + d["y"][0]})(d), ({"x": X, "y": (X,)},)),
    "keywords": (lambda x: vmap(lambda a, b: a * b)(x, b=x), (X,)),
    "indexing": (lambda x, t: vmap(lambda a, i: a[i])(x, t), (X, T)),
    "softmax": (lambda x: vmap(lambda a: F.softmax(a, 0).log())(x), (X,)),
    "where": (lambda x: vmap(lambda a: torch.where(a > 0, a, a.exp()))(x), (X,)),
    "in place": (lambda x: vmap(lambda a: a.clone().mul_(2).add_(1))(x), (X,)),
    "chunks": (lambda x: vmap(lambda a: a @ W, chunk_size=2)(x), (X,)),
    "grad": (lambda x: grad(sines)(x), (X,)),
    "value and gradient": (lambda x: grad_and_value(sines)(x), (X,)),
    "argnums": (lambda x, y: grad(lambda a, b: (a * b.exp()).sum(), argnums=(0, 1))(x, y), (X, X)),
    "aux": (lambda x: grad(lambda a: (sines(a), {"norm": a.norm()}), has_aux=True)(x), (X,)),
    "aux and value": (lambda x: grad_and_value(lambda a: (sines(a), a * 2), has_aux=True)(x), (X,)),
    "third derivative": (lambda x: vmap(grad(grad(grad(lambda a: (a**4).exp()))))(x), (TIMES,)),
    "gradient inside": (lambda x: x - 0.1 * grad(lambda a: energy(a).sum())(x), (X,)),
    "no_grad inside": (lambda x: grad(lambda a: (a * a.detach()).sum())(x), (X,)),
    "per-sample gradients": (
        lambda x, y: vmap(grad(loss_of), in_dims=(None, 0, 0))(PARAMS, x, y),
        (X, Y),
    ),
    "clipped per-sample gradients": (
        lambda x, y: {
            name: (g * (1 / g.flatten(1).norm(dim=1).clamp(min=1)).view(-1, *[1] * (g.dim() - 1))).mean(0)
            for name, g in vmap(grad(loss_of), in_dims=(None, 0, 0))(PARAMS, x, y).items()
        },
        (X, Y),
    ),
    "per-sample losses": (
        lambda x, t: vmap(lambda a, i: F.cross_entropy(MODEL(a), i))(x, t),
        (X, T),
    ),
    "per-sample gradients of a convolution": (
        lambda x: vmap(grad(lambda p, a: functional_call(CONVOLUTION, p, (a,)).sum()), in_dims=(None, 0))(
            dict(CONVOLUTION.named_parameters()), x
        ),
        (IMAGES,),
    ),
    "functional_call": (lambda p, x: functional_call(MODEL, p, (x,)), (PARAMS, X)),
    "functional_call of parts": (
        lambda x: functional_call(NORMED, (dict(NORMED.named_parameters()), dict(NORMED.named_buffers())), (x,)),
        (X,),
    ),
    "vmap of a module": (lambda x: vmap(NORMED)(x), (X,)),
    "vmap of attention": (lambda x: vmap(lambda a: ATTENTION(a, a, a)[0])(x), (torch.randn(2, 3, 5, 4),)),
    "ensemble": (
        lambda p, b, x: vmap(lambda p, b: functional_call(BASE, (p, b), (x,)))(p, b),
        (*STACKED, X),
    ),
    "ensemble on own batches": (
        lambda p, b, x: vmap(lambda p, b, x: functional_call(BASE, (p, b), (x,)))(p, b, x),
        (*STACKED, torch.randn(4, 5, 3)),
    ),
    "gradients of an ensemble": (
        lambda p, b, x: vmap(grad(lambda p, b: functional_call(BASE, (p, b), (x,)).square().mean()))(p, b),
        (*STACKED, X),
    ),
    "jacrev": (lambda x: jacrev(lambda a: torch.tanh(W @ a))(x), (X[0],)),
    "jacfwd": (lambda x: jacfwd(lambda a: torch.tanh(W @ a))(x), (X[0],)),
    "jacobians of a batch": (lambda x: vmap(jacrev(MODEL))(x), (X,)),
    "forward jacobians of a batch": (lambda x: vmap(jacfwd(MODEL))(x), (X,)),
    "jacobian of parameters": (lambda x: jacrev(lambda p: functional_call(MODEL, p, (x,)))(PARAMS), (X[0],)),
    "jacobian with aux": (lambda x: jacrev(lambda a: (a.sin(), a.sum()), has_aux=True)(x), (X[0],)),
    "jacobian in chunks": (lambda x: jacrev(torch.sin, chunk_size=4)(x), (X,)),
    "divergence": (lambda x: vmap(lambda a: jacrev(lambda b: torch.tanh(W @ b))(a).trace())(x), (X,)),
    "hessian": (lambda x: hessian(sines)(x), (X[0],)),
    "hessians of a network": (lambda x: vmap(hessian(energy))(x), (X,)),
    "hessian of parameters": (
        lambda x, y: hessian(loss_of)({"2.bias": PARAMS["2.bias"]}, x, y),
        (X, Y),
    ),
    "laplacian": (lambda x: vmap(lambda a: jacfwd(grad(energy))(a).diagonal().sum())(x), (X,)),
    "hessian vector product": (lambda x: jvp(grad(lambda a: energy(a).sum()), (x,), (x,))[1], (X,)),
    "reverse hessian vector product": (lambda x: vjp(grad(lambda a: energy(a).sum()), x)[1](x), (X,)),
    "jvp": (lambda x: jvp(lambda a: F.layer_norm(a @ W, (3,)), (x,), (x,)), (X,)),
    "jvp with aux": (lambda x: jvp(lambda a: (a.exp(), a.cos()), (x,), (x,), has_aux=True), (X,)),
    "vjp": (lambda x: vjp(lambda a: torch.tanh(a @ W), x)[1](x), (X,)),
    "vjp of two": (lambda x, y: vjp(lambda a, b: (a * b, a.sum()), x, y)[1]((x, x.sum())), (X, X)),
    "rows by vjp": (
        lambda x: (lambda value, back: vmap(back)(torch.eye(3)))(*vjp(lambda a: torch.tanh(W @ a), x)),
        (X[0],),
    ),
    "gauss-newton": (lambda x: natural(MODEL, x), (X,)),
    "fields of a potential": (
        lambda x: (lambda e, back: (e, -back(torch.ones_like(e))[0]))(*vjp(energy, x)),
        (X,),
    ),
    "neural tangent kernel": (
        lambda x: (lambda j: torch.einsum("Nof,Mof->NMo", j.flatten(2), j.flatten(2)))(
            vmap(jacrev(lambda p, a: functional_call(MODEL, p, (a,))), in_dims=(None, 0))(PARAMS, x)["0.weight"]
        ),
        (X,),
    ),
    "heat equation": (
        lambda t, x: vmap(residual, in_dims=(None, 0, 0))(SCALAR_PARAMS, t, x).square().mean(),
        (TIMES, PLACES),
    ),
    "gradients of a heat equation": (
        lambda p, t, x: grad(lambda p: vmap(residual, in_dims=(None, 0, 0))(p, t, x).square().mean())(p),
        ({name: p.detach() for name, p in SCALAR_PARAMS.items()}, TIMES, PLACES),
    ),
    "maml": (
        lambda p, x, y: grad(lambda p: vmap(adapted, in_dims=(None, 0, 0))(p, x, y).mean())(p),
        (PARAMS, torch.randn(3, 5, 3), torch.randn(3, 5, 2)),
    ),
    "autocast inside": (lambda x: grad(under_autocast)(x), (X,)),
}
NO_KERNELS = {"batched matmul", "batched dot", "in_dims"}  # library calls


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_captured_whole(name):
    fn, args = PROGRAMS[name]
    expected = fn(*args)
    intarsia.reset()
    fast = intarsia.compile(fn, options={"on_error": "raise"})
    for _ in range(2):
        close(fast(*args), expected)
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks, stats.frames_compiled) == (1, 0, 1)
    assert stats.kernels_generated > 0 or name in NO_KERNELS


TRAINED = ["vmap of a function", "gradient inside", "jacobians of a batch", "fields of a potential", "laplacian"]


@pytest.mark.parametrize("name", [*TRAINED, "hessian vector product", "gauss-newton", "divergence"])
def test_gradients_through_it(name):
    fn, args = PROGRAMS[name]

    def gradients(fn):
        x = args[0].clone().requires_grad_()
        outputs = [o for o in pytree.tree_leaves(fn(x)) if o.requires_grad]
        total = sum(o.square().sum() for o in outputs)
        given = [x, *MODEL.parameters(), *SCALAR.parameters(), *NORMED.parameters()]
        return torch.autograd.grad(total, given, allow_unused=True)

    intarsia.reset()
    fast = intarsia.compile(fn, options={"on_error": "raise"})
    for found, expected in zip(gradients(fast), gradients(fn), strict=True):
        close(found, expected)
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def test_a_training_step_of_a_network_for_a_differential_equation():
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def solution(t, x):
        return model(torch.stack([t, x])).squeeze(-1)

    def loss(t, x):
        u_t = vmap(grad(solution))(t, x)
        u_xx = vmap(grad(grad(solution, 1), 1))(t, x)
        return (u_t - u_xx).square().mean()

    def step(fn):
        model.zero_grad()
        value = fn(TIMES, PLACES)
        value.backward()
        return value.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    intarsia.reset()
    close(step(intarsia.compile(loss, options={"on_error": "raise"})), step(loss))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def test_random_numbers_are_eagers():
    def fn(x):
        noisy = vmap(lambda a: F.dropout(a, 0.5) + torch.rand(3), randomness="different")(x)
        return noisy, vmap(lambda a: a + torch.rand(3), randomness="same")(x)

    intarsia.reset()
    fast = intarsia.compile(fn, options={"on_error": "raise"})
    torch.manual_seed(5)
    expected = fn(X)
    torch.manual_seed(5)
    close(fast(X), expected)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        intarsia.compile(lambda x: vmap(lambda a: a + torch.rand(3))(x))(X)


@pytest.mark.parametrize("name", ["vmap of a function", "grad", "jacobians of a batch", "per-sample gradients", "vjp"])
def test_other_batches(name):
    fn, args = PROGRAMS[name]
    intarsia.reset()
    fast = intarsia.compile(fn, options={"on_error": "raise"})
    for n in (5, 4, 3, 2):
        some = [a[:n] for a in args]
        close(fast(*some), fn(*some))
    assert intarsia.stats().graphs <= 2


# ---- compiled functions under transforms -----------------------------------------------------------------------

OUTSIDE = {
    "vmap": (lambda f: vmap(f), torch.tanh),
    "grad": (lambda f: grad(f), sines),
    "grad_and_value": (lambda f: grad_and_value(f), sines),
    "jvp": (lambda f: lambda x: jvp(f, (x,), (x,)), torch.tanh),
    "vjp": (lambda f: lambda x: vjp(f, x)[1](x), torch.tanh),
    "jacrev": (lambda f: jacrev(f), torch.tanh),
    "jacfwd": (lambda f: jacfwd(f), torch.tanh),
    "hessian": (lambda f: hessian(f), sines),
    "vmap of grad": (lambda f: vmap(grad(f)), sines),
    "linearize": (lambda f: lambda x: linearize(f, x)[1](x), torch.tanh),
    "functionalize": (lambda f: functionalize(f), torch.tanh),
    "functional_call": (lambda f: lambda x: functional_call(f, PARAMS, (x,)), MODEL),
    "vmap of functional_call": (lambda f: vmap(lambda x: functional_call(f, PARAMS, (x,))), MODEL),
}


@pytest.mark.parametrize("called_before", [False, True])
@pytest.mark.parametrize("name", OUTSIDE)
def test_of_a_compiled_function(name, called_before):
    made, plain = OUTSIDE[name]
    f = plain if isinstance(plain, nn.Module) else (lambda x: plain(x) * 2)
    intarsia.reset()
    fast = intarsia.compile(f)
    if called_before:
        close(fast(X), f(X))
    close(made(fast)(X), made(f)(X))


def test_compiled_inside_and_outside():
    inner = intarsia.compile(lambda a: (a.sin() * a).sum())
    intarsia.reset()
    fast = intarsia.compile(lambda x: vmap(grad(inner))(x), options={"on_error": "raise"})
    close(fast(X), vmap(grad(sines))(X))
    assert intarsia.stats().graphs == 1


# ---- random programs -------------------------------------------------------------------------------------------

UNARY = [torch.sin, torch.tanh, torch.exp, torch.square, lambda x: x.sigmoid() * 0.5, lambda x: F.softplus(x)]


def random_function(rng, depth):
    """Return a function of a vector that gives one of the same size, some of it made by transforms."""
    if depth == 0:
        first, second = rng.choice(UNARY), rng.choice(UNARY)
        scale = rng.choice([0.5, -1.0, 2.0])
        return rng.choice(
            [
                lambda x: first(x) * scale + second(x.mean()),
                lambda x: first(W @ x) - second(x) * scale,
                lambda x: torch.cat([first(x[:1]), second(x[1:])]) * x.sum(),
            ]
        )
    f, g = random_function(rng, depth - 1), random_function(rng, rng.randrange(depth))
    return rng.choice(
        [
            lambda x: grad(lambda a: f(a).sum())(x),
            lambda x: grad(lambda a: (f(a) * g(x)).sum())(x),
            lambda x: grad_and_value(lambda a: f(a).square().mean())(x)[0] + g(x),
            lambda x: jvp(f, (x,), (g(x),))[1],
            lambda x: sum(jvp(lambda a: (f(a), g(a)), (x,), (x * 0.5,))[1]),
            lambda x: vjp(f, x)[1](g(x))[0],
            lambda x: jacrev(f)(x) @ g(x),
            lambda x: jacfwd(f)(x).sum(0) - x,
            lambda x: vmap(lambda a: f(a * x).mean())(torch.stack([x, x * 0.5, x + 1])),
            lambda x: vmap(f, in_dims=1, out_dims=1)(torch.outer(x, x[:2])).sum(1),
            lambda x: vmap(lambda a, b: f(b) * a, in_dims=(0, None))(x, x).mean(0),
            lambda x: hessian(lambda a: (a * f(a)).mean())(x)[0],
        ]
    )


@pytest.mark.parametrize("seed", range(40))
def test_random_nesting(seed):
    rng = random.Random(seed)
    f = random_function(rng, rng.choice([1, 2, 2, 3]))
    x = torch.tensor([0.3, -0.4, 0.7])
    expected = f(x)
    intarsia.reset()
    fast = intarsia.compile(f, options={"on_error": "raise"})
    torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-4)
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)
