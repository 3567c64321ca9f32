"""Transforms as nodes: each does what torch's own does, and the graph around it prints and reads back."""

from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.utils._pytree as pytree

from intarsia_ir.torch import TRANSFORMS, Transform, constants_of, interpret, over_points, parse_ir, print_ir


def body(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (x.sin() * scale).sum()


def graph_of_body(n_inputs: int = 1) -> fx.GraphModule:
    graph = fx.Graph()
    x, *_ = (graph.placeholder(f"x{n}") for n in range(n_inputs))
    scale = graph.placeholder("scale")
    product = graph.call_function(torch.mul, (graph.call_function(torch.sin, (x,)), scale))
    graph.output((graph.call_function(torch.sum, (product,)),))
    return fx.GraphModule(torch.nn.Module(), graph)


def numbered(args: Any) -> tuple[tuple[int, ...], pytree.TreeSpec]:
    leaves, structure = pytree.tree_flatten((args, {}))
    return tuple(range(len(leaves))), structure


def transform(name: str, args: Any, **options: Any) -> Transform:
    program = graph_of_body(len(args) if name == "over_points" else 1)
    return Transform(name, program, options, *numbered(args), (0,), pytree.tree_structure(0))


x, scale = torch.arange(6.0).view(2, 3), torch.tensor([2.0, -1.0, 0.5])
row = x[1]
points, place = torch.arange(24.0).view(1, 2, 3, 4) / 24, [torch.arange(n) for n in (1, 2, 3, 4)]


def vjp_function(primal: torch.Tensor) -> Any:
    return torch.func.vjp(lambda x: body(x, scale), primal)


CASES: dict[str, tuple[Any, Any]] = {
    "vmap": ((x,), torch.func.vmap(lambda x: body(x, scale))(x)),
    "grad": ((row,), torch.func.grad(body)(row, scale)),
    "grad_and_value": ((row,), torch.func.grad_and_value(body)(row, scale)),
    "jacrev": ((row,), torch.func.jacrev(body)(row, scale)),
    "jacfwd": ((row,), torch.func.jacfwd(body)(row, scale)),
    "jvp": (((row,), (row,)), torch.func.jvp(lambda x: body(x, scale), (row,), (row,))),
    "vjp": ((row,), vjp_function(row)[0]),
    "over_points": ((points, *place), torch.stack([body(p, scale) for p in points.flatten()]).view(points.shape)),
    "pullback": (((row,), torch.tensor(3.0)), vjp_function(row)[1](torch.tensor(3.0))),
}


def test_every_transform_has_a_case() -> None:
    assert CASES.keys() == TRANSFORMS.keys()


@pytest.mark.parametrize("name", CASES)
def test_equals_torchs_own(name: str) -> None:
    args, expected = CASES[name]
    node = transform(name, args)
    found = node(*pytree.tree_leaves(args), scale)
    assert [torch.equal(a, b) for a, b in zip(found, pytree.tree_leaves(expected), strict=True)].count(False) == 0


def test_over_points_gives_the_place_of_each() -> None:
    def number(b: torch.Tensor, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        assert b.shape == h.shape == i.shape == j.shape == ()
        return 24 * b + 12 * h + 4 * i + j

    assert torch.equal(over_points(number)(*place), torch.arange(24).view(1, 2, 3, 4))


def test_options_and_leaves_that_are_no_tensors() -> None:
    structure = pytree.tree_structure((((0,), 0), {}))
    node = Transform("grad", graph_of_body(), {"argnums": 0}, (0, None), structure, (0,), pytree.tree_structure(0))
    assert node.n_arguments == node.n_passed == 1
    assert torch.equal(node(row, scale)[0], torch.func.grad(body)(row, scale))


def test_two_of_a_graph_read_back_as_two() -> None:
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    first = graph.call_function(transform("grad", (row,)), (a, b))
    second = graph.call_function(transform("jacfwd", (row,)), (a, b))
    graph.output((first, second))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    back = parse_ir(print_ir(gm), constants=constants_of(gm))
    assert print_ir(back) == print_ir(gm)
    targets = [node.target for node in back.graph.nodes if node.op == "call_function"]
    assert [target.name for target in targets] == ["grad", "jacfwd"]
    (found,), _ = interpret(back, row, scale)
    assert torch.equal(found, torch.func.grad(body)(row, scale))
