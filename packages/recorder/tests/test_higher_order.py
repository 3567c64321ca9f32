"""Calls with subgraphs are recorded as one node, and so are their gradients."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from intarsia_ir import aten
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_recorder import record
from intarsia_recorder.higher_order import call_higher_order
from intarsia_recorder.recorder import Recorder
from intarsia_shapes import ShapeEnv, fake_mode

X, W = torch.tensor([[0.5, -1.0, 2.0]]), torch.tensor([2.0, 0.25, -1.0])


def graph_of(function: Callable[..., Any]) -> fx.GraphModule:
    return fx.symbolic_trace(function)


def conditional(yes: Callable[..., Any], no: Callable[..., Any], n_results: int = 1) -> fx.GraphModule:
    """Return FX(torch) that takes a predicate and two operands, which both functions take."""
    graph = fx.Graph()
    p, x, w = (graph.placeholder(name) for name in "pxw")
    node = graph.call_function(HigherOrderOp("cond", (graph_of(yes), graph_of(no))), (p, x, w))
    graph.output(tuple([graph.call_function(operator.getitem, (node, n)) for n in range(n_results)]))
    return fx.GraphModule(torch.nn.Module(), graph)


def scaled(x: Any, w: Any) -> Any:
    return ((x * w).sin(),)


def shifted(x: Any, w: Any) -> Any:
    y = x.cos()
    return (y.add_(w**2 * x**3),)


def op_in(gm: fx.GraphModule) -> HigherOrderOp:
    return next(node.target for node in gm.graph.nodes if isinstance(node.target, HigherOrderOp))


@pytest.mark.parametrize("p", [True, False])
def test_is_one_node_with_a_graph_for_each_function(p: bool) -> None:
    done = record(conditional(scaled, shifted), (torch.tensor(p), X, W))
    aten.verify(done.graph_module, values=True)
    op = op_in(done.graph_module)
    assert [[str(n.target) for n in g.graph.nodes if n.op == "call_function"] for g in op.programs] == [
        ["aten.mul.Tensor", "aten.sin.default"],
        ["aten.cos.default", "aten.pow.Tensor_Scalar", "aten.pow.Tensor_Scalar", "aten.mul.Tensor", "aten.add_.Tensor"],
    ]
    torch.testing.assert_close(
        aten.interpret(done.graph_module, torch.tensor(p), X, W), (scaled if p else shifted)(X, W)
    )


@pytest.mark.parametrize("p", [True, False])
def test_gradients_of_any_order_are_calls_too(p: bool) -> None:
    def penalty(function: Callable[..., Any], x: Any, w: Any) -> Any:
        (first,) = torch.autograd.grad(function(x, w)[0].sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), [x, w])

    def program(p: Any, x: Any, w: Any) -> Any:
        (recorder,) = [m for m in _get_current_dispatch_mode_stack() if isinstance(m, Recorder)]
        return penalty(lambda *given: call_higher_order(recorder, "cond", [scaled, shifted], (p, *given)), x, w)

    leaves = [x.clone().requires_grad_() for x in (X, W)]
    done = record(program, (torch.tensor(p), *leaves))
    expected = penalty(scaled if p else shifted, *leaves)
    with torch.no_grad():
        torch.testing.assert_close(aten.interpret(done.graph_module, torch.tensor(p), X, W), expected)


def test_results_have_memory_of_their_own() -> None:
    gm = conditional(lambda x, w: (x, x, w.exp()[:2]), lambda x, w: (x + 1, x, w[1:]), n_results=3)
    done = record(gm, (torch.tensor(True), X, W))
    for program in op_in(done.graph_module).programs:
        clones = program.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
        assert len(clones) == (3 if program is op_in(done.graph_module).programs[0] else 2)
    x, again, part = aten.interpret(done.graph_module, torch.tensor(True), X, W)
    assert x.equal(X) and again.equal(X) and part.equal(W.exp()[:2])
    assert len({t.untyped_storage()._cdata for t in (x, again, part, X)}) == 4


@pytest.mark.parametrize(
    ("no", "message"),
    [
        (lambda x, w: (x.sum(0),), r"give torch.float32 \[1, 3\] on cpu and torch.float32 \[3\] on cpu"),
        (lambda x, w: (x > 0,), "torch.float32 .* and torch.bool"),
        (lambda x, w: (x, w), "and torch.float32"),
    ],
)
def test_functions_that_give_different_tensors_are_refused(no: Callable[..., Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        record(conditional(scaled, no), (torch.tensor(True), X, W))
    assert caught.value.code == "recorder.higher_order"


def test_sizes_that_depend_on_data_are_refused() -> None:
    gm = conditional(scaled, lambda x, w: (x * x[x > 0].sum(),))
    mode = fake_mode(ShapeEnv())
    with pytest.raises(UnsupportedError, match="has a size that depends on data"):
        record(gm, (torch.tensor(True), X, W), fake_mode=mode)


def test_gradients_of_functions_that_draw_are_refused() -> None:
    gm = conditional(scaled, lambda x, w: (x * torch.rand_like(x),))
    with pytest.raises(UnsupportedError, match="draws random numbers") as caught:
        record(gm, (torch.tensor(True), X.clone().requires_grad_(), W))
    assert caught.value.code == "recorder.higher_order_random" and len(caught.value.hints) == 2
    with torch.no_grad():
        assert aten.draws_random(record(gm, (torch.tensor(True), X.clone().requires_grad_(), W)).graph_module)


def looped(x: Any, n: Any) -> Any:
    """Return FX(torch) of a loop that halves the first operand while it is long, and counts."""
    graph = fx.Graph()
    node = graph.call_function(
        HigherOrderOp(
            "while_loop",
            (graph_of(lambda x, n: (x.norm() > 1,)), graph_of(lambda x, n: (x.t().contiguous().t() / 2, n + 1))),
            {"carried": 2},
        ),
        (graph.placeholder("x"), graph.placeholder("n")),
    )
    graph.output(tuple([graph.call_function(operator.getitem, (node, k)) for k in range(2)]))
    return record(fx.GraphModule(torch.nn.Module(), graph), (x, n))


@pytest.mark.parametrize("like", ["rows", "columns", "a part"])
def test_a_loop_gives_tensors_laid_out_as_what_it_is_given(like: str) -> None:
    wide = torch.arange(24.0).view(4, 6)
    x = {"rows": wide, "columns": wide.t().contiguous().t(), "a part": wide[:, 1:4]}[like]
    done = looped(x, torch.tensor(0))
    aten.verify(done.graph_module, values=True)
    found, n = aten.interpret(done.graph_module, x, torch.tensor(0))
    torch.testing.assert_close(found, x / 2**n)
    assert found.norm() <= 1 < found.norm() * 2
    assert found.stride() == ((3, 1) if like == "a part" else x.stride())


def recorder_of_now() -> Recorder:
    (found,) = [m for m in _get_current_dispatch_mode_stack() if isinstance(m, Recorder)]
    return found


def scanned(step: Callable[..., Any], n_carried: int, n_rows: int, *operands: Any) -> Any:
    """Call `scan` under a recorder; elsewhere do what it stands for."""
    if _get_current_dispatch_mode_stack():
        options = {"carried": n_carried, "scanned": n_rows - n_carried}
        return call_higher_order(recorder_of_now(), "scan", [step], operands, options)
    carried, given = operands[:n_carried], []
    for number in range(len(operands[n_carried])):
        results = step(*carried, *[x[number] for x in operands[n_carried:n_rows]], *operands[n_rows:])
        carried = results[:n_carried]
        given.append(results[n_carried:])
    return (*carried, *map(torch.stack, zip(*given, strict=True)))


def step_of_two(c: Any, count: Any, x: Any, w: Any, by: Any) -> Any:
    c = (c * w + x).tanh() * by
    return c, count + 1, c.sum() * w.exp(), x > c


def step_as_given(c: Any, x: Any, w: Any) -> Any:
    return c, c * 2, x  # what it is given, and nothing of `w`


def step_of_a_map(x: Any, w: Any) -> Any:
    return (x.sin() * w,)


C0, ROWS = torch.tensor([0.5, -1.0]), torch.tensor([[1.0, 2.0], [-0.5, 0.25], [0.1, 3.0]])
SCANS: dict[str, Any] = {
    "two carried, one of ints": (step_of_two, 2, 3, (C0, torch.tensor(0), ROWS, C0 * 3, 2), (0, 2, 3)),
    "the start isn't asked for": (step_of_two, 2, 3, (C0, torch.tensor(0), ROWS, C0 * 3, 2), (3,)),
    "one row": (step_of_two, 2, 3, (C0, torch.tensor(0), ROWS[:1], C0 * 3, 2), (0, 2, 3)),
    "what it is given": (step_as_given, 1, 2, (C0, ROWS, C0), (0, 1, 2)),
    "nothing carried": (step_of_a_map, 0, 1, (ROWS, C0), (0, 1)),
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", SCANS)
def test_gradients_of_a_scan_are_scans(name: str, order: int) -> None:
    step, n_carried, n_rows, operands, wanted = SCANS[name]

    def gradients(*given: Any) -> Any:
        leaves = [given[n] for n in wanted]
        results = scanned(step, n_carried, n_rows, *given)
        for _ in range(order):
            total = sum((x.square() + x.sin()).sum() for x in results if x.requires_grad)
            results = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True, materialize_grads=True)
        return results

    given = [
        x.clone().requires_grad_(n in wanted) if isinstance(x, torch.Tensor) else x for n, x in enumerate(operands)
    ]
    done = record(gradients, given)
    aten.verify(done.graph_module, values=True)
    calls = [n.target for n in done.graph_module.graph.nodes if isinstance(n.target, HigherOrderOp)]
    assert len(calls) >= 2 and {op.name for op in calls} == {"scan"}
    with torch.no_grad():
        found = aten.interpret(done.graph_module, *[x.detach() if isinstance(x, torch.Tensor) else x for x in given])
    torch.testing.assert_close(found, gradients(*given))


def test_gradients_of_a_scan_that_draws_are_refused() -> None:
    rows = ROWS.clone().requires_grad_()
    with pytest.raises(UnsupportedError, match="a function of scan that draws random numbers") as caught:
        record(lambda x: scanned(lambda x: (x * torch.rand_like(x),), 0, 1, x), (rows,))
    assert caught.value.code == "recorder.higher_order_random"


def looping(body: Callable[..., Any], n_carried: int, *operands: Any) -> Any:
    """Call `while_loop` under a recorder, elsewhere do what it stands for, while the first operand is less than 3."""
    if _get_current_dispatch_mode_stack():
        bodies = [lambda i, *given: (i < 3,), body]
        return call_higher_order(recorder_of_now(), "while_loop", bodies, operands, {"carried": n_carried})
    carried, others = operands[:n_carried], operands[n_carried:]
    while carried[0] < 3:
        carried = body(*carried, *others)
    return carried


WHILES: dict[str, Any] = {
    "carried and shared": (lambda i, x, w: (i + 1, (x * w).sin()), 2, (torch.tensor(0), C0, C0 * 3)),
    "no iteration": (lambda i, x, w: (i + 1, (x * w).sin()), 2, (torch.tensor(3), C0, C0 * 3)),
    "shared only": (lambda i, x, w: (i + 1, w * 2 + x.detach()), 2, (torch.tensor(0), C0, C0 * 3)),
    "two carried": (lambda i, x, y: (i + 1, x * y, y.cos()), 3, (torch.tensor(0), C0, C0 * 3)),
}


@pytest.mark.parametrize("name", WHILES)
def test_the_gradient_of_a_loop_goes_back_through_its_iterations(name: str) -> None:
    body, n_carried, operands = WHILES[name]

    def gradients(*given: Any) -> Any:
        results = looping(body, n_carried, *given)
        total = sum((x.square() + x.sin()).sum() for x in results[1:])
        return torch.autograd.grad(total, given[1:], allow_unused=True, materialize_grads=True)

    given = [operands[0], *[x.clone().requires_grad_() for x in operands[1:]]]
    done = record(gradients, given)
    aten.verify(done.graph_module, values=True)
    calls = [n.target.name for n in done.graph_module.graph.nodes if isinstance(n.target, HigherOrderOp)]
    assert calls == ["while_loop", "unwind"]
    with torch.no_grad():
        found = aten.interpret(done.graph_module, *[x.detach() for x in given])
    torch.testing.assert_close(found, gradients(*given))


def test_gradients_of_a_loops_gradient_and_of_one_that_draws_are_refused() -> None:
    def twice(i: Any, x: Any) -> Any:
        _, y = looping(lambda i, x: (i + 1, x.sin()), 2, i, x)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)

    given = [torch.tensor(0), X.clone().requires_grad_()]
    with pytest.raises(UnsupportedError, match="gradients are needed of the gradient of a while_loop") as caught:
        record(twice, given)
    assert caught.value.code == "recorder.higher_order_gradient"
    with pytest.raises(UnsupportedError, match="a function of while_loop that draws random numbers"):
        record(lambda i, x: looping(lambda i, x: (i + 1, x * torch.rand_like(x)), 2, i, x), given)
