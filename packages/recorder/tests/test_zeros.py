"""Forward mode on fake tensors: zeros without memory stay what they are to eager, their views included."""

import pytest
import torch
import torch.utils._pytree as pytree
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from intarsia_ir import aten
from intarsia_recorder import EagerMode, record


def sines(x):
    return (x.sin() * x).sum()


def roots(x):
    """Have infinite second derivatives in 0."""
    return (x[..., 0].sqrt() * x[..., 1]).sum() + x[..., 2].exp().sum()


PROGRAMS = {
    "jvp of grad": lambda f: lambda x: jvp(grad(f), (x,), (x,)),
    "vmap of jvp of grad": lambda f: vmap(lambda x: jvp(grad(f), (x,), (x,))),
    "vmap twice": lambda f: vmap(lambda x: vmap(lambda t: jvp(grad(f), (x,), (t,)))(torch.eye(3))),
    "hessian": hessian,
    "vmap of hessian": lambda f: vmap(hessian(f)),
    "forward twice": lambda f: vmap(jacfwd(jacfwd(f))),
    "reverse over forward": lambda f: vmap(jacrev(jacfwd(f))),
}


@pytest.mark.parametrize("of", [sines, roots])
@pytest.mark.parametrize("name", PROGRAMS)
def test_recorded_as_eager(name, of):
    program = PROGRAMS[name](of)
    x = torch.tensor([[0.0, 1.0, 2.0], [0.5, 0.0, -1.0], [1.0, 2.0, 100.0], [-1.0, 1.0, 0.0]])
    expected = pytree.tree_leaves(program(x))
    done = record(program, (x,))
    found = aten.interpret(done.graph_module, x)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    live, todo = set(), [next(iter(reversed(done.graph_module.graph.nodes)))]
    while todo:
        node = todo.pop()
        todo += set(node.all_input_nodes) - live
        live.update(node.all_input_nodes)
    assert live and not any("zerotensor" in str(node.target) for node in live)


@pytest.mark.parametrize("name", PROGRAMS)
def test_metadata_in_a_mode(name):
    program, x = PROGRAMS[name](sines), torch.randn(4, 3)
    mode = EagerMode()
    with mode:
        found = pytree.tree_leaves(program(mode.from_tensor(x)))
    expected = pytree.tree_leaves(program(x))
    assert [(t.shape, t.stride(), t.device) for t in found] == [(t.shape, t.stride(), t.device) for t in expected]
