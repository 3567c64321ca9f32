"""`__torch_function__`: handlers of subclasses and of modes are evaluated, in one graph, as eager asks them."""

from __future__ import annotations

import re

import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import intarsia
from integration.extend import functions
from integration.extend.functions import (
    SEEN,
    Logged,
    Named,
    Note,
    Outer,
    Quantity,
    Scale,
    Swap,
    Swapped,
    in_place,
    leaves,
    left_to_eager,
    many,
)

pytestmark = pytest.mark.usefixtures("fresh")
RAISE = {"on_error": "raise"}


def matrix(cls=torch.Tensor, n=3):
    return torch.linspace(-1, 1, n * n).reshape(n, n).as_subclass(cls)


def plain(x):
    return x.as_subclass(torch.Tensor) if isinstance(x, torch.Tensor) else x


def shown(results):
    results = results if isinstance(results, tuple) else (results,)
    return [(type(x), getattr(x, "unit", None)) for x in results], [plain(x) for x in results]


def run(function, *inputs):
    SEEN.clear()
    found = shown(function(*inputs))
    return *found, list(SEEN)


def check(function, make, n_graphs=1, **options):
    """Compare results, their classes and what the handlers saw with eager's, in two calls."""
    kinds, want, seen = run(function, *make())
    fast = intarsia.compile(function, fullgraph=n_graphs == 1, options=RAISE, **options)
    for _ in range(2):
        found_kinds, found, found_seen = run(fast, *make())
        assert (found_kinds, found_seen) == (kinds, seen)
        torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5)
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks) == (n_graphs, 0, 0)
    return fast


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("cls", [Named, Logged, Swapped, Outer])
def test_a_subclass(cls, dynamic):
    check(many, lambda: [matrix(cls)], dynamic=dynamic)


@pytest.mark.parametrize("cls", [Named, Logged, Swapped])
def test_writes(cls):
    check(in_place, lambda: [matrix(cls)])


@pytest.mark.parametrize("cls", [Named, Swapped])
def test_gradients(cls):
    found = []
    for wrapped in (False, True):
        function = lambda x, w: F.linear(x.sin() * 2, w).square()
        fast = intarsia.compile(function, fullgraph=True, options=RAISE) if wrapped else function
        leaf, weight = matrix(cls).requires_grad_(), torch.ones(2, 3, requires_grad=True)
        result = fast(leaf, weight)
        assert type(result) is cls
        result.sum().backward()
        found.append([plain(result.detach()), plain(leaf.grad), plain(weight.grad)])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def test_gradients_of_what_was_computed():
    found = []
    for fast in (lambda x: x.sin() * x, intarsia.compile(lambda x: x.sin() * x, fullgraph=True, options=RAISE)):
        leaf = torch.linspace(-1, 1, 5, requires_grad=True)
        fast((leaf * 2).as_subclass(Swapped)).sum().backward()
        found.append(leaf.grad)
    torch.testing.assert_close(*found)


def test_what_is_written_into_an_argument_is_seen():
    x = matrix(Named)
    version = x._version
    assert intarsia.compile(lambda x: x.mul_(2), fullgraph=True, options=RAISE)(x) is x
    torch.testing.assert_close(plain(x), matrix() * 2)
    assert type(x) is Named and x._version > version


@pytest.mark.parametrize("cls", [Named, Logged, Swapped])
def test_one_is_made_inside(cls):
    check(lambda x: (x * 2).as_subclass(cls).sin() + x, lambda: [matrix()])
    intarsia.reset()
    check(lambda x: cls(x + 1).sin(), lambda: [matrix()])
    intarsia.reset()
    check(lambda x: torch.Tensor._make_subclass(cls, x).sin() * 2, lambda: [matrix()])


def test_one_is_unwrapped():
    check(lambda x: x.as_subclass(torch.Tensor).sin(), lambda: [matrix(Swapped)])


def test_units():
    def area(a, b):
        return a.in_units("m") * b, (a + a).in_units("m"), torch.sin(a)

    check(area, lambda: [Quantity(matrix(), "km"), Quantity(matrix() + 1, "m")])


def test_another_unit_is_another_capture():
    double = lambda a: a + a
    fast = check(double, lambda: [Quantity(matrix(), "km")])
    for unit in ("km", "m", "s", "m"):
        assert fast(Quantity(matrix(), unit)).unit == unit
    with pytest.raises(ValueError, match="m \\+ s"):
        intarsia.compile(lambda a, b: a + b, fullgraph=True, options=RAISE)(
            Quantity(matrix(), "m"), Quantity(matrix(), "s")
        )


def test_another_implementation_is_another_capture(monkeypatch):
    fast = check(lambda a, b: a * b, lambda: [Quantity(matrix(), "m"), matrix()])
    monkeypatch.setitem(functions.HANDLED, torch.Tensor.mul, lambda a, b: b)
    torch.testing.assert_close(fast(Quantity(matrix(), "m"), matrix() + 7), matrix() + 7)


def test_a_plain_tensor_after_one_of_a_subclass():
    function = lambda x: torch.sin(x)
    fast = intarsia.compile(function, fullgraph=True, options=RAISE)
    for cls in (torch.Tensor, Swapped, torch.Tensor, Named, Swapped):
        found, want = fast(matrix(cls)), function(matrix(cls))
        assert type(found) is type(want)
        torch.testing.assert_close(plain(found), plain(want))
    assert intarsia.stats().graphs == 3


def test_a_parameter_of_a_module_is_one():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(matrix(Swapped))

        def forward(self, x):
            return torch.sin(self.weight) @ x

    layer = Layer()
    assert type(layer.weight) is Swapped
    fast = intarsia.compile(layer, fullgraph=True, options=RAISE)
    for run_ in (layer, fast):
        layer.zero_grad()
        result = run_(matrix())
        result.sum().backward()
        if run_ is layer:
            want = plain(result.detach()), plain(layer.weight.grad).clone()
    torch.testing.assert_close((plain(result.detach()), plain(layer.weight.grad)), want)


def test_handlers_run_on_both_sides_of_a_break():
    check(leaves, lambda: [matrix(Swapped)], n_graphs=2)


@pytest.mark.parametrize("cls", [Named, Swapped])
def test_rows_are_of_the_class(cls):
    check(lambda x: (next(row.sin() for row in x), sum(row.sum() for row in x)), lambda: [matrix(cls)])


# ---- modes


def with_mode(mode):
    def function(x):
        with mode():
            y = torch.sin(x * 2)
        return y + torch.sin(x)

    return function


@pytest.mark.parametrize("mode", [Swap, Note])
@pytest.mark.parametrize("cls", [torch.Tensor, Named, Logged])
def test_a_mode_inside(mode, cls):
    check(with_mode(mode), lambda: [matrix(cls)])


def test_functions_of_all_kinds_in_a_mode():
    def function(x):
        with Note():
            return many(x)

    check(function, lambda: [matrix()])


def test_modes_in_modes():
    def function(x, w):
        with Scale(2.0), Note(), Swap(), Scale(3.0):
            return F.linear(torch.sin(x), w) + torch.sin(torch.zeros(3))

    check(function, lambda: [matrix(), matrix()])


def test_what_a_mode_counts_is_kept():
    mode = Note()

    def function(x):
        with mode:
            return torch.sin(x * 2) + 1

    fast = intarsia.compile(function, fullgraph=True, options=RAISE)
    for n in (3, 6, 9):
        torch.testing.assert_close(fast(matrix()), torch.sin(matrix() * 2) + 1)
        assert mode.n_calls == n


@pytest.mark.parametrize("mode", [Swap, Note])
def test_a_mode_around(mode):
    function = lambda x: torch.sin(x * 2) + F.relu(x)

    def around(run_):
        def call(x):
            with mode():
                return run_(x)

        return call

    want = run(around(function), matrix())
    fast = intarsia.compile(function, fullgraph=True, options=RAISE)
    for _ in range(2):
        got = run(around(fast), matrix())
        assert (got[0], got[2]) == (want[0], want[2])
        torch.testing.assert_close(got[1], want[1])
    torch.testing.assert_close(fast(matrix()), function(matrix()))
    assert (intarsia.stats().graphs, intarsia.stats().frames_eager) == (2, 0)


def test_what_a_mode_around_holds_is_relied_on():
    layer = lambda x: F.linear(x, x)
    fast = intarsia.compile(layer, fullgraph=True, options=RAISE)
    for by in (2.0, 3.0, 2.0):
        with Scale(by):
            torch.testing.assert_close(fast(matrix()), layer(matrix()))


def test_gradients_under_modes():
    function = lambda x, w: torch.sin(F.linear(x, w) @ x).sum()
    fast = intarsia.compile(function, fullgraph=True, options=RAISE)
    found = []
    for run_ in (function, fast):
        x, w = matrix().requires_grad_(), matrix().requires_grad_()
        with Scale(2.0), Swap():
            run_(x, w).backward()
        found.append((x.grad, w.grad))
    torch.testing.assert_close(*found)
    assert intarsia.stats().graphs == 1


def test_modes_see_nothing_of_the_compiled_graph():
    function = lambda x: torch.linalg.solve(x @ x + 5 * torch.eye(3), x)
    fast = intarsia.compile(function, fullgraph=True, options=RAISE)
    found = []
    for run_ in (function, fast, fast):
        x = matrix().requires_grad_()
        SEEN.clear()
        with Note():
            run_(x).sum().backward()
        found.append((x.grad, list(SEEN)))
    torch.testing.assert_close(found[1][0], found[0][0])
    assert found[0][1] == found[1][1] == found[2][1]


def test_a_break_in_a_mode():
    def function(x):
        with Swap():
            y = torch.sin(x)
            left_to_eager(y)
            z = torch.sin(y)
        return torch.sin(z)

    x = matrix()
    want = torch.sin(torch.cos(torch.cos(x)))
    fast = intarsia.compile(function, options=RAISE)
    for _ in range(2):
        torch.testing.assert_close(fast(x), want)
    assert torch._C._len_torch_function_stack() == 0
    assert intarsia.stats().graphs == 2


def test_an_exception_leaves_the_mode():
    def function(x):
        try:
            with Swap():
                torch.sin(x)
                raise KeyError("x")
        except KeyError:
            return torch.sin(x)

    check(function, lambda: [matrix()])
    assert torch._C._len_torch_function_stack() == 0


def test_a_default_device_around():
    function = lambda x: torch.ones(3) + x
    fast = intarsia.compile(function, fullgraph=True, backend="eager", options=RAISE)
    for device in ("cpu", "meta", "cpu"):
        with torch.device(device):
            assert fast(torch.zeros(3)).device.type == device
    torch.testing.assert_close(fast(torch.zeros(3)), torch.ones(3))


# ---- objects that are no tensors


class Diagonal:
    """A matrix that is known by its diagonal."""

    def __init__(self, entries):
        self.entries = entries

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.matmul:
            a, b = args
            return b * a.entries[:, None] if isinstance(a, Diagonal) else a * b.entries
        return NotImplemented


def test_an_object_with_a_handler():
    function = lambda x: torch.matmul(Diagonal(x[0]), x) + torch.matmul(x, Diagonal(x[1]))
    check(function, lambda: [matrix()])


@pytest.mark.parametrize("off", [torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction])
def test_handlers_that_are_turned_off_around(off):
    function = lambda x: torch.sin(x * 2)
    fast = intarsia.compile(function, fullgraph=True, options=RAISE)

    def called(run_, inside):
        SEEN.clear()
        with Note(), off() if inside else torch.no_grad():
            return *shown(run_(matrix(Swapped))), list(SEEN)

    for inside in (False, True, False, True):
        want, got = called(function, inside), called(fast, inside)
        assert (got[0], got[2]) == (want[0], want[2])
        torch.testing.assert_close(got[1], want[1])
    assert intarsia.stats().graphs == 2


def test_a_handler_calls_what_was_compiled():
    fast = intarsia.compile(lambda x: torch.sin(x) * 2, fullgraph=True, options=RAISE)

    class Calling(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                return fast(*args) if func is torch.cos else func(*args, **(kwargs or {}))

    for _ in range(2):
        torch.testing.assert_close(torch.cos(matrix(Calling)), torch.sin(matrix()) * 2)


@pytest.mark.parametrize("how", ["subclass", "mode"])
def test_what_no_handler_takes_is_eagers_error(how):
    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    class RefusingMode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    def function(x):
        with RefusingMode() if how == "mode" else torch.no_grad():
            return torch.sin(x)

    x = matrix(Refusing if how == "subclass" else torch.Tensor)
    with pytest.raises(TypeError) as eager:
        function(x)
    with pytest.raises(TypeError) as compiled:
        intarsia.compile(function)(x)
    without_addresses = lambda error: re.sub("0x[0-9a-f]+", "", str(error.value))
    assert without_addresses(compiled) == without_addresses(eager)


def test_a_mode_of_torch_is_evaluated():
    """Models enter it where they make masks: it turns an index that is a tensor of one number into an operation."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    def masks(mask):
        def one(row, column):
            return mask[row, column] & (column > 1)

        with TransformGetItemToIndex():
            rows = torch.vmap(torch.vmap(one, in_dims=(None, 0)), in_dims=(0, None))
            return rows(torch.arange(mask.shape[0]), torch.arange(mask.shape[1]))

    def items(x):
        with TransformGetItemToIndex():
            return x[1] * 2 + x[torch.tensor(0)]

    for function, x in ((masks, torch.rand(3, 5) > 0.5), (items, matrix()), (items, matrix().requires_grad_())):
        fast = intarsia.compile(function, fullgraph=True, options=RAISE)
        got, want = fast(x), function(x)
        torch.testing.assert_close(got, want)
        if x.requires_grad:
            assert torch.equal(*[torch.autograd.grad(y.sum(), x)[0] for y in (got, want)])
    assert intarsia.stats().fallbacks == 0
