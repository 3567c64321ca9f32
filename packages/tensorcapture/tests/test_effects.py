"""Side effects happen after the graph, in order; reads see pending writes; aliases stay aliases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from tensor_executor import Executor
from torch import nn

from intarsia_ir.records import GuardKind
from intarsia_tensorcapture import capture

STATE = {"n": 0}
TOTAL = 0


def one_graph(fn, *args):
    """Call by capture; there must be one graph."""
    executor = Executor()
    result = executor.call(fn, *args)
    assert [c.breaks for c in executor.captures] == [()]
    assert executor.captures[0].graph_module is not None
    return result


def test_global_counter_and_fresh_random_numbers():
    global TOTAL
    TOTAL = 0

    def f():
        global TOTAL
        TOTAL += 1
        return torch.rand(10) + TOTAL

    first, second = one_graph(f), one_graph(f)
    assert TOTAL == 2
    assert (first >= 1).all() and (second >= 2).all() and not torch.equal(first + 1, second)


def test_attributes_of_modules_and_objects():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0
            self.register_buffer("last", torch.zeros(2))
            self.history = []

        def forward(self, x):
            self.count += 1
            self.last = x * self.count
            self.history.append(self.last)
            if self.count == 1:
                self.extra = [self.count]
            return self.last + len(self.history)

    model = Counter()
    x = torch.ones(2)
    torch.testing.assert_close(one_graph(model, x), x + 1)
    torch.testing.assert_close(one_graph(model, x), 2 * x + 2)
    assert model.count == 2 and len(model.history) == 2 and model.extra == [1]
    assert model.last is model.history[-1] and model.last is dict(model.named_buffers())["last"]


def test_reads_see_pending_writes():
    def f(x, box):
        box["a"] = x + 1
        box["b"] = box["a"] * 2
        del box["a"]
        return len(box), "a" in box, box["b"]

    box = {"a": 0, "c": 1}
    n, has, b = one_graph(f, torch.ones(2), box)
    assert (n, has) == (2, False) and list(box) == ["c", "b"] and box["b"] is b


def test_new_objects_escape_as_one():
    class Node:
        def __init__(self, value):
            self.value = value
            self.next = None

    def f(x, out):
        a, b = Node(x + 1), Node(x + 2)
        a.next, b.next = b, a
        out.append(a)
        return b

    out = []
    b = one_graph(f, torch.ones(2), out)
    assert out[0].next is b and b.next is out[0]
    torch.testing.assert_close(b.value, torch.full((2,), 3.0))


def test_closure_that_escapes_sees_later_writes():
    def f(x):
        total = x

        def add(y):
            nonlocal total
            total = total + y
            return total

        add(x)
        return add

    add = one_graph(f, torch.ones(2))
    torch.testing.assert_close(add(torch.ones(2)), torch.full((2,), 3.0))


def test_attributes_of_tensors():
    def f(x):
        x.tag = "seen"
        return x + 1, x.tag

    x = torch.ones(2)
    assert one_graph(f, x)[1] == "seen" and x.tag == "seen"


def test_writes_to_arguments_survive_a_later_error():
    def f(x, items):
        items.append(1)
        y = x + 1
        items.append(2)
        raise ValueError(len(items), y.shape)

    items, executor = [], Executor()
    try:
        executor.call(f, torch.ones(2), items)
    except ValueError as error:
        assert error.args == (2, (2,))
    assert items == [1, 2]


def test_an_attribute_deleted_before_is_missing_without_a_guard():
    class Plain:
        def __init__(self):
            self.shift = 1

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = 1

        def forward(self, x):
            del self.shift
            return x * 2, hasattr(self, "shift")

    def f(x, o):
        del o.shift
        return x + 1, hasattr(o, "shift")

    guards = []
    for fn, args in ((f, (torch.ones(2), Plain())), (Model(), (torch.ones(2),))):
        executor = Executor()
        assert executor.call(fn, *args)[1] is False
        guards += [(g.kind, str(g.source)) for g in executor.captures[0].guards if "shift" in repr(g)]
    assert not [kind for kind, _ in guards if kind is GuardKind.HAS_ATTRIBUTE]
    assert not [source for kind, source in guards if kind is GuardKind.ABSENT and source.endswith("__dict__")]


def test_a_deleted_slot_is_guarded():
    class Slotted:
        __slots__ = ("x",)

    def f(o, t):
        del o.x
        return t + 1

    o = Slotted()
    o.x = 2
    found = capture(f, (o, torch.ones(2)))
    assert ("x", True) in [(g.name, g.expected) for g in found.guards if g.kind is GuardKind.HAS_ATTRIBUTE]


def test_an_attribute_set_again_after_it_was_deleted_moves_to_the_end():
    def f(o, t):
        del o.first
        o.first = t + 1
        return t * 2

    def made():
        o = SimpleNamespace()
        o.first, o.second = 1, 2
        return o

    o = made()
    Executor().call(f, o, torch.ones(2))
    assert list(vars(o)) == ["second", "first"]


def test_what_an_instance_dict_lacks_is_guarded():
    def f(o, t):
        return t + o.__dict__.get("note", 0) + ("mark" in vars(o))

    o = SimpleNamespace()
    found = capture(f, (o, torch.ones(2)))
    absent = {g.key for g in found.guards if g.kind is GuardKind.ABSENT}
    assert absent == {"note", "mark"}


def test_layers_that_read_the_end_of_the_list_they_fill():
    layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def f(x, given):
        made = [x]
        made.extend(layer(made[-1]) for layer in layers)
        given += (made[-1] + len(given) for _ in range(2))
        named = {"a": x}
        named.update((key, x + len(named)) for key in "bc")
        return made, named

    x, mine, theirs = torch.randn(2, 3), [torch.zeros(1)], [torch.zeros(1)]
    torch.testing.assert_close(one_graph(f, x, mine), f(x, theirs))
    torch.testing.assert_close(mine, theirs)


class Pair(NamedTuple):
    """Adds as a vector, where tuples join."""

    left: torch.Tensor
    right: torch.Tensor

    def __add__(self, other):
        return Pair(self.left + other.left, self.right + other.right)


def test_named_tuples_with_operators_and_subclasses_of_list_of_their_own():
    class Tensors(list):
        def total(self):
            return sum(self)

    def f(x):
        values = Tensors([x])
        same = values
        values += [x * 2]
        return Pair(x, x + 1) + Pair(x, x), same.total(), same is values

    x = torch.randn(3)
    found = one_graph(f, x)
    torch.testing.assert_close(found, f(x))
    assert type(found[0]) is Pair and found[2]


def marked(x):
    y = x * 2
    y.marks = [1]
    z = y.sin()
    y.marks.append(2)
    return y, z


def marked_and_written(x):
    y = x * 2
    y.mark = x + 1
    return y.add_(1)


def unmarked(x):
    y = x * 2
    y.mark = 3
    return y * y.mark


@pytest.mark.parametrize("fn", [marked, marked_and_written, unmarked])
def test_attributes_of_what_the_graph_makes(fn):
    executor, x = Executor(), torch.arange(3.0)
    found, expected = executor.call(fn, x), fn(x)
    torch.testing.assert_close(found, expected)
    first, wanted = (f[0] if isinstance(f, tuple) else f for f in (found, expected))
    torch.testing.assert_close(vars(first), vars(wanted))
    assert not executor.captures[0].breaks
