"""The generated predicate agrees with the naive meaning of the records, whatever is changed between calls.

A world of values is built, guards are made of what it is, and then it is changed at random. The predicate, the slow
meaning of every record, and a plain comparison with the world at capture must agree. And with any one kind of guard
left out, some stale acceptance is found: no kind is redundant, and the test has teeth.
"""

import copy
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia_guards import build_guards, meaning
from intarsia_guards.frame import Frame
from intarsia_guards.kinds import ROWS
from intarsia_ir import (
    ArgumentSource,
    AttributeSource,
    GuardKind,
    GuardRecord,
    ItemSource,
    SizeFact,
    SizeFacts,
    TensorFacts,
    TypeSource,
)
from intarsia_ir.guards import (
    AbsentGuard,
    AliasingGuard,
    AutocastGuard,
    CodeGuard,
    ComparisonGuard,
    ConstantGuard,
    DefaultDtypeGuard,
    DeterministicGuard,
    DictKeysGuard,
    DistinctGuard,
    GradModeGuard,
    HandlingGuard,
    HasAttributeGuard,
    IdentityGuard,
    InferenceModeGuard,
    LengthGuard,
    NotIdentityGuard,
    OverlapGuard,
    SizeGuard,
    SubclassGuard,
    TensorGuard,
    TorchModesGuard,
    TypeGuard,
)
from intarsia_testkit.fired import Tally

CHECKS = settings(derandomize=True, deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
tally = Tally("guards: kinds that refused a changed world", [kind.value for kind in GuardKind])

A, D, P, T, U = (ArgumentSource(name) for name in ("a", "d", "o", "t", "u"))


class Thing:
    """An object with attributes and a function."""


class Special(Thing):
    """Its objects may take the place of others."""


class MyList(list[Any]):
    """A list in all but its exact type."""


def one() -> int:
    return 1


def two() -> int:
    return 2


OTHER = Thing()


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def captured(a: Any, d: Any, o: Any, t: Any, u: Any) -> None: ...


def make_world() -> dict[str, Any]:
    thing = Thing()
    thing.f, thing.inner, thing.n, thing.m = one, Thing(), 0.0, 1.5  # type: ignore[attr-defined]
    base = torch.zeros(16)
    return {"a": [1, 2.5], "d": {"k": 1, "m": None}, "o": thing, "t": base[:8].view(2, 4), "u": base[8:].view(4, 2)}


def make_records(world: dict[str, Any]) -> list[GuardRecord]:
    t = world["t"]
    facts = TensorFacts("torch.Tensor", t.dtype, ("cpu", None), (None, 4), (4, 1), False)
    return [
        TypeGuard(A, list),
        LengthGuard(A, 2),
        ConstantGuard(ItemSource(A, 0), 1),
        ConstantGuard(ItemSource(A, 1), 2.5),
        DictKeysGuard(D, ("k", "m")),
        ConstantGuard(ItemSource(D, "k"), 1),
        AbsentGuard(D, "z"),
        IdentityGuard(AttributeSource(P, "inner"), world["o"].inner),
        NotIdentityGuard(P, OTHER),
        CodeGuard(AttributeSource(P, "f"), one.__code__),
        ConstantGuard(AttributeSource(P, "n"), 0.0),
        ComparisonGuard(AttributeSource(P, "m"), "<", 3, True),
        SubclassGuard(TypeSource(P), Special, False),
        HasAttributeGuard(P, "extra", False),
        TensorGuard(T, facts),
        AliasingGuard(T, U, False),
        DistinctGuard(T, (U, ItemSource(A, 0))),
        OverlapGuard(T, (U,)),
        SizeGuard(SizeFact("s0 <= 4")),
        GradModeGuard(True),
        InferenceModeGuard(False),
        AutocastGuard((("cpu", False, "bf16"),), True),
        DefaultDtypeGuard(torch.float32),
        DeterministicGuard(False, False),
        TorchModesGuard(()),
        HandlingGuard(False),
    ]


FACTS = SizeFacts(symbols={"s0": "t.size(0)"}, ranges={"s0": (1, None)})


def swap_tensor(world: dict[str, Any], name: str, value: torch.Tensor) -> None:
    world[name] = value


def set_attribute(world: dict[str, Any], name: str, value: Any) -> None:
    setattr(world["o"], name, value)


# each changes one thing; the kinds that must see it come first ("" for a change that is allowed)
CHANGES: dict[str, tuple[str, Any]] = {
    "same number": ("", lambda w: w["a"].__setitem__(0, 1)),
    "other values in t": ("", lambda w: w["t"].add_(1)),
    "other object, same kind": ("", lambda w: w.update(d=dict(w["d"]))),
    "longer first dimension": ("", lambda w: swap_tensor(w, "t", torch.zeros(3, 4))),
    "bool for int": ("constant", lambda w: w["a"].__setitem__(0, True)),
    "float on the same side": ("", lambda w: set_attribute(w, "m", -2.0)),
    "float on the other side": ("comparison", lambda w: set_attribute(w, "m", 3.25)),
    "other float": ("constant", lambda w: w["a"].__setitem__(1, 2.25)),
    "minus zero": ("constant", lambda w: set_attribute(w, "n", -0.0)),
    "value in the dict": ("constant", lambda w: w["d"].__setitem__("k", 2)),
    "subclass of list": ("type", lambda w: w.update(a=MyList(w["a"]))),
    "longer list": ("length", lambda w: w["a"].append(3)),
    "key order": ("dict_keys", lambda w: w["d"].__setitem__("k", w["d"].pop("k"))),
    "new key": ("dict_keys absent", lambda w: w["d"].__setitem__("z", 1)),
    "other inner object": ("identity", lambda w: set_attribute(w, "inner", Thing())),
    "other function": ("code", lambda w: set_attribute(w, "f", two)),
    "object of a subclass": ("subclass", lambda w: set_attribute(w, "__class__", Special)),
    "new attribute": ("has_attribute", lambda w: set_attribute(w, "extra", 1)),
    "last dimension": ("tensor", lambda w: swap_tensor(w, "t", torch.zeros(2, 5))),
    "other type of numbers": ("tensor", lambda w: swap_tensor(w, "t", torch.zeros(2, 4).double())),
    "transposed": ("tensor", lambda w: swap_tensor(w, "t", torch.zeros(4, 2).t())),
    "too long": ("size", lambda w: swap_tensor(w, "t", torch.zeros(5, 4))),
    "empty": ("size", lambda w: swap_tensor(w, "t", torch.zeros(0, 4))),
    "one tensor twice": ("aliasing overlap", lambda w: swap_tensor(w, "u", w["t"])),
    "overlapping": ("overlap", lambda w: swap_tensor(w, "u", w["t"].detach())),
}


def the_other_object(world: dict[str, Any]) -> None:
    thing = world["o"]
    OTHER.__dict__.clear()
    OTHER.__dict__.update(thing.__dict__)
    world["o"] = OTHER


CHANGES["the other object"] = ("not_identity", the_other_object)

# ambient state: (kind, a scope to check in)
SCOPES: dict[str, Any] = {
    "": None,
    "grad_mode": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "torch_modes": Mode,
}


def naive(records: list[GuardRecord], world: dict[str, Any]) -> list[GuardKind]:
    """Return the kinds of the records that don't hold, each by its meaning; sizes by hand."""
    t = world["t"]
    fits = isinstance(t, torch.Tensor) and t.dim() > 0 and 1 <= t.size(0) <= 4
    return [r.kind for r in records if not (fits if r.kind is GuardKind.SIZE else naive_holds(r, Frame(world)))]


def naive_holds(record: GuardRecord, frame: Frame) -> bool:
    guard = ROWS[type(record)].of(record)
    return guard.holds(guard.looked_at(frame), frame)


def enter(name: str) -> Any:
    if name == "default_dtype":
        torch.set_default_dtype(torch.float64)
    elif name == "deterministic":
        torch.use_deterministic_algorithms(True)
    elif name:
        scope = SCOPES[name]()
        scope.__enter__()
        return scope
    return None


def leave(scope: Any) -> None:
    if scope is not None:
        scope.__exit__(None, None, None)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)


AMBIENT_NAMES = [*SCOPES, "default_dtype", "deterministic"]


@CHECKS
@given(
    st.lists(st.sampled_from(sorted(CHANGES)), max_size=3, unique=True),
    st.sampled_from(["", "", "", *AMBIENT_NAMES]),
)
def test_predicate_agrees_with_the_meaning(changes: list[str], ambient: str) -> None:
    world = make_world()
    records = make_records(world)
    guards = build_guards(records, FACTS, function=captured, native=True)
    frame = guards.frame_check(captured.__code__)
    python = build_guards(records, FACTS, function=captured, native=False).frame_check(captured.__code__)
    assert guards.check((), world) and python.check(*world.values()) and not naive(records, world)
    for change in changes:
        CHANGES[change][1](world)
    scope = enter(ambient)
    try:
        refused = naive(records, world)
        expected = not refused
        assert guards.check((), world) is expected
        assert frame.check(*world.values()) is expected and python.check(*world.values()) is expected
        # what failed is tried first from now on: the answer stays the same
        assert frame.check(*world.values()) is expected
        failure = guards.first_failure((), world)
        explained = guards.explain_failure((), world)
    finally:
        leave(scope)
    assert (failure is None) is expected and (explained is None) is expected
    if not ambient and all(not CHANGES[c][0] for c in changes):
        assert expected
    assert failure is None or failure.kind in refused
    for kind in set(refused):
        tally.count(kind.value)


KINDS = sorted({kind for seen, _ in CHANGES.values() for kind in seen.split()})


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_a_kind_out_accepts_a_stale_world(kind: str) -> None:
    """Mutation test: some change is accepted only because the guards of this kind are missing."""
    stale = []
    for name, (seen, change) in CHANGES.items():
        world = make_world()
        off = frozenset({GuardKind(kind)})
        guards = build_guards(make_records(world), FACTS, function=captured, without=off)
        change(world)
        if guards.check((), world) and seen:
            stale.append(name)
    # what two kinds see is still refused by the other one
    alone = [name for name, (seen, _) in CHANGES.items() if seen == kind]
    assert set(alone) <= set(stale)
    assert stale or kind in ("aliasing", "absent")


@pytest.mark.parametrize("kind", [name for name in AMBIENT_NAMES if name])
def test_leaving_an_ambient_kind_out_accepts_a_stale_state(kind: str) -> None:
    world = make_world()
    records = make_records(world)
    with_all = build_guards(records, FACTS, function=captured)
    without = build_guards([r for r in records if r.kind.value != kind], FACTS, function=captured)
    scope = enter(kind)
    try:
        assert not with_all.check((), world)
        # autocast and inference mode are seen by their own guards only; inference mode also switches grad mode off
        if kind == "inference_mode":
            records = [r for r in records if r.kind.value not in (kind, "grad_mode")]
            without = build_guards(records, FACTS, function=captured)
        assert without.check((), world)
    finally:
        leave(scope)


def test_aliasing_and_absent_are_seen_without_their_neighbours() -> None:
    """What two kinds see: each sees it alone."""
    for change, kind in (("one tensor twice", "aliasing"), ("new key", "absent"), ("one tensor twice", "overlap")):
        world = make_world()
        records = [r for r in make_records(world) if r.kind.value == kind]
        guards = build_guards(records, function=captured)
        assert guards.check((), world)
        CHANGES[change][1](world)
        assert not guards.check((), world)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.complex_numbers() | st.text(max_size=2),
    lambda inner: st.tuples(inner, inner) | st.lists(inner, max_size=2),
    max_leaves=4,
)


@CHECKS
@given(VALUES, VALUES)
def test_constants(one_value: Any, other: Any) -> None:
    def f(x: Any) -> None: ...

    same = meaning.same_constant(other, one_value)
    for native in (True, False):
        record = ConstantGuard(ArgumentSource("x"), one_value)
        guards = build_guards([record], function=f, native=native)
        assert guards.check((one_value,)) and guards.check((copy.deepcopy(one_value),))
        assert guards.check((other,)) is same
    if same:
        assert repr(other) == repr(one_value)
