"""Guards look into values without running code of the user, natively and in Python alike, and change nothing."""

import collections
import enum
import functools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from intarsia_guards import build_guards, lookup
from intarsia_ir import (
    ArgumentSource,
    AttributeSource,
    DictItemSource,
    GuardKind,
    ItemSource,
    PlainAttributeSource,
    ReferentSource,
    Source,
)
from intarsia_ir.guards import GUARDS

SEVERAL = (GuardKind.HAS_ATTRIBUTE, GuardKind.ALIASING, GuardKind.COMPARISON, GuardKind.SUBCLASS)
X = ArgumentSource("x")
ran: list[str] = []


def f(x: Any) -> None: ...


def holds(kind: GuardKind, value: Any, x: Any, source: Source = X) -> bool:
    """Check one guard natively, in Python and by its meaning; no code of the user ran."""
    ran.clear()
    record = GUARDS[kind](source, *value if kind in SEVERAL else [value])
    answers = set()
    for native in (True, False):
        guards = build_guards([record], native=native)
        answers |= {guards.frame_check(f.__code__).check(x) for _ in range(2)}
        answers.add(guards.frame_failure({"x": x}, {}) is None)
    assert ran == [] and len(answers) == 1, (ran, answers)
    return answers.pop()


def note(name: str, value: Any = 1) -> Callable[..., Any]:
    """Return a method that tells that it ran."""

    def method(self: Any, *args: Any) -> Any:
        ran.append(name)
        return value

    return method


class Descriptor:
    __get__ = note("__get__")
    __set__ = note("__set__")


class Lazy:
    __get__ = note("__get__")


class Plain:
    scale = 1

    def __init__(self, **own: Any) -> None:
        object.__getattribute__(self, "__dict__").update(own)


ATTRIBUTES = {
    "property": {"v": property(note("property"))},
    "data descriptor": {"v": Descriptor()},
    "__getattribute__": {"__getattribute__": note("__getattribute__")},
}


@pytest.mark.parametrize("members", ATTRIBUTES.values(), ids=list(ATTRIBUTES))
def test_what_the_class_computes_is_refused(members: dict[str, Any]) -> None:
    x = type("Computing", (Plain,), members)(v=1)
    assert not holds(GuardKind.CONSTANT, 1, x, AttributeSource(X, "v"))
    for present in (True, False):
        assert not holds(GuardKind.HAS_ATTRIBUTE, ("v", present), x)


def test_a_hook_for_missing_attributes_is_not_asked() -> None:
    hooked = type("Hooked", (Plain,), {"__getattr__": note("__getattr__")})
    assert holds(GuardKind.CONSTANT, 1, hooked(v=1), AttributeSource(X, "v"))
    assert holds(GuardKind.CONSTANT, 1, hooked(), AttributeSource(X, "scale"))
    assert not holds(GuardKind.CONSTANT, 1, hooked(), AttributeSource(X, "v"))
    assert holds(GuardKind.HAS_ATTRIBUTE, ("v", True), hooked(v=1))
    assert not any(holds(GuardKind.HAS_ATTRIBUTE, ("v", present), hooked()) for present in (True, False))


def test_a_descriptor_that_does_not_set_comes_after_the_instance() -> None:
    lazy = type("Lazily", (Plain,), {"v": Lazy(), "c": functools.cached_property(note("cached_property"))})
    for name in "vc":
        assert holds(GuardKind.CONSTANT, 1, lazy(**{name: 1}), AttributeSource(X, name))
        assert not holds(GuardKind.CONSTANT, 1, lazy(), AttributeSource(X, name))


@pytest.mark.parametrize("members", ATTRIBUTES.values(), ids=list(ATTRIBUTES))
def test_the_dictionary_of_an_instance_is_found_past_its_class(members: dict[str, Any]) -> None:
    source = ItemSource(PlainAttributeSource(X, "__dict__"), "v")
    x = type("Computing", (Plain,), members)(v=1)
    assert holds(GuardKind.CONSTANT, 1, x, source) and not holds(GuardKind.CONSTANT, 2, x, source)


def test_slots_are_found_past_their_class() -> None:
    class Slotted:
        __slots__ = ("v",)
        __getattribute__ = note("__getattribute__")

    x = Slotted()
    assert not holds(GuardKind.CONSTANT, 1, x, PlainAttributeSource(X, "v"))
    x.v = 1
    assert holds(GuardKind.CONSTANT, 1, x, PlainAttributeSource(X, "v"))
    assert not holds(GuardKind.CONSTANT, 1, x, AttributeSource(X, "v"))


class Missing(dict[str, Any]):
    __missing__ = note("__missing__")


class Making(dict[str, Any]):
    __getitem__ = note("__getitem__")
    __contains__ = note("__contains__", False)
    __len__ = note("__len__")
    __iter__ = note("__iter__", iter(()))


@pytest.mark.parametrize("key", ["v", 7, (1, 2)])
@pytest.mark.parametrize("make", [Missing, lambda: collections.defaultdict(note("factory").__get__(0))])
@pytest.mark.parametrize("wrap", [lambda d: d, types.MappingProxyType], ids=["itself", "proxy"])
def test_nothing_is_made_for_a_missing_key(make: Callable[[], Any], key: Any, wrap: Callable[[Any], Any]) -> None:
    d = make()
    for source in (ItemSource(X, key), DictItemSource(X, key))[: 1 if wrap is types.MappingProxyType else 2]:
        assert not holds(GuardKind.CONSTANT, 1, wrap(d), source) and not d
        assert not holds(GuardKind.LENGTH, 1, wrap(d), source) and not d
    assert holds(GuardKind.ABSENT, key, wrap(d))
    d[key] = 1
    assert holds(GuardKind.CONSTANT, 1, wrap(d), ItemSource(X, key)) and not holds(GuardKind.ABSENT, key, wrap(d))


def test_containers_of_the_user_are_not_asked() -> None:
    d = Making(v=1)
    assert not holds(GuardKind.CONSTANT, 1, d, ItemSource(X, "v")) and not holds(GuardKind.LENGTH, 1, d)
    assert holds(GuardKind.CONSTANT, 1, d, DictItemSource(X, "v"))
    assert holds(GuardKind.DICT_KEYS, ("v",), d) and not holds(GuardKind.DICT_KEYS, ("w",), d)
    assert not holds(GuardKind.ABSENT, "v", d) and holds(GuardKind.ABSENT, "w", d)
    many = type("Many", (), {"__len__": note("__len__"), "__iter__": note("__iter__"), "__getitem__": note("item")})()
    assert not holds(GuardKind.LENGTH, 1, many) and not holds(GuardKind.CONSTANT, 1, many, ItemSource(X, 0))
    assert not holds(GuardKind.DICT_KEYS, (1,), many)


class Liar:
    """Says, by code, of what class it is, and hashes, compares, calls and shows itself by code."""

    __class__ = property(note("__class__", torch.Tensor))  # type: ignore[assignment]
    __hash__ = note("__hash__", 5)  # type: ignore[assignment]
    __eq__ = note("__eq__", True)
    __call__ = note("__call__")
    __repr__ = note("__repr__", "liar")
    __code__ = property(note("__code__"))
    dtype = property(note("dtype"))


KINDS: list[tuple[GuardKind, Any, Source]] = [
    (GuardKind.ABSENT, "v", X),
    (GuardKind.CONSTANT, 5, X),
    (GuardKind.CONSTANT, frozenset({5}), X),
    (GuardKind.CODE, f.__code__, X),
    (GuardKind.COMPARISON, ("<", 3, True), X),
    (GuardKind.IDENTITY, f, X),
    (GuardKind.TYPE, int, X),
    (GuardKind.CONSTANT, 5, ReferentSource(X)),
]


@pytest.mark.parametrize(("kind", "value", "source"), KINDS)
def test_no_kind_asks_an_object(kind: GuardKind, value: Any, source: Source) -> None:
    assert holds(kind, value, Liar(), source) is (kind is GuardKind.ABSENT)
    assert not holds(kind, value, [Liar()], source) or kind is GuardKind.ABSENT


def test_a_set_with_elements_of_another_class_is_another() -> None:
    elements = frozenset({Liar()})
    assert not holds(GuardKind.CONSTANT, frozenset({5}), elements)


class Colour(enum.Enum):
    RED = 1


class Kind(type):
    v = property(note("metaclass"))


def test_attributes_of_classes() -> None:
    assert holds(GuardKind.IDENTITY, Colour.RED, Colour, AttributeSource(X, "RED"))
    assert holds(GuardKind.CONSTANT, 1, Plain, AttributeSource(X, "scale"))
    assert not holds(GuardKind.CONSTANT, 1, type("Owner", (), {"v": Lazy()}), AttributeSource(X, "v"))
    assert not holds(GuardKind.CONSTANT, 1, Kind("Owner", (), {}), AttributeSource(X, "v"))
    hooked = type("Hook", (type,), {"__getattr__": note("__getattr__")})("Owner", (), {})
    assert not any(holds(GuardKind.HAS_ATTRIBUTE, ("v", present), hooked) for present in (True, False))


def test_modules_that_compute_attributes() -> None:
    module = types.ModuleType("user")
    module.v = 1  # type: ignore[attr-defined]
    assert holds(GuardKind.CONSTANT, 1, module, AttributeSource(X, "v"))
    assert holds(GuardKind.HAS_ATTRIBUTE, ("w", False), module)
    module.__getattr__ = lambda name: ran.append(name)  # type: ignore[attr-defined]
    assert holds(GuardKind.CONSTANT, 1, module, AttributeSource(X, "v"))
    assert not any(holds(GuardKind.HAS_ATTRIBUTE, ("w", present), module) for present in (True, False))


def test_a_setting_that_a_module_of_torch_computes() -> None:
    source = AttributeSource(X, "enabled")
    assert holds(GuardKind.CONSTANT, torch.backends.mkldnn.enabled, torch.backends.mkldnn, source)
    assert not holds(GuardKind.CONSTANT, not torch.backends.mkldnn.enabled, torch.backends.mkldnn, source)


def test_what_is_registered_in_a_module_of_torch() -> None:
    layer = torch.nn.Linear(2, 2)
    source = AttributeSource(X, "weight")
    assert holds(GuardKind.IDENTITY, layer.weight, layer, source) and not holds(GuardKind.IDENTITY, f, layer, source)


def cases() -> Iterator[tuple[Any, str]]:
    yield f, "__code__"
    yield Plain(v=1).__init__, "__func__"
    yield Plain, "__mro__"
    yield Plain, "__dict__"
    yield Plain(), "__dict__"
    yield functools.partial(f, 1), "args"
    yield collections.defaultdict(list), "default_factory"
    yield torch.ones(2, requires_grad=True), "grad"
    yield torch.ones(2), "is_leaf"
    yield collections.namedtuple("P", "v")(1), "v"
    yield torch, "float32"
    yield slice(1, 2), "start"


@pytest.mark.parametrize(("x", "name"), cases(), ids=str)
def test_what_python_and_torch_compute_is_found(x: Any, name: str) -> None:
    found, expected = lookup.attribute(x, name), getattr(x, name)
    assert found is expected or found == expected
    assert holds(GuardKind.TYPE, type(expected), x, AttributeSource(X, name))
    assert holds(GuardKind.HAS_ATTRIBUTE, (name, True), x)


def test_proxies_and_references() -> None:
    x = Plain(v=1)
    assert not holds(GuardKind.CONSTANT, 1, weakref.proxy(x), AttributeSource(X, "v"))
    assert holds(GuardKind.IDENTITY, x, weakref.ref(x), ReferentSource(X))
