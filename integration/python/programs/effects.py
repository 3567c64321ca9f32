"""Side effects: what a program leaves behind, in order, and what it reads of its own writes."""

from __future__ import annotations

import torch
from torch import nn, randn

from integration.python.program import made, program

TOTAL: torch.Tensor | float = 0.0
STEPS: list[str] = []
SETTINGS: dict[str, float] = {}
COUNT = 0


class Tracker:
    """Keeps the last value and a history."""

    def __init__(self):
        self.last = None
        self.history = []

    def update(self, x):
        self.last = x
        self.history.append(x)
        return self


@program("attributes", lambda: (randn(3), Tracker()))
def chained_updates(x, tracker):
    tracker.update(x * 2).update(tracker.last + 1)
    return tracker.last - tracker.history[0]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(3, 3)
        self.state = torch.zeros(2, 3)
        self.outputs = []

    def forward(self, x):
        self.state = torch.tanh(self.cell(x) + self.state)
        self.outputs = [*self.outputs[-1:], self.state]
        return self.state * 2


@made("attributes", lambda: (randn(2, 3),), calls=5, recompiles=1)
def module_keeps_a_state():
    return Recurrent().eval()


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros((), dtype=torch.long))
        self.calls = 0

    def forward(self, x):
        self.n += 1
        self.calls += 1
        return x * self.n


@made("attributes", lambda: (randn(3),), calls=5, recompiles=1)
def module_counts_its_calls():
    return Steps().eval()


@program("attributes", lambda: (randn(3), Tracker(), Tracker()))
def two_objects_and_a_deletion(x, a, b):
    a.last, b.last = x + 1, a.last
    a.peer, b.peer = b, a
    del a.history
    return a.last * 2, b.peer.peer is b


@program("globals", lambda: (randn(3),), globals={"TOTAL": 0.0}, calls=4, recompiles=1)
def running_total(x):
    global TOTAL
    TOTAL = TOTAL + x.sum()
    return x / 2, TOTAL


@program("globals", lambda: (randn(3),), globals={"STEPS": [], "SETTINGS": {"scale": 2.0}}, calls=4, recompiles=1)
def change_global_containers(x):
    STEPS.clear()
    STEPS.append("start")
    SETTINGS["last"] = x * SETTINGS["scale"]
    STEPS.append("end")
    return SETTINGS["last"] + len(STEPS)


@program("globals", lambda: (randn(3),), globals={"COUNT": 0}, calls=5, recompiles=1)
def count_calls_in_a_global(x):
    global COUNT
    COUNT += 1
    return x * COUNT


@made("cells", lambda: (randn(3),))
def history_in_a_cell():
    last = torch.zeros(3)

    def f(x):
        nonlocal last
        change, last = x - last, x
        return change.abs().sum()

    return f


@made("cells", lambda: (randn(3),), calls=4, recompiles=1)
def counter_in_a_cell():
    n = 0

    def bump():
        nonlocal n
        n += 1
        return n

    def f(x):
        return x * bump() + bump()

    return f


@program("containers", lambda: (randn(3), [], {}))
def fill_containers(x, items, table):
    items.append(x + 1)
    items.extend([x, items[0]])
    table["sum"] = sum(items)
    table.update(first=items[0], n=len(items))
    return table["sum"] * 2


@program("containers", lambda: ([randn(2), randn(2), randn(2)],))
def change_a_list_argument(items):
    first = items.pop(0)
    items.insert(1, first * 2)
    items[0] += 1
    items.append(items)
    return first


def _aliased():
    shared = [randn(2)]
    return ({"a": shared, "b": shared},)


@program("containers", _aliased)
def one_list_under_two_names(state):
    state["a"].append(state["a"][0] * 2)
    state["c"] = state.pop("b")
    return len(state["c"]), state["c"] is state["a"], state["c"][1] + 1


@program("containers", lambda: ({"x": randn(2), "y": randn(2)}, {"seen"}))
def dict_and_set_arguments(table, names):
    names |= set(table)
    names.discard("seen")
    for name in list(table):
        table[name.upper()] = table.pop(name) * 2
    return len(names), "X" in table


@program("new objects escaping", lambda: (randn(3), []))
def linked_nodes(x, out):
    a, b = Tracker(), Tracker()
    a.next, b.next = b, a
    a.update(x * 2)
    out.append(a)
    return b


@program("new objects escaping", lambda: (randn(3),))
def one_list_twice(x):
    row = [x + 1]
    table = [row, row]
    row.append(x * 2)
    return table, {"row": row}


class Cache:
    """Grows by layers, as models' caches do."""

    def __init__(self):
        self.layers: list[list[torch.Tensor]] = []

    def update(self, layer, new):
        if layer == len(self.layers):
            self.layers.append([new])
        else:
            self.layers[layer] = [torch.cat([*self.layers[layer], new])]
        return self.layers[layer][0]


@program("new objects escaping", lambda: (randn(2, 3), None))
def cache_made_on_demand(x, cache):
    cache = cache if cache is not None else Cache()
    for layer in range(2):
        x = cache.update(layer, x * (layer + 1))
        x = cache.update(layer, x + 1).sum(0, keepdim=True)
    return x, cache


@program("print", lambda: (randn(3),), graphs=2, breaks=("tracer.output",))
def print_between(x):
    y = x + 1
    print("shape", tuple(y.shape), sep=": ", end="!\n")
    return y * 2


@program("print", lambda: (randn(3),), graphs=1, breaks=("tracer.output",))
def print_at_the_end(x):
    y = x.sum() * 0 + 3
    print(f"done {x.dim()}")
    return y


@program("print", lambda: (randn(3), True), graphs=1)
def print_that_is_not_reached(x, quiet):
    if not quiet:
        print(x)
    return x + 1


@program("pending writes are read", lambda: (randn(3), Tracker()))
def read_back_an_attribute(x, tracker):
    tracker.last = x
    tracker.last = tracker.last * 2
    tracker.history += [tracker.last]
    return tracker.last + tracker.history[-1], vars(tracker)["last"] is tracker.last


@program("pending writes are read", lambda: (randn(3), {"a": 1}))
def read_back_a_dict(x, table):
    table["b"] = x
    del table["a"]
    names = list(table)
    table["c"] = len(table)
    return table["b"] * 2, names, "a" in table, [*table.values()][1]


@program("pending writes are read", lambda: (randn(4),))
def read_through_an_alias(x):
    view = x[:2]
    x.add_(1)
    view.mul_(2)
    return x * 1, view + 0, x.sum()


@program("program order", lambda: (randn(3), [], Tracker()), graphs=2, breaks=("tracer.output",))
def writes_before_and_after_a_print(x, items, tracker):
    items.append("before")
    tracker.last = x * 2
    print(items, tracker.history)
    items.append("after")
    tracker.history.append(len(items))
    return tracker.last + 1


@program("program order", lambda: (randn(3), []))
def effects_of_nested_calls(x, log):
    def visit(name, *parts):
        log.append(f"+{name}")
        total = sum(part() if callable(part) else part for part in parts)
        log.append(f"-{name}")
        return total

    return visit("root", lambda: visit("left", x), lambda: visit("right", x * 2, 1))


@program("program order", lambda: (torch.zeros(3),))
def random_numbers_in_order(x):
    first = torch.rand(3)
    x.bernoulli_(0.5)
    return first, x * 2, torch.randn(2), torch.nn.functional.dropout(first, 0.5)


class Refused(ValueError):
    """An input that a program doesn't take."""


@program("exception leaves the frame", lambda: (randn(3), []))
def raise_after_a_write(x, log):
    log.append(x * 2)
    raise Refused(f"{len(log)} entries")


@program("exception leaves the frame", lambda: (randn(3), {}), graphs=0)
def missing_key_leaves(x, table):
    return x * table["missing"]


@program("exception leaves the frame", lambda: (randn(3), []))
def finally_before_it_leaves(x, log):
    try:
        y = x + 1
        log.append(y)
        raise Refused("late")
    finally:
        log.append("finally")
