"""Programs whose sizes depend on data, recorded with unbacked symbols and functionalized."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from intarsia_functionalizer import functionalize
from intarsia_functionalizer._reference import apply_signature
from intarsia_ir import aten
from intarsia_recorder import record
from intarsia_shapes import ShapeEnv, fake_mode, fakeify


def counted(x, counts):
    sizes = counts.tolist()
    for size in sizes:
        torch._check(size >= 0)
    torch._check(sum(sizes) == x.shape[0])
    return [part.sum(0) for part in x.split(sizes)]


def taken(x, n):
    size = n.item()
    torch._check(size >= 1)
    torch._check(size <= x.shape[0])
    return x[:size] * 2, torch.ones(size, 3), size


DATA_DEPENDENT = {
    "nonzero": (lambda x: torch.nonzero(x > 0) * 2, lambda n: (torch.randn(n, 3),)),
    "a mask": (lambda x: x[x > 0] + 1, lambda n: (torch.randn(n, 3),)),
    "rows found": (lambda x: x[(x[:, 0] > 0).nonzero().squeeze(1)] * 2, lambda n: (torch.randn(n, 3),)),
    "a size of a result": (lambda x: x[x > 0].shape[0] * x, lambda n: (torch.randn(n, 3),)),
    "item": (taken, lambda n: (torch.randn(n, 3), torch.tensor(n - 2))),
    "a written slice": (
        lambda x, n: [x[: checked(n, x)].add_(1), x][1] * 1,
        lambda n: (torch.randn(n), torch.tensor(2)),
    ),
    "a list of sizes": (counted, lambda n: (torch.randn(n, 3), torch.tensor([2, n - 4, 2]))),
}


def checked(n, x):
    size = n.item()
    torch._check(size >= 0)
    torch._check(size <= x.shape[0])
    return size


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_sizes_that_depend_on_data_are_symbols_of_the_graph(name):
    """One recording, functionalized, is right for other data and other sizes."""
    program, make = DATA_DEPENDENT[name]
    mode = fake_mode(ShapeEnv())
    given = [
        fakeify(mode, x, f"x{k}", range(x.dim()) if x.dtype.is_floating_point else ()) for k, x in enumerate(make(9))
    ]
    done = functionalize(record(program, given, fake_mode=mode))
    for size in (9, 6, 17):
        inputs = make(size)
        expected = program(*[x.clone() for x in inputs])
        results = aten.interpret(done.graph_module, *[x.clone() for x in inputs])
        actual = apply_signature(results, inputs, done.signature)
        torch.testing.assert_close(tree_leaves(list(actual)), tree_leaves(expected))


@pytest.mark.parametrize(
    "program, wrong",
    [(taken, (torch.randn(4, 3), torch.tensor(5))), (taken, (torch.randn(4, 3), torch.tensor(0))),
     (counted, (torch.randn(9, 3), torch.tensor([2, 4, 2])))],
)  # fmt: skip
def test_checks_of_data_are_kept_and_raise(program, wrong):
    mode = fake_mode(ShapeEnv())
    good = (torch.randn(9, 3), torch.tensor([2, 5, 2]) if program is counted else torch.tensor(4))
    given = fakeify(mode, good[0], "x", (0,)), mode.from_tensor(good[1], static_shapes=True)
    done = functionalize(record(program, given, fake_mode=mode))
    aten.interpret(done.graph_module, *good)
    with pytest.raises(RuntimeError, match="hold"):
        aten.interpret(done.graph_module, *wrong)
