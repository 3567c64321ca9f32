"""What a compiled function relied on without looking: found by changing it, each the smallest case."""

import abc
import collections
import enum
import functools
import threading
import time
import types
import unittest.mock

import pytest
import torch
from torch import nn

import intarsia

RAISE = {"on_error": "raise"}

pytestmark = pytest.mark.usefixtures("fresh")


def test_a_slot_that_was_empty_is_filled():
    class Thing:
        __slots__ = ("a",)

    thing, x = Thing(), torch.ones(3)

    def scaled(x):
        return x * getattr(thing, "a", 1)

    def maybe(x):
        return x * thing.a + 1 if hasattr(thing, "a") else x

    for function in (scaled, maybe):
        fast = intarsia.compile(function, options=RAISE)
        torch.testing.assert_close(fast(x), function(x))
        thing.a = 3
        torch.testing.assert_close(fast(x), function(x))
        del thing.a
        torch.testing.assert_close(fast(x), function(x))
    assert intarsia.stats().fallbacks == 0


def test_an_integer_that_outgrows_64_bits():
    def f(x, n):
        return x * n

    fast, x = intarsia.compile(f, options=RAISE), torch.ones(2)
    for n in (3, 4, 2**63, 5):
        torch.testing.assert_close(fast(x, n), f(x, n))
    with pytest.raises(OverflowError):
        fast(x, 2**70)


def test_looking_for_what_changed_changes_nothing():
    def total(d):
        result = 0
        for v in d.values():
            result = result + v
        return result

    x = torch.ones(3)
    fast, given = intarsia.compile(total, options=RAISE), collections.defaultdict(int, a=x)
    fast({"a": x}), fast({"b": x}), fast(given)
    assert list(given) == ["a"]

    class Noisy:
        def __init__(self):
            self.asked = []

        def __getitem__(self, i):
            self.asked.append(i)
            return x

    pair, noisy = intarsia.compile(lambda items: items[0] + items[1], options=RAISE), Noisy()
    pair([x, x]), pair(noisy)
    assert noisy.asked == [0, 1]


Point = collections.namedtuple("Point", "x y")


class Named(Point):
    pass


class Lazy:
    @functools.cached_property
    def made(self):
        return torch.randn(2)


class Caching:
    def __get__(self, instance, owner=None):
        value = instance.__dict__["value"] = torch.randn(2)
        return value


class Described:
    value = Caching()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(3, 3),
        nn.ReLU,
        lambda: nn.Sequential(nn.ReLU()),
        collections.OrderedDict,
        lambda: Named(1, 2),
        lambda: types.ModuleType("own"),
        lambda: types.SimpleNamespace(),
    ],
    ids=["layer", "relu", "sequential", "ordered dict", "named tuple", "module", "namespace"],
)
def test_an_attribute_that_was_absent_is_set(make):
    thing, x = make(), torch.ones(3)

    def f(x):
        return x * getattr(thing, "scale_of_mine", 1)

    fast = intarsia.compile(f, options=RAISE)
    torch.testing.assert_close(fast(x), x)
    thing.scale_of_mine = 4
    torch.testing.assert_close(fast(x), x * 4)
    assert intarsia.stats().fallbacks == 0


@pytest.mark.parametrize("make", [Lazy, Described])
def test_what_a_descriptor_caches_is_computed_once(make):
    def f(x, thing):
        return x * (thing.made if isinstance(thing, Lazy) else thing.value)

    fast, x, thing = intarsia.compile(f, options=RAISE), torch.ones(2), make()
    first = fast(x, thing)
    torch.testing.assert_close(fast(x, thing), first)
    torch.testing.assert_close(fast(x, thing), first)
    other = make()
    name = "made" if make is Lazy else "value"
    vars(other)[name] = torch.full((2,), 100.0)
    torch.testing.assert_close(fast(x, other), torch.full((2,), 100.0))
    assert torch.equal(vars(other)[name], torch.full((2,), 100.0))


class Settings(threading.local):
    """Defaults anew in each thread."""

    step = 2

    def __init__(self):
        self.n = 1

    def scale(self):
        return self.n * self.step


def test_what_a_thread_has_of_its_own():
    """A `threading.local` keeps attributes outside of the instance's dict, others in each thread."""
    plain, settings, x = threading.local(), Settings(), torch.ones(2)

    def f(x):
        settings.n += 1
        plain.last = settings.scale()
        return x * settings.n * getattr(plain, "factor", 1) * len(vars(settings))

    fast, seen = intarsia.compile(f, options=RAISE), []

    def run():
        seen.extend([fast(x)[0].item(), fast(x)[0].item()])
        plain.factor = 10
        seen.extend([fast(x)[0].item(), plain.last])

    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [2, 3, 40, 8] * 2
    assert intarsia.stats().fallbacks == 0


def test_a_class_gets_other_bases_or_is_registered():
    class Special: ...

    class Base: ...

    class Derived(Base): ...

    class Failed(ValueError): ...

    class Abstract(abc.ABC): ...

    def raising():
        raise Failed

    def f(x, thing):
        try:
            raising()
        except RuntimeError:
            x = x + 10
        except ValueError:
            x = x + 20
        factors = 2 if isinstance(thing, Special) else 3, 5 if issubclass(Derived, Abstract) else 7
        return x * factors[0] * factors[1] * len(type(thing).__mro__)

    fast, x, thing = intarsia.compile(f, options=RAISE), torch.ones(2), Derived()

    def check():
        before = intarsia.stats().frames_compiled
        for _ in range(2):
            assert torch.equal(fast(x, thing), f(x, thing))
        return intarsia.stats().frames_compiled - before

    assert check() == 1 and check() == 0
    Derived.__bases__ = (Special, Base)
    assert check() == 1
    Abstract.register(Derived)
    assert check() == 1
    Abstract.register(int)
    assert check() == 0
    assert intarsia.stats().fallbacks == 0


def test_a_global_that_was_missing_is_set():
    def caught(x):
        try:
            return x + LATER
        except NameError:
            return x - 1

    def asked(x):
        return x + 1 if "LATER" in globals() else x - 1

    def counted(x):
        global LATER
        LATER = globals().get("LATER", 0) + 1
        return x + LATER

    x, names = torch.ones(3), globals()
    for function in (caught, asked):
        fast = intarsia.compile(function, options=RAISE)
        for value in (None, 1, 2, None):
            names.pop("LATER", None)
            if value is not None:
                names["LATER"] = value
            torch.testing.assert_close(fast(x), function(x))
    names.pop("LATER", None)
    fast = intarsia.compile(counted, options=RAISE)
    for n in (1, 2, 3):
        torch.testing.assert_close(fast(x), x + n)
    assert names.pop("LATER") == 3
    assert intarsia.stats().fallbacks == 0


def test_a_global_that_was_missing_of_no_module():
    names = {}
    exec("def f(x):\n    try:\n        return x + later\n    except NameError:\n        return x - 1\n", names)
    function, x = names["f"], torch.ones(3)
    fast = intarsia.compile(function)
    for _ in range(3):
        torch.testing.assert_close(fast(x), function(x))
        names["later"] = names.get("later", 0) + 1


def test_a_clock_that_is_replaced(monkeypatch):
    """As tests and simulations do, also where the first call saw the replacement."""

    def stamped(x):
        return x * 2, time.time()

    for first in (False, True):
        intarsia.reset()
        fast, x = intarsia.compile(stamped, options=RAISE), torch.ones(2)
        for patched in (first, not first, first):
            with monkeypatch.context() as patch:
                if patched:
                    patch.setattr(time, "time", lambda: 5.0)
                assert (fast(x)[1] == 5.0) is patched
        assert intarsia.stats().fallbacks == 0


def test_a_global_that_comes_to_hide_a_builtin(monkeypatch):
    def found(x):
        return x + 1, globals().get("max"), "max" in globals()

    fast, x = intarsia.compile(found), torch.ones(2)
    for hidden in (False, True, False):
        with monkeypatch.context() as patch:
            if hidden:
                patch.setitem(globals(), "max", min)
            assert fast(x)[1:] == found(x)[1:] == ((min, True) if hidden else (None, False))


def test_clocks_that_count_are_read_by_the_program_alone():
    """A replacement that gives its next value at each call, and has none for whoever compiles."""

    def spent(x):
        start = time.perf_counter()
        y, stamp = x * 2, time.time()
        return y, time.perf_counter() - start, stamp

    intarsia.reset()
    fast, x = intarsia.compile(spent, options=RAISE), torch.ones(2)
    for patience in (5.0, 0.5):
        with (
            unittest.mock.patch("time.perf_counter", side_effect=[1.0, 1.0 + patience]),
            unittest.mock.patch("time.time", side_effect=[7.0]),
        ):
            assert fast(x)[1:] == (patience, 7.0)


class Graded(torch.Tensor):
    grade = 2.0

    def graded(self):
        return self.as_subclass(torch.Tensor) * self.grade


@pytest.mark.parametrize("order", [(None, 3.0, 4.0, None), (3.0, None, 4.0)])
def test_what_is_set_on_a_tensor_hides_what_its_class_has(order):
    fast = intarsia.compile(lambda x: x.graded() + 1, options=RAISE)
    for grade in order:
        x = torch.ones(2).as_subclass(Graded)
        if grade is not None:
            x.grade = grade
        torch.testing.assert_close(fast(x), torch.ones(2) * (grade or 2.0) + 1)
    x.graded = lambda: torch.zeros(2)
    torch.testing.assert_close(fast(x), torch.ones(2))


class Finding(torch.Tensor):
    def __getattr__(self, name):
        if name != "found":
            raise AttributeError(name)
        return vars(self).get("kept", 4.0)


class FindingAll(torch.Tensor):
    def __getattribute__(self, name):
        return vars(self).get("kept", 4.0) if name == "found" else super().__getattribute__(name)


@pytest.mark.parametrize("cls", [Finding, FindingAll])
def test_attributes_that_a_function_of_a_subclass_finds(cls):
    fast = intarsia.compile(lambda x: x.as_subclass(torch.Tensor) * x.found)
    for kept in (4.0, 5.0):
        x = torch.ones(2).as_subclass(cls)
        x.kept = kept
        torch.testing.assert_close(fast(x), torch.ones(2) * kept)


class Operating(torch.Tensor):
    def __add__(self, other):
        return "added"

    def __radd__(self, other):
        return "added from the right"

    def __getitem__(self, key):
        return "item"

    def __eq__(self, other):
        return "compared"

    def __neg__(self):
        return "negated"

    __hash__ = torch.Tensor.__hash__


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + 1,
        lambda x, y: y + x,
        lambda x, y: x[0],
        lambda x, y: x == y,
        lambda x, y: y == x,
        lambda x, y: -x,
    ],
)
def test_operators_that_a_subclass_defines_are_its_own(function):
    def f(x, y):
        return y * 2, function(x, y)

    x, y = torch.ones(2).as_subclass(Operating), torch.ones(2)
    assert intarsia.compile(f, options=RAISE)(x, y)[1] == f(x, y)[1]


class Calling(nn.Module):
    """Holds a layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(2, 2, 1)

    def forward(self, x):
        return self.layer(x)


HIDDEN = {
    "a layer": lambda module: vars(module).update(layer=lambda x: x * 100),
    "a parameter": lambda module: vars(module.layer).update(weight=torch.zeros(2, 2, 1)),
    "a method of torch's": lambda module: vars(module.layer).update(_conv_forward=lambda x, weight, bias: x * 100),
}


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_is_put_into_the_dict_of_a_module_is_found_first(hidden):
    module, x = Calling(), torch.ones(1, 2, 4)
    fast = intarsia.compile(module, options=RAISE)
    torch.testing.assert_close(fast(x), module(x))
    HIDDEN[hidden](module)
    torch.testing.assert_close(fast(x), module(x))
    assert intarsia.stats().frames_compiled == 2
    assert intarsia.stats().fallbacks == 0


def test_a_method_that_is_set_on_a_plain_tensor():
    def f(x):
        return x.sin() + 1

    fast, x, y = intarsia.compile(f, options=RAISE), torch.ones(2), torch.ones(2)
    torch.testing.assert_close(fast(x), f(x))
    x.sin = lambda: torch.zeros(2)
    torch.testing.assert_close(fast(x), f(x))
    torch.testing.assert_close(fast(y), f(y))
    assert intarsia.stats().frames_compiled == 2
    assert intarsia.stats().fallbacks == 0


class Strict(torch.Tensor):
    """Handles what it knows, refuses everything else, and makes the sizes anew."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function == torch.Tensor.shape.__get__:
            return torch.Size([*super().__torch_function__(function, types, args, kwargs or {})])
        if function in (torch.Tensor.mul, torch.Tensor.reshape):
            return super().__torch_function__(function, types, args, kwargs or {})
        raise TypeError(function)


@pytest.mark.parametrize("marked", [True, False])
def test_sizes_of_a_tensor_whose_class_handles_little(marked):
    def f(x):
        return x.reshape(x.shape[0] * x.shape[1]) * 2

    fast = intarsia.compile(f, options=RAISE)
    for n in (4, 7, 9):
        x = torch.randn(n, 3).as_subclass(Strict)
        if marked and n == 4:
            intarsia.mark_dynamic(x, 0)
        ours, eager = (function(x).as_subclass(torch.Tensor) for function in (fast, f))
        torch.testing.assert_close(ours, eager)
    assert intarsia.stats().frames_compiled == (1 if marked else 2)
    assert intarsia.stats().fallbacks == 0


class Anything:
    """Equal to whatever it is compared with, as `unittest.mock.ANY`."""

    def __eq__(self, other):
        return True


ANYTHING = Anything()
APPEND = [].append
GETTER = torch.Tensor.shape.__get__


@pytest.mark.parametrize(
    "same",
    [
        lambda x: torch.Tensor.shape.__get__ == GETTER,
        lambda x: torch.Tensor.shape.__get__ in (3, GETTER),
        lambda x: torch.Tensor.dtype.__get__ == GETTER,
        lambda x: APPEND.__self__.append == APPEND,
        lambda x: APPEND.__self__.pop != APPEND,
        lambda x: [].append == APPEND,
        lambda x: x.sin == x.sin,
        lambda x: x.sin == x.cos,
        lambda x: APPEND.__self__.append == Anything(),
        lambda x: len == Anything(),
        lambda x: [].append == ANYTHING,
        lambda x: len != ANYTHING,
        lambda x: len == "len",
    ],
)
def test_methods_in_c_are_equal_when_they_are_of_the_same_object(same):
    def f(x):
        return x * 2 if same(x) else x * 3

    x = torch.ones(2)
    torch.testing.assert_close(intarsia.compile(f, options=RAISE)(x), f(x))
    assert (intarsia.stats().frames_compiled, intarsia.stats().fallbacks) == (1, 0)


class Holding(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x) * 2


class Doubled(nn.Module):
    def forward(self, weight):
        return weight * 2


def doubled(*names):
    """Return a layer whose weights of these names are computed; it has a class of its own."""
    layer = nn.Linear(4, 4)
    for name in names:
        nn.utils.parametrize.register_parametrization(layer, name, Doubled())
    return layer


def test_layers_of_parametrized_weights_share_a_version():
    fast, x = intarsia.compile(Holding.forward, options=RAISE), torch.randn(2, 4)
    for compiled, names in enumerate([("weight",), ("bias",), ("weight", "bias"), (), ("weight",)], 1):
        for _ in range(10):
            module = Holding(doubled(*names))
            torch.testing.assert_close(fast(module, x), module(x))
        assert intarsia.stats().frames_compiled == min(compiled, 4)
    for make in (nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm):
        before = intarsia.stats().frames_compiled
        for _ in range(10):
            module = Holding(make(nn.Linear(4, 4))).eval()
            torch.testing.assert_close(fast(module, x), module(x))
        assert intarsia.stats().frames_compiled == before + 1
    assert intarsia.stats().fallbacks == 0


@pytest.mark.parametrize(
    "told_apart",
    [
        lambda layer, other: type(layer) is type(other),
        lambda layer, other: isinstance(layer, type(other)),
        lambda layer, other: layer.__class__ is type(other),
    ],
)
def test_the_class_of_a_layer_with_parametrized_weights_is_asked_for(told_apart):
    first, second, x = Holding(doubled("weight")), Holding(doubled("weight")), torch.ones(2)
    known = first.layer

    def f(module, x):
        return x * 2 if told_apart(module.layer, known) else x * 3

    fast = intarsia.compile(f, options=RAISE)
    for module in (first, second):
        torch.testing.assert_close(fast(module, x), f(module, x))
    assert intarsia.stats().fallbacks == 0


def test_what_a_module_alone_is_called_by_is_set():
    layer, x = nn.Linear(3, 3), torch.ones(2, 3)
    fast = intarsia.compile(lambda x: layer(x) + 1, options=RAISE)
    torch.testing.assert_close(fast(x), layer(x) + 1)
    layer._call_impl = lambda x: x * 2
    torch.testing.assert_close(fast(x), x * 2 + 1)
    del layer._call_impl
    torch.testing.assert_close(fast(x), layer(x) + 1)
    assert intarsia.stats().fallbacks == 0


def test_the_value_of_a_member_of_an_enumeration_is_set():
    class Scale(enum.Enum):
        ONE = 1.0

    x = torch.ones(2)
    fast = intarsia.compile(lambda x: (x * Scale.ONE.value, x + Scale["ONE"]._value_), options=RAISE)
    torch.testing.assert_close(fast(x), (x, x + 1))
    Scale.ONE._value_ = 5.0
    torch.testing.assert_close(fast(x), (x * 5, x + 5))
    assert intarsia.stats().fallbacks == 0


def test_what_torch_says_of_all_tensors_is_replaced():
    def f(x):
        return x * x.shape[0]

    fast, x = intarsia.compile(f), torch.ones(3)
    torch.testing.assert_close(fast(x), x * 3)
    replaced = unittest.mock.patch.object(torch.Tensor, "shape", property(lambda self: (7,)))
    with replaced, pytest.warns(match="has replaced what `torch.Tensor` says"):
        found = fast(x)
    torch.testing.assert_close(found, x * 7)
    torch.testing.assert_close(fast(x), x * 3)


def test_an_operation_that_raised_at_first():
    x = torch.randn(3, 4)
    for function in (torch.cov, lambda x: torch.corrcoef(x)):
        fast = intarsia.compile(function, options=RAISE)
        with pytest.raises(RuntimeError, match="two or fewer dimensions"):
            fast(torch.ones(2, 2, 2))
        torch.testing.assert_close(fast(x), function(x))
    assert intarsia.stats().fallbacks == 0
