"""Breaks: what can't be in a graph runs in CPython, and what follows is captured again."""

from __future__ import annotations

import torch
from torch import nn, randn

from integration.python.program import made, program

# an instruction that broke twice in a call isn't tried again: the frame goes on in CPython
LOOP = ("tracer.output", "tracer.output", "tracer.repeated")


@program("partial graph", lambda: (randn(3),), graphs=2, breaks=("tracer.tensor_value",))
def many_values_live_across_a_break(x):
    scale, items, table = 2.0, [x, x + 1], {"k": x * 2}
    n = int((x * 0).sum())
    items.append(table["k"] * scale)
    return items, n, {**table, "n": n}


@program("partial graph", lambda: (torch.tensor([[0.0, 1.0], [2.0, 1.0]]),))
def nonzero_positions(x):
    y = x - 1  # -1, 0, 1, 0
    where = torch.nonzero(y)
    return where * 2, y


@program("resume is captured again", lambda: (randn(3),), graphs=3, breaks=("tracer.output", "tracer.output"))
def two_prints(x):
    x = x + 1
    print("one")
    x = x * 2
    print("two")
    return x - 3


@program("resume is captured again", lambda: (randn(3), 2), graphs=2, breaks=("tracer.output",))
def closure_lives_across_a_break(x, n):
    def scaled(v):
        return v * n

    y = scaled(x)
    print("n", n)
    n = n + 1
    return scaled(y)


@program("break in a loop", lambda: (randn(3),), graphs=2, breaks=LOOP)
def print_in_a_loop(x):
    for i in range(3):
        x = x + i
        print("step", i)
    return x * 2


@program("break in a loop", lambda: ([torch.tensor([1.0]), torch.tensor([-1.0])],))
def no_break_without_need(items):
    out = []
    for item in items:
        out.append(torch.where(item > 0, item, -item))
    return out


@program("break in a with block", lambda: (randn(3),), graphs=2, breaks=("tracer.output",))
def print_under_enable_grad(x):
    with torch.enable_grad():
        y = x * 2
        print(torch.is_grad_enabled())
        y = y + 1
    return y * 3, torch.is_grad_enabled()


class Recorder:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, *error):
        self.log.append("out" if error[0] is None else error[0].__name__)
        return False


@program("break in a with block", lambda: (randn(3), []), graphs=2, breaks=("tracer.output",))
def print_under_a_manager(x, log):
    with Recorder(log) as recorder:
        y = x + 1
        print(recorder.log)
        y = y * 2
    return y


def _noisy(x):
    y = x * 2
    print("inner")
    return y + 1


@program("break in an inlined call", lambda: (randn(3),), graphs=4, breaks=("tracer.output", "tracer.output"))
def helper_prints(x):
    y = _noisy(x + 1)
    return y.relu()


class Chatty(nn.Module):
    """Prints between its two layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        x = self.a(x)
        print(x.shape)
        return self.b(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.chatty, self.scale = Chatty(), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.chatty(x + 1) * self.scale


@made("break in an inlined call", lambda: (randn(2, 3),), graphs=4, breaks=("tracer.output", "tracer.output"))
def submodule_prints():
    return Outer().eval()


@program("branch over a tensor", lambda: (torch.rand(3) + 1,), graphs=2, breaks=("tracer.tensor_branch",))
def branch_on_the_sum(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


@program("branch over a tensor", lambda: (torch.rand(3) + 1,), graphs=2, breaks=("tracer.tensor_branch",))
def both_conditions(x):
    if x.dim() == 1 and (x > 0).all():
        x = x.sqrt()
    return x * 3


@program(
    "branch over a tensor",
    lambda: (torch.tensor(1.0),),
    graphs=3,
    breaks=(*("tracer.tensor_branch",) * 3, "tracer.repeated"),
)
def loop_until_it_is_large(x):
    steps = 0
    while x < 4:
        x = x * 2
        steps += 1
    return x, steps


@program("break in a try block", lambda: (randn(3), []), graphs=2, breaks=("tracer.output",))
def print_inside_try(x, log):
    try:
        y = x + 1
        print("trying")
        y = y * 2
        {}["k"]
    except KeyError:
        log.append("caught")
    finally:
        log.append("finally")
    return y


@program("break in a try block", lambda: (randn(3),), breaks=("tracer.operation_raised",))
def operator_error_is_caught(x):
    try:
        return x @ torch.ones(5, 5)
    except RuntimeError as error:
        return x * 2, "size" in str(error)


@made("partial graph", lambda: (randn(2, 3),), graphs=2, breaks=("tracer.requested",))
def break_asked_for():
    model = nn.Linear(3, 3).eval()

    def f(x):
        y = model(x)
        torch._dynamo.graph_break()
        return y.relu()

    return f


@made("break in an inlined call", lambda: (randn(2, 3),), graphs=4, breaks=("tracer.output", "tracer.output"))
def layer_of_a_sequential_prints():
    return nn.Sequential(nn.ReLU(), Chatty(), nn.Tanh()).eval()
