"""`torch.cond`: captured whole, both branches in the graph, and what Python's own `if` gives."""

from __future__ import annotations

import copy
import os

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

import intarsia
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.higher_order import HigherOrderOp
from integration.values import check_run, values_of

STRICT = {"options": {"on_error": "raise", "verify_each": True}, "fullgraph": True}
CHECKS = settings(
    derandomize=True,
    deadline=None,
    max_examples=int(os.environ.get("INTARSIA_COND_PROGRAMS", "4")),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


def plain_if(predicate, true_fn, false_fn, operands=()):
    """Return what `torch.cond` means."""
    return (true_fn if predicate else false_fn)(*operands)


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    intarsia.reset()


def agree(program, *calls, train=False, **how):
    """Compare a program compiled over `torch.cond` with the same over Python's `if`; gradients too."""
    fast = intarsia.compile(program, **{**STRICT, **how})
    for inputs in calls:
        ours, theirs = ([x.clone().requires_grad_(train and x.is_floating_point()) for x in inputs] for _ in "ab")
        with torch.set_grad_enabled(train):
            found, expected = fast(torch.cond, *ours), program(plain_if, *theirs)
        torch.testing.assert_close(found, expected)
        if train:
            wanted = [n for n, x in enumerate(ours) if x.requires_grad]
            gradients = [
                torch.autograd.grad(y.sin().sum(), [x[n] for n in wanted], allow_unused=True)
                for y, x in ((found, ours), (expected, theirs))
            ]
            for mine, other, n in zip(*gradients, wanted, strict=True):
                torch.testing.assert_close(zero_if_none(mine, ours[n]), zero_if_none(other, ours[n]))
    return fast


def zero_if_none(gradient, like):
    return torch.zeros_like(like) if gradient is None else gradient


X, Y = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]), torch.tensor([[1.0, 2.0, -3.0], [0.5, -0.5, 1.0]])


# ---- any program


STEPS = {
    "sin": lambda x, y: x.sin(),
    "gelu": lambda x, y: F.gelu(x),
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "softmax": lambda x, y: x.softmax(-1),
    "mean": lambda x, y: x - y.mean(0, keepdim=True),
    "written": lambda x, y: x.clone().mul_(2.0).add_(y),
    "slice": lambda x, y: torch.cat([x[:, 1:], y[:, :1]], 1),
    "matmul": lambda x, y: x @ (y.t() @ y),
}


def bodies(depth):
    """A body is a list of steps over the values so far: an operation, or a condition with two bodies."""
    pick = st.integers(0, 20)
    step = st.tuples(st.sampled_from(sorted(STEPS)), pick, pick)
    if depth:
        step |= st.tuples(st.just("cond"), pick, pick, bodies(depth - 1), bodies(depth - 1))
    return st.lists(step, min_size=1, max_size=2)


def run(cond, body, outside):
    """Run a body: each step sees the values of the bodies around it, as closures do, and those of its own."""
    values = list(outside)
    for name, first, second, *branches in body:
        x, y = values[first % len(values)], values[second % len(values)]
        if name != "cond":
            values.append(STEPS[name](x, y))
            continue
        yes, no = branches
        made = cond(
            x.mean() > y.mean(),
            lambda z, yes=yes, values=tuple(values): run(cond, yes, (*values, z)) * 1,
            lambda z, no=no, values=tuple(values): run(cond, no, (*values, z)) * 1,
            (y + 1,),
        )
        values.append(made)
    return values[-1]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_any_program_does_as_pythons_if(train, dynamic):
    @CHECKS
    @given(bodies(0), bodies(1), bodies(1))
    def check(body, yes, no):
        intarsia.reset()
        whole = [*body, ("cond", 0, 1, yes, no)]

        def program(cond, x, y):
            return run(cond, whole, (x, y)) * 2

        calls = [(X, Y), (Y, X), (-X, Y)]
        if dynamic:
            calls += [(torch.cat([a, b]), torch.cat([b, b])) for a, b in calls]
        agree(program, *calls, train=train, dynamic=dynamic, backend="loops")

    check()


def nested(x, y):
    inner = lambda z: torch.cond(y.sum() > 0, lambda w: w * y, lambda w: w - y, (z,))
    return torch.cond(x.sum() > 0, inner, lambda z: z.cos(), (x + 1,)) * 2


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_each_stage_runs_from_its_text(train, dynamic):
    def run(pipeline):
        intarsia.reset()
        inputs = [x.clone().requires_grad_(train) for x in (X, Y)]
        result = intarsia.compile(nested, pipeline=pipeline, dynamic=dynamic, options={"on_error": "raise"})(*inputs)
        if train:
            result.sum().backward()
        return [result.detach(), *(x.grad for x in inputs)]

    assert check_run(run) > 10


@pytest.mark.parametrize("backend", ["eager", "aten", "loops", "kernels"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_each_interpreter_does_as_pythons_if(backend, train):
    def program(cond, x, y):
        return cond(x.sum() > 0, lambda z: cond(y.sum() > 0, torch.sin, torch.cos, (z * y,)), torch.exp, (x + 1,)) * 2

    agree(program, (X, Y), (-X, Y), (X, -Y), train=train, backend=backend)


# ---- one node with two graphs


def ops_of(gm):
    return [node for node in gm.graph.nodes if isinstance(node.target, HigherOrderOp)]


def test_is_one_node_with_the_graphs_of_both_branches():
    values = values_of(nested, [X, Y], dynamic=False)
    (outer,) = ops_of(values["to_aten"].graph_module)
    assert outer.target.name == "cond" and len(outer.args) == 3  # the predicate, x + 1, and y, which is closed over
    assert [len(ops_of(program)) for program in outer.target.programs] == [1, 0]


# ---- as people write it


class Gated(nn.Module):
    """Branches that are modules, and a method."""

    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("limit", torch.tensor(0.25))

    def scaled(self, x):
        return {"out": self.small(x) * self.scale, "parts": (x.tanh(), x.mean(0))}

    def forward(self, cond, x):
        x = cond(x.mean() > self.limit, self.large, self.small, (x,))
        made = cond(x.sum() > 0, self.scaled, lambda z: {"out": z * 1, "parts": (z.sin(), z.sum(0))}, (x,))
        return made["out"] + made["parts"][0] + made["parts"][1]


def test_trains_inside_a_module_as_eager_does():
    torch.manual_seed(0)
    ours = Gated()
    theirs = copy.deepcopy(ours)
    fast = intarsia.compile(ours, **STRICT)
    steps = [torch.optim.SGD(m.parameters(), 0.1) for m in (ours, theirs)]
    for x in (X, -X, Y + 1, X * 3, -Y):
        losses = [fast(torch.cond, x).square().mean(), theirs(plain_if, x).square().mean()]
        torch.testing.assert_close(*losses)
        for loss, step in zip(losses, steps, strict=True):
            step.zero_grad()
            loss.backward()
            step.step()
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other)


def counted(cond, x):
    return cond(x.shape[0] > 2, lambda z: z.sin(), lambda z: z.cos(), (x,))


def test_a_predicate_of_python_takes_its_branch():
    fast = agree(counted, (X,), (torch.cat([X, Y]),), dynamic=False)
    torch.testing.assert_close(fast(torch.cond, X), X.cos())
    values = values_of(lambda x: counted(torch.cond, x), [X], dynamic=False)
    assert not ops_of(values["to_aten"].graph_module)


@pytest.mark.parametrize("predicate", [torch.tensor(True), torch.tensor([[0]]), torch.tensor(2.5)])
def test_a_predicate_is_a_tensor_of_one_element(predicate):
    agree(lambda cond, p, x: cond(p, torch.sin, torch.cos, (x,)), (predicate, X))


def test_operands_and_results_are_structures():
    def program(cond, x, y):
        made = cond(
            x.sum() > y.sum(),
            lambda d, pair: (pair[0] * d["y"], [pair[1].sum(0)], 3),
            lambda d, pair: (pair[1] - d["y"], [pair[0].amax(0)], 3),
            ({"y": y}, (x, x * y)),
        )
        return made[0] + made[1][0] * made[2]

    agree(program, (X, Y), (Y, X), train=True)


def test_a_part_of_a_tensor_is_given_memory_of_its_own():
    def program(cond, x, y):
        return cond(x.sum() > 0, lambda z: z.sin()[:, 1], lambda z: z.exp()[:, 0], (y,)) + 1

    agree(program, (X, Y), (-X, Y), train=True)


def test_a_size_is_read_in_a_branch():
    def program(cond, x):
        n = x.shape[0]
        doubled = torch.cat([x, x])
        return cond(x.sum() > 0, lambda z: z * n + torch.ones(2 * n, 1), lambda z: z / z.shape[0], (doubled,))

    agree(program, (X,), (-X,), (torch.cat([X, Y, Y]),), (-torch.cat([X, X]),), train=True, dynamic=True)


def test_branches_run_under_autocast():
    def program(cond, x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return cond(x.sum() > 0, lambda z: z @ y.t(), lambda z: (z @ x.t()).cos(), (x.sin(),)).float()

    agree(program, (X, Y), (-X, Y), train=True)


def test_second_derivatives_go_through_both_branches():
    def program(cond, x, y):
        return cond(x.sum() > 0, lambda z: z.sin() * y, lambda z: z.exp() + y**3, (x,))

    def penalty(cond, x, y):
        (inner,) = torch.autograd.grad(program(cond, x, y).sum(), x, create_graph=True)
        return inner.square().sum()

    fast = intarsia.compile(penalty, **STRICT)
    for sign in (1, -1):
        ours, theirs = ([(sign * X).requires_grad_(), Y.clone().requires_grad_()] for _ in "ab")
        found, expected = fast(torch.cond, *ours), penalty(plain_if, *theirs)
        torch.testing.assert_close(found, expected)
        for mine, other, like in zip(
            torch.autograd.grad(found, ours, allow_unused=True),
            torch.autograd.grad(expected, theirs, allow_unused=True),
            ours,
            strict=True,
        ):
            torch.testing.assert_close(zero_if_none(mine, like), zero_if_none(other, like))


def test_random_numbers_of_the_branch_that_is_taken_are_drawn():
    def program(cond, x):
        return cond(x.sum() > 0, lambda z: F.dropout(z, 0.5), lambda z: z + 1, (x,)) + torch.rand(2, 3)

    fast = intarsia.compile(program, **STRICT)
    for x in (X, -X, X):
        torch.manual_seed(3)
        found = fast(torch.cond, x)
        torch.manual_seed(3)
        assert found.equal(program(plain_if, x))


def test_gradients_of_random_branches_are_refused():
    fast = intarsia.compile(lambda x: torch.cond(x.sum() > 0, F.dropout, torch.sin, (x,)), **STRICT)
    with pytest.raises(UnsupportedError, match="draws random numbers") as caught:
        fast(X.clone().requires_grad_())
    assert caught.value.code == "recorder.higher_order_random"
    assert "draw them before the call" in caught.value.hints[0]


# ---- what torch refuses


LOG = []


def writes(x):
    return x.add_(1) * 1


def logs(x):
    LOG.append(1)
    return x + 1


def raises(x):
    raise ValueError("no")


def no_tensor(x):
    return 3


REFUSED = {
    "writes": (writes, torch.sin, "writes a tensor that isn't its own"),
    "updates statistics": (nn.BatchNorm1d(3), torch.sin, "writes a tensor that isn't its own"),
    "gives its operand": (lambda x: x, torch.sin, "returns memory that it was given"),
    "gives a view": (torch.sin, lambda x: x.view(3, 2).view(2, 3), "returns memory that it was given"),
    "gives one twice": (lambda x: (y := x.sin(), y.view(6)), lambda x: (x.sin(), x.cos().view(6)), "or the same twice"),
    "changes an object": (logs, torch.sin, "changes a list, which was there before"),
    "raises": (raises, torch.sin, "ValueError is raised in a function of torch.cond"),
    "other structure": (lambda x: (x.sin(),), torch.sin, "give different structures"),
    "no tensor": (no_tensor, no_tensor, "no tensors"),
    "other constant": (lambda x: (x.sin(), 1), lambda x: (x.sin(), 2), "different values beside their tensors"),
    "other size": (torch.sin, lambda x: x.sum(0), r"give torch.float32\[2, 3\] on cpu and torch.float32\[3\] on cpu"),
    "other type": (torch.sin, lambda x: x > 0, "torch.float32.* and torch.bool"),
    "other strides": (torch.sin, lambda x: x.sin().t().contiguous().t(), "with strides"),
    "sizes of data": (lambda x: x[x > 0].sum() + x, torch.sin, "depends on data"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_branch_that_does_more_than_compute_is_refused(name):
    yes, no, message = REFUSED[name]
    fast = intarsia.compile(lambda x: torch.cond(x.sum() > 0, yes, no, (x,)), **STRICT)
    with pytest.raises(UnsupportedError, match=message):
        fast(X.clone())


def test_more_than_one_element_is_no_predicate():
    fast = intarsia.compile(lambda x: torch.cond(x > 0, torch.sin, torch.cos, (x,)), **STRICT)
    with pytest.raises(RuntimeError, match="single-element tensor"):  # torch's own
        fast(X)
