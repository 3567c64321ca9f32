"""What holds for all kinds: user errors fail a guard, nothing is kept alive, sources are fetched once and in order."""

import functools
import gc
import weakref
from types import SimpleNamespace as Namespace
from typing import Any

import pytest
import torch
from torch import nn

from intarsia_guards import build_guards
from intarsia_guards.held import DEAD, hold
from intarsia_ir import (
    ArgumentSource,
    AttributeSource,
    GlobalSource,
    GuardRecord,
    ItemSource,
    Source,
    TensorFacts,
)
from intarsia_ir.guards import (
    AbsentGuard,
    CodeGuard,
    ConstantGuard,
    DictKeysGuard,
    GradModeGuard,
    HasAttributeGuard,
    IdentityGuard,
    LengthGuard,
    NotIdentityGuard,
    OverlapGuard,
    TensorGuard,
    TypeGuard,
)

X = ArgumentSource("x")


def f(x: Any) -> None: ...


class Hostile:
    """Everything that guards may touch raises."""

    @property
    def broken(self) -> int:
        raise RuntimeError("user code failed")

    def __len__(self) -> int:
        raise RuntimeError("user code failed")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("user code failed")

    def __repr__(self) -> str:
        raise RuntimeError("user code failed")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "record",
    [
        ConstantGuard(AttributeSource(X, "broken"), 1),
        ConstantGuard(AttributeSource(X, "missing"), 1),
        LengthGuard(X, 1),
        ConstantGuard(ItemSource(X, 0), 1),
        HasAttributeGuard(X, "broken", True),
        DictKeysGuard(X, ("a",)),
        IdentityGuard(X, "something else"),
        CodeGuard(X, f.__code__),
        OverlapGuard(X, (X,)),
    ],
)
def test_errors_of_user_code_are_failed_guards(record: GuardRecord) -> None:
    guards = build_guards([record], function=f)
    assert guards.check((Hostile(),)) is False
    assert guards.explain_failure((Hostile(),))


def test_interrupts_are_not_failed_guards() -> None:
    class Interrupting:
        """A key that is compared with the one that is looked up."""

        def __hash__(self) -> int:
            return hash("value")

        def __eq__(self, other: object) -> bool:
            raise KeyboardInterrupt

    guards = build_guards([ConstantGuard(ItemSource(X, "value"), 1)], function=f)
    with pytest.raises(KeyboardInterrupt):
        guards.check(({Interrupting(): 1},))


# ---- weak references -------------------------------------------------------------------------------------------


class Thing: ...


@pytest.mark.parametrize("kind", [IdentityGuard, NotIdentityGuard, ConstantGuard, AbsentGuard])
def test_objects_are_held_weakly(kind: Any) -> None:
    thing = Thing()
    alive = weakref.ref(thing)
    guards = build_guards([kind(X, thing)], function=f)
    guards.check((thing,))
    del thing
    gc.collect()
    assert alive() is None
    expected = kind is NotIdentityGuard
    for value in (None, Thing(), 0):
        assert guards.check((value,)) is expected, (kind, value)
    assert (guards.explain_failure((None,)) is None) is expected


def test_types_functions_and_keys_are_held_weakly() -> None:
    def make() -> tuple[list[weakref.ref[Any]], Any]:
        class Local: ...

        space: dict[str, Any] = {}
        exec("def function(x): ...", space)
        function, key = space["function"], nn.Parameter(torch.ones(1))
        records = [
            TypeGuard(X, Local),
            CodeGuard(X, function.__code__),
            DictKeysGuard(X, (key,)),
        ]
        guards = build_guards(records, function=function)
        return [weakref.ref(o) for o in (Local, function, function.__code__, key)], guards

    references, guards = make()
    gc.collect()
    assert [r() for r in references] == [None] * 4
    assert guards.check((1,)) is False  # the function is gone: nothing can be a call of it


def test_bound_methods_are_held_weakly() -> None:
    net = nn.Linear(2, 2)
    alive = weakref.ref(net)
    guards = build_guards([], function=net.forward)
    assert guards.check((torch.ones(2),))
    del net
    gc.collect()
    assert alive() is None and guards.check((torch.ones(2),)) is False


def test_decorated_functions_are_bound_by_the_wrapper() -> None:
    def inner(a: int, b: int) -> None: ...

    @functools.wraps(inner)
    def wrapper(*args: int, **kwargs: int) -> None: ...

    guards = build_guards([LengthGuard(ArgumentSource("args"), 1)], function=wrapper)
    assert guards.check((1,), {"b": 2}) and not guards.check((1, 2))


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_made_for_the_guard_lives_as_long_as_the_guard(kind: type) -> None:
    class Thing:
        pass

    thing = Thing()
    for elements in (["a", 1, None], [thing, "a"]):
        guards = build_guards([ConstantGuard(X, kind(elements))], function=f)
        gc.collect()
        assert guards.check((kind(elements),))
        assert not guards.check((kind(["a"]),))
    dead = weakref.ref(thing)
    del thing, elements
    gc.collect()
    assert dead() is None
    assert not guards.check((kind(["a"]),))


def test_hold() -> None:
    items: list[int] = []
    assert hold(items).get() is items and hold("a").get() == "a" and hold(nn.Linear).reference is None
    thing = Thing()
    held = hold(thing)
    assert held.get() is thing
    del thing
    gc.collect()
    assert held.get() is DEAD and repr(DEAD) == "<an object that no longer exists>"


# ---- generated code --------------------------------------------------------------------------------------------


class Counting:
    """Counts how often each attribute is fetched."""

    def __init__(self, **own: Any) -> None:
        self.__dict__.update(own, fetched=[])

    def __getattr__(self, name: str) -> Any:
        self.fetched.append(name)
        return self


def test_common_sources_are_fetched_once() -> None:
    deep: Source = AttributeSource(AttributeSource(X, "a"), "b")
    records = [TypeGuard(AttributeSource(deep, name), Counting) for name in "cde"]
    guards = build_guards([*records, TypeGuard(deep, Counting)], function=f)
    text = guards.text(f.__code__)
    assert [text.count(f"{name!r}") for name in "abcde"] == [1] * 5
    assert guards.frame_check(f.__code__).check.n_operations == 5 + 4
    leaf = Counting()
    x = Namespace(a=Namespace(b=Counting(c=leaf, d=leaf, e=leaf)))
    assert guards.check((x,)) and leaf.fetched == x.a.b.fetched == []


def test_objects_are_checked_before_anything_is_fetched_from_them() -> None:
    record = ConstantGuard(AttributeSource(X, "value"), 1)
    guards = build_guards([record, TypeGuard(X, Thing)], function=f)
    x = Counting()
    assert not guards.check((x,)) and x.fetched == []


def test_text_is_short_and_readable() -> None:
    records = [ConstantGuard(X, 3), GradModeGuard(True)]
    assert build_guards(records).text(f.__code__) == (
        "def guard(a0):\n"
        "    try:\n"
        "        if not (type(a0) is int and a0 == 3): return False\n"
        "        if not (c0() is True): return False\n"
        "    except Exception:\n"
        "        return False\n"
        "    return True\n"
    )


# ---- attributes of modules -------------------------------------------------------------------------------------


class Net(nn.Module):
    shared = 3

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(1))
        self.scale = nn.Parameter(torch.ones(2))
        self.plain = 5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


SELF = ArgumentSource("self")


def module_guards(net: Net) -> Any:
    records = [TypeGuard(SELF, Net)]
    for name in ("linear", "count", "scale", "plain", "shared", "training"):
        value = getattr(net, name)
        kind = ConstantGuard if isinstance(value, int) else IdentityGuard
        records.append(kind(AttributeSource(SELF, name), value))
    weight = AttributeSource(AttributeSource(SELF, "linear"), "weight")
    records.append(IdentityGuard(weight, net.linear.weight))
    return build_guards(records, function=net.forward)


def test_attributes_of_modules_are_read_directly() -> None:
    net = Net()
    guards = module_guards(net)
    assert guards.check((1,)), guards.explain_failure((1,))
    assert "['_parameters']" in guards.text(Net.forward.__code__)


def change_plain(net: Net) -> None:
    net.plain = 6


def change_class_attribute(net: Net) -> None:
    net.shared = 4  # type: ignore[misc]


def change_submodule(net: Net) -> None:
    net.linear = nn.Linear(2, 2)


def change_parameter(net: Net) -> None:
    net.scale = nn.Parameter(torch.ones(2))


def change_inner_parameter(net: Net) -> None:
    net.linear.weight = nn.Parameter(torch.ones(2, 2))


def change_buffer(net: Net) -> None:
    net.count = torch.zeros(1)


def hide_parameter(net: Net) -> None:
    net.__dict__["scale"] = 7


def delete_parameter(net: Net) -> None:
    del net.scale


@pytest.mark.parametrize(
    "change",
    [
        change_plain,
        change_class_attribute,
        change_submodule,
        change_parameter,
        change_inner_parameter,
        change_buffer,
        hide_parameter,
        delete_parameter,
    ],
)
def test_every_change_of_a_module_is_seen(change: Any) -> None:
    net = Net()
    guards = module_guards(net)
    assert guards.check((1,))
    change(net)
    assert guards.check((1,)) is False and guards.explain_failure((1,)) is not None


def test_data_swap_is_seen() -> None:
    net = Net()
    weight = net.linear.weight
    wanted = TensorFacts("torch.nn.parameter.Parameter", torch.float32, ("cpu", None), (2, 2), (2, 1), True, None, True)
    source = AttributeSource(AttributeSource(SELF, "linear"), "weight")
    guards = build_guards(
        [IdentityGuard(source, weight), TensorGuard(source, wanted)],
        function=net.forward,
    )
    assert guards.check((1,))
    weight.data = torch.ones(3, 3)
    assert not guards.check((1,)) and guards.first_failure((1,)).dims == (0, 1)  # type: ignore[union-attr]


def test_globals_are_not_held() -> None:
    space: dict[str, Any] = {"flag": 1}
    exec("def g(): return flag", space)
    guards = build_guards([ConstantGuard(GlobalSource("flag"), 1)], function=space["g"])
    frame = guards.frame_check(space["g"].__code__)
    assert frame.wants_globals and frame.check(space)
    marker = space["marker"] = Thing()
    alive = weakref.ref(marker)
    del marker, space
    gc.collect()
    assert alive() is None
