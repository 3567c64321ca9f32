"""Each kind of guard: it passes, it fails, and the explanation says what changed and what to do."""

import abc
import dataclasses
import enum
import math
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from intarsia_guards import GuardFailure, abi, build_guards, lookup
from intarsia_ir import (
    AnswerSource,
    ArgumentSource,
    AttributeSource,
    CellSource,
    DictItemSource,
    GlobalSource,
    GuardKind,
    GuardRecord,
    InvalidArgumentError,
    ItemSource,
    ModuleSource,
    Origin,
    SizeFact,
    SizeFacts,
    TensorFacts,
    TypeSource,
)
from intarsia_ir.guards import (
    GUARDS,
    AbsentGuard,
    AliasingGuard,
    ConstantGuard,
    DistinctGuard,
    GradModeGuard,
    HandlingGuard,
    IdentityGuard,
    OverlapGuard,
    SizeGuard,
    SubclassGuard,
    VersionGuard,
)
from intarsia_ir.modes import DEFAULT_DEVICE
from intarsia_ir.records import Source

BF16, F16 = torch.bfloat16, torch.float16
X, Y, Z = map(ArgumentSource, "xyz")
WHERE = Origin("model.py", 12, "forward")


def facts(tensor: torch.Tensor, **changes: Any) -> TensorFacts:
    cls = type(tensor)
    known = {
        "type_name": f"{cls.__module__}.{cls.__qualname__}",
        "dtype": tensor.dtype,
        "device": (tensor.device.type, tensor.device.index),
        "shape": tuple(tensor.shape),
        "strides": tensor.stride(),
        "requires_grad": tensor.requires_grad,
        "dispatch_keys": torch._C._dispatch_keys(tensor).raw_repr(),
        "is_leaf": tensor.is_leaf,
    }
    return TensorFacts(**{**known, **changes})


def made(kind: GuardKind, source: Source | None, value: Any) -> GuardRecord:
    """Return the guard of a kind; a tuple is the values of its fields where it has several."""
    cls = GUARDS[kind]
    names = [field.name for field in dataclasses.fields(cls) if not field.kw_only and field.name != "source"]
    values = value if len(names) > 1 else (value,)
    return cls(*([source] if source else []), *values, origin=WHERE, reason="a test needs it")


def check(kind: GuardKind, value: Any, good: list[Any], bad: list[Any], **options: Any) -> list[GuardFailure]:
    """Check one guard on `x`: by call, by frame, and by the explanation."""
    record = made(kind, options.get("source", X), value)

    def f(x: Any) -> None: ...

    guards = build_guards([record], function=f)
    frame = guards.frame_check(f.__code__)
    failures = []
    for x in good:
        assert guards.check((x,)) and frame.check(x) is True, x
        assert guards.explain_failure((x,)) is None
    for x in bad:
        assert not guards.check((x,)) and frame.check(x) is False, x
        failure = guards.first_failure((x,))
        assert failure is not None and failure.kind is kind and failure.origin == WHERE and failure.remedy
        text = guards.explain_failure((x,))
        assert text is not None and "model.py:12" in text and "a test needs it" in text and "remedy" in text
        failures.append(failure)
    return failures


# ---- tensors ---------------------------------------------------------------------------------------------------


def test_tensor() -> None:
    x = torch.randn(2, 3)
    bad = [
        torch.randn(2, 4),
        torch.randn(6),
        torch.randn(3, 2).t(),
        x.double(),
        x.to("meta"),
        x.clone().requires_grad_(),
        torch.nn.Parameter(x, requires_grad=False),
        torch.zeros(2, 3).to_sparse(),
        [1.0, 2.0],
        None,
    ]
    failures = check(GuardKind.TENSOR, facts(x), [x, torch.ones(2, 3)], bad)
    assert failures[0].dims == (1,) and "mark_dynamic(x, 1)" in failures[0].remedy
    assert (
        failures[0].expected == "shape (2, 3), strides (3, 1)" and failures[0].actual == "shape (2, 4), strides (4, 1)"
    )
    assert failures[1].dims == () and "dtype" in failures[3].actual and "device" in failures[4].actual
    assert failures[8].actual == "a builtins.list"


def test_tensor_with_open_sizes() -> None:
    x = torch.randn(2, 3)
    open_first = facts(x, shape=(None, 3), strides=(None, 1), dispatch_keys=None, is_leaf=None)
    good = [x, torch.ones(7, 3), torch.ones(4, 3, 2)[:, :, 0].clone()]
    failures = check(GuardKind.TENSOR, open_first, good, [torch.ones(2, 4), torch.ones(3), torch.ones(3, 2).t()])
    assert failures[0].dims == (1,)


def test_tensor_dispatch_keys_see_conjugates() -> None:
    x = torch.ones(2, dtype=torch.complex64)
    (failure,) = check(GuardKind.TENSOR, facts(x), [x.clone()], [x.conj()])
    assert (failure.expected, failure.actual) == ("no conjugate bit", "a conjugate bit")
    y = x.conj().imag
    (failure,) = check(GuardKind.TENSOR, facts(y), [x.conj().imag], [x.imag])
    assert (failure.expected, failure.actual) == ("a negative bit", "no negative bit")


def test_tensor_leaf() -> None:
    x = torch.ones(2, requires_grad=True)
    check(GuardKind.TENSOR, facts(x), [x], [x * 1])


def version(tensor: torch.Tensor) -> tuple[torch.Tensor, int, StorageWeakRef]:
    return tensor, tensor._version, StorageWeakRef(tensor.untyped_storage())


WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "in place": lambda x: x.add_(1),
    "through a view": lambda x: x[0].zero_(),
    "through a detached tensor": lambda x: x.detach().zero_(),
    "other memory": lambda x: setattr(x, "data", x.data.clone()),
    "other memory in place": lambda x: x.set_(torch.ones(2, 3).untyped_storage(), 0, (2, 3)),
    "other memory, other type": lambda x: setattr(x, "data", x.data.double()),
}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("make", [torch.ones, lambda *n: torch.nn.Parameter(torch.ones(*n))])
def test_version(make: Callable[..., torch.Tensor], write: str, native: bool) -> None:
    x, other = make(2, 3), make(2, 3)
    guards = build_guards([VersionGuard(X, *version(x), origin=WHERE)], native=native)
    assert guards.check(kwargs={"x": x}) and not guards.check(kwargs={"x": other})
    assert not any(guards.check(kwargs={"x": value}) for value in (None, 3, x.data, x.detach(), object()))
    with torch.no_grad():
        assert guards.check(kwargs={"x": x})
        WRITES[write](x)
    assert not guards.check(kwargs={"x": x})
    assert "remedy" in str(guards.explain_failure(kwargs={"x": x}))


def test_version_explanation() -> None:
    x = torch.ones(2)
    record = (*version(x), None)
    x.add_(1)
    failures = check(GuardKind.VERSION, record, [], [x, torch.ones(2), None])
    assert failures[0].expected == "a tensor that had been written 0 times"
    assert [failure.actual for failure in failures] == ["written 1 times", "another object", "another object"]
    x.data = torch.ones(2)
    assert check(GuardKind.VERSION, record, [], [x])[0].actual == "on other memory"
    with pytest.raises(InvalidArgumentError, match="no StorageWeakRef"):
        build_guards([VersionGuard(X, x, 0, None)])


@pytest.mark.parametrize("native", [True, False])
def test_version_of_a_storage_whose_address_is_used_again(native: bool) -> None:
    x = torch.ones(8)
    guards = build_guards([VersionGuard(X, *version(x))], native=native)
    for _ in range(100):  # each frees the storage before it, whose address the next one would get
        x.data = torch.zeros(8)
        assert not guards.check(kwargs={"x": x})


@pytest.mark.parametrize("native", [True, False])
def test_version_of_a_tensor_that_is_gone(native: bool) -> None:
    x = torch.ones(8)
    guards = build_guards([VersionGuard(X, *version(x))], native=native)
    gone = weakref.ref(x)
    del x
    assert gone() is None and not guards.check(kwargs={"x": torch.ones(8)}) and not guards.check(kwargs={"x": None})


@pytest.mark.parametrize("native", [True, False])
def test_version_of_no_elements(native: bool) -> None:
    x = torch.empty(0, 3)
    guards = build_guards([VersionGuard(X, *version(x), lookup.contents(x), origin=WHERE)], native=native)
    assert guards.check(kwargs={"x": x}) and not guards.check(kwargs={"x": torch.empty(0, 3)})
    x.zero_()
    assert not guards.check(kwargs={"x": x})


@pytest.mark.parametrize("native", [True, False])
def test_version_with_contents(native: bool) -> None:
    x, apart = torch.ones(8), torch.ones(8)
    guards = build_guards([VersionGuard(X, *version(x), lookup.contents(x), origin=WHERE)], native=native)
    assert guards.check(kwargs={"x": x}) and not guards.check(kwargs={"x": apart})
    torch.nn.functional.batch_norm(torch.randn(4, 8), x, torch.ones(8), training=True)  # counts no write
    assert x._version == 0 and not guards.check(kwargs={"x": x})
    failure = guards.first_failure(kwargs={"x": x})
    assert failure is not None and failure.actual == "written in a way that isn't counted"
    x.data.fill_(1)
    assert guards.check(kwargs={"x": x})
    x.untyped_storage().resize_(16)
    assert not guards.check(kwargs={"x": x})
    x.untyped_storage().resize_(0)
    assert not guards.check(kwargs={"x": x})


def test_where_writes_are_counted_is_known() -> None:
    """Else these guards would be checked in Python, a few times as slowly."""
    assert abi.addresses()["count"]


class MyTensor(torch.Tensor):
    """A subclass that torch doesn't bring: compared by name."""


def test_tensor_subclass() -> None:
    x = torch.ones(2).as_subclass(MyTensor)
    check(GuardKind.TENSOR, facts(x, dispatch_keys=None), [x], [torch.ones(2)])
    parameter = torch.nn.Parameter(torch.ones(2))
    check(GuardKind.TENSOR, facts(parameter), [parameter], [torch.ones(2, requires_grad=True)])


# ---- values ----------------------------------------------------------------------------------------------------


class Base: ...


class Derived(Base): ...


def test_type() -> None:
    failures = check(GuardKind.TYPE, Base, [Base()], [Derived(), Base, 3])
    assert failures[0].actual.endswith("Derived")
    check(GuardKind.TYPE, int, [3], [True, 3.0])
    check(GuardKind.TYPE, type(None), [None], [0])


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


NAN = float("nan")
CONSTANTS: list[tuple[Any, list[Any], list[Any]]] = [
    (1, [1], [True, 1.0, 2, "1", None]),
    (True, [True], [1, 1.0, False, None]),
    (None, [None], [0, False, ""]),
    (0.0, [0.0], [-0.0, 0, False, 1.0]),
    (-0.0, [-0.0], [0.0, 0]),
    (NAN, [NAN, float("nan"), math.inf - math.inf], [0.0, None, "nan"]),
    (math.inf, [math.inf], [-math.inf, NAN, 1e308]),
    (1.5, [1.5], [2.5, complex(1.5)]),
    (complex(0.0, -0.0), [complex(0.0, -0.0)], [complex(0.0, 0.0), 0.0]),
    (complex(NAN, 1.0), [complex(NAN, 1.0)], [complex(1.0, NAN)]),
    ("a", ["a"], ["b", b"a"]),
    (b"a", [b"a"], ["a"]),
    ((1, (True, NAN)), [(1, (True, NAN))], [(1, (1, NAN)), (1,), [1, (True, NAN)]]),
    ([1, -0.0], [[1, -0.0]], [[1, 0.0], (1, -0.0)]),
    ({"a": 1}, [{"a": 1}], [{"a": True}, {"a": 1, "b": 2}, {"b": 1}]),
    (frozenset([1, 2]), [frozenset([2, 1])], [frozenset([1]), {1, 2}, frozenset([True, 2])]),
    (slice(1, None), [slice(1, None)], [slice(True, None), slice(1, 2)]),
    (range(3), [range(3)], [range(4), (0, 1, 2)]),
    (torch.float32, [torch.float32], [torch.float64, "float32"]),
    (torch.device("cpu"), [torch.device("cpu")], [torch.device("meta")]),
    (Colour.RED, [Colour.RED], [Colour.BLUE, 1]),
    (Ellipsis, [Ellipsis], [None]),
]


@pytest.mark.parametrize(("value", "good", "bad"), CONSTANTS, ids=lambda v: repr(v)[:20])
def test_constant(value: Any, good: list[Any], bad: list[Any]) -> None:
    check(GuardKind.CONSTANT, value, good, bad)


def test_constant_explanation() -> None:
    (failure,) = check(GuardKind.CONSTANT, 3, [], [4])
    assert (failure.source, failure.expected, failure.actual) == ("x", "3", "4")
    assert "as a tensor" in failure.remedy


def test_an_int_of_more_digits_than_python_writes() -> None:
    large = 10**5000
    failure, _ = check(GuardKind.CONSTANT, large, [large], [large + 1, 3])
    assert failure.expected.startswith("<int object")
    guards = build_guards([ConstantGuard(X, large)], native=False)
    assert guards.check(kwargs={"x": 10**5000}) and not guards.check(kwargs={"x": large + 1})


def test_comparison() -> None:
    check(GuardKind.COMPARISON, (">", 0, True), [0.5, math.inf, 1], [0.0, -0.0, -1.0, math.nan, -1, True, None])
    check(GuardKind.COMPARISON, ("!=", 0.0, False), [0.0, -0.0, 0], [1e-300, 1, False])
    check(GuardKind.COMPARISON, ("<=", math.inf, True), [1.0], [math.nan])
    (failure,) = check(GuardKind.COMPARISON, ("<", 2.0, True), [1.0], [3.0])
    assert "on one side of 2.0" in failure.remedy


def test_identity() -> None:
    held, other = Base(), Base()
    check(GuardKind.IDENTITY, held, [held], [other, None])
    check(GuardKind.IDENTITY, None, [None], [0])
    items: list[int] = []
    check(GuardKind.IDENTITY, items, [items], [[]])
    check(GuardKind.NOT_IDENTITY, held, [other, None], [held])
    check(GuardKind.NOT_IDENTITY, None, [0], [None])


def test_subclass() -> None:
    class Plain: ...

    class Other(Base): ...

    class Abstract(abc.ABC): ...

    class Registered: ...

    Abstract.register(Registered)
    (failure, *_) = check(GuardKind.SUBCLASS, (Base, True), [Base, Other], [Plain, int])
    assert failure.expected.startswith("a subclass of") and failure.actual == "another class than it"
    check(GuardKind.SUBCLASS, (Base, False), [Plain, int], [Base, Other])
    check(GuardKind.SUBCLASS, (Abstract, False), [Plain, int], [Registered, Abstract])
    check(GuardKind.SUBCLASS, (int, False), [Plain], [bool, 3])


def test_subclass_after_changes() -> None:
    class Plain: ...

    class Other(Plain): ...

    class Abstract(abc.ABC): ...

    def holds(*values: Any) -> bool:
        record = SubclassGuard(X, *values)
        frame = build_guards([record]).frame_check((lambda x: x).__code__)
        answers.append(frame.check)
        return bool(frame.check(Other))

    answers: list[Callable[[Any], bool]] = []
    assert holds(Plain, True) and holds(Base, False) and holds(Abstract, False)
    Other.__bases__ = (Base,)
    assert [answer(Other) for answer in answers] == [False, False, True]
    Abstract.register(Other)
    assert [answer(Other) for answer in answers] == [False, False, False]


def test_length() -> None:
    (failure, *_) = check(GuardKind.LENGTH, 2, [[1, 2], "ab", {1: 2, 3: 4}], [[1], [], 3])
    assert failure.expected == "of length 2" and failure.actual == "of length 1"


def test_dict_keys() -> None:
    check(
        GuardKind.DICT_KEYS, ("a", "b"), [{"a": 1, "b": 2}], [{"b": 2, "a": 1}, {"a": 1}, {"a": 1, "b": 2, "c": 3}, 3]
    )
    check(GuardKind.DICT_KEYS, (), [{}], [{"a": 1}])
    check(GuardKind.DICT_KEYS, (1, "a"), [{1: 0, "a": 0}], [{True: 0, "a": 0}, {1.0: 0, "a": 0}])
    key, other = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
    check(GuardKind.DICT_KEYS, (key,), [{key: 1}], [{other: 1}])


def test_has_attribute() -> None:
    with_it = Base()
    with_it.extra = 1  # type: ignore[attr-defined]
    (failure,) = check(GuardKind.HAS_ATTRIBUTE, ("extra", True), [with_it], [Base()])
    assert failure.expected == "with the attribute 'extra'" and failure.actual == "without it"
    check(GuardKind.HAS_ATTRIBUTE, ("extra", False), [Base()], [with_it])


def test_absent() -> None:
    with_it = Base()
    with_it.extra = 1  # type: ignore[attr-defined]
    check(GuardKind.ABSENT, "extra", [Base(), {}, OrderedDict(a=1)], [with_it, {"extra": 1}, OrderedDict(extra=1)])
    check(GuardKind.ABSENT, 3, [{}, {4: 1}], [{3: 1}])


def test_code() -> None:
    def one() -> None: ...

    def two() -> None: ...

    again = type(one)(one.__code__, {})
    check(GuardKind.CODE, one.__code__, [one, again], [two, 3])


# ---- two sources -----------------------------------------------------------------------------------------------


def pair(x: Any, y: Any) -> None: ...


def test_aliasing() -> None:
    a, b = torch.ones(2), torch.ones(2)
    same = build_guards([AliasingGuard(X, Y, True)], function=pair)
    assert same.check((a, a)) and not same.check((a, b))
    apart = build_guards([AliasingGuard(X, Y, False)], function=pair)
    assert apart.check((a, b)) and not apart.check((a, a))
    assert "another object than y" in str(apart.explain_failure((a, a)))


def test_distinct() -> None:
    a, b, c = [torch.ones(2) for _ in range(3)]
    guards = build_guards([DistinctGuard(X, (Y, ItemSource(Z, 0)))], function=triple)
    assert guards.check((a, b, [c])) and guards.check((c, a, [b]))
    assert not guards.check((a, a, [c])) and not guards.check((a, b, [b])) and not guards.check((a, b, []))
    assert "another object than y, z[0]" in str(guards.explain_failure((a, b, [b])))


def test_a_key_of_the_call_is_absent() -> None:
    a, b = torch.ones(2), torch.ones(2)
    guards = build_guards([AbsentGuard(X, Y)], function=pair)
    assert guards.check(({a: 1}, b)) and guards.check(({b: 1}, a))
    assert not guards.check(({a: 1}, a)) and not guards.check(({}, []))
    assert "x was without y, now it is with it" in str(guards.explain_failure(({b: 1}, b)))


def triple(x: Any, y: Any, z: Any) -> None: ...


def test_overlap() -> None:
    guards = build_guards([OverlapGuard(X, (Y,))], function=pair)
    base = torch.zeros(10)
    assert guards.check((base[:5], base[5:])) and guards.check((base, torch.ones(10)))
    assert not guards.check((base[:6], base[5:])) and not guards.check((base, base))
    assert guards.check((base[3:3], base)) and not guards.check((base, 3))
    # the same memory behind two storages
    array = base.numpy()
    assert not guards.check((base, torch.from_numpy(array)))
    assert guards.check((base.to("meta"), base)) and guards.check((base.to("meta"), torch.ones(3, device="meta")))
    meta = torch.ones(3, device="meta")
    assert not guards.check((meta, meta[:1]))
    assert "clone()" in str(guards.explain_failure((base, base)))


# ---- ambient state ---------------------------------------------------------------------------------------------


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


CPU_OFF = ((("cpu", False, "bf16"),), True)
AMBIENT: list[tuple[GuardKind, Any, Any, Callable[[], Any]]] = [
    (GuardKind.GRAD_MODE, True, False, torch.no_grad),
    (GuardKind.INFERENCE_MODE, False, True, torch.inference_mode),
    (GuardKind.DEFAULT_DTYPE, torch.float32, torch.float64, lambda: default_dtype(torch.float64)),
    (GuardKind.DETERMINISTIC, (False, False), (True, True), deterministic),
    (GuardKind.TORCH_MODES, (), (Mode,), Mode),
    (GuardKind.TORCH_MODES, (), (Operations,), Operations),
    (GuardKind.TORCH_MODES, (), (torch.device("meta"),), lambda: torch.device("meta")),
    (GuardKind.TORCH_MODES, (), (DEFAULT_DEVICE, torch.device("meta")), default_device),
    (GuardKind.AUTOCAST, CPU_OFF, ((("cpu", True, "bfloat16"),), True), lambda: torch.autocast("cpu", BF16)),
    (
        GuardKind.AUTOCAST,
        CPU_OFF[:1],
        ((("cpu", True, "torch.float16"),),),
        lambda: torch.autocast("cpu", torch.float16),
    ),
    (
        GuardKind.AUTOCAST,
        CPU_OFF,
        ((("cpu", True, "bf16"),), False),
        lambda: torch.autocast("cpu", cache_enabled=False),
    ),
]


@pytest.mark.parametrize("native", [True, False])
def test_what_the_caller_handles(native: bool) -> None:
    def f() -> None: ...

    both = [build_guards([HandlingGuard(on)], function=f, native=native) for on in (False, True)]
    assert [guards.check() for guards in both] == [True, False]
    try:
        raise KeyError
    except KeyError:
        assert [guards.check() for guards in both] == [False, True]
        failure = both[0].first_failure()
        assert failure is not None and failure.kind is GuardKind.HANDLING
    assert [guards.check() for guards in both] == [True, False]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("kind", "outside", "inside", "scope"), AMBIENT)
def test_ambient(kind: GuardKind, outside: Any, inside: Any, scope: Callable[[], Any], native: bool) -> None:
    def f() -> None: ...

    out = build_guards([made(kind, None, outside)], function=f, native=native)
    within = build_guards([made(kind, None, inside)], function=f, native=native)
    assert out.check() and not within.check()
    assert out.explain_failure() is None and "remedy" in str(within.explain_failure())
    with scope():
        assert within.check() and not out.check()
        failure = out.first_failure()
        assert failure is not None and failure.kind is kind and failure.source == ""


# ---- sizes -----------------------------------------------------------------------------------------------------


def test_sizes() -> None:
    size_facts = SizeFacts(
        symbols={"s0": "x.size(0)", "s1": "y.shape[1]", "s2": "x.stride()[0]"},
        ranges={"s0": (2, 8), "s1": (None, None), "s9": (1, 2)},
        facts=(SizeFact("s0 % 2 == 0", WHERE), SizeFact("s0 + 1 <= s1")),
    )
    guards = build_guards([], size_facts, function=pair)
    assert guards.check((torch.ones(4, 2), torch.ones(1, 5)))
    for x, y in [((3, 2), (1, 5)), ((4, 2), (1, 4)), ((10, 2), (1, 50)), ((0, 2), (1, 5)), ((4, 2), (5,))]:
        assert not guards.check((torch.ones(x), torch.ones(y)))
    failure = guards.first_failure((torch.ones(3, 2), torch.ones(1, 5)))
    assert failure is not None and failure.kind is GuardKind.SIZE and failure.origin == WHERE
    assert failure.actual == "false with s0 = 3 (x.size(0))"
    assert guards.first_failure((torch.ones(4, 2), 3)) is not None


def test_a_relation_that_cannot_be_evaluated_does_not_hold() -> None:
    size_facts = SizeFacts(symbols={"s0": "x", "s1": "y"}, facts=(SizeFact("s0 % s1 == 0"), SizeFact("8 // s1 > 0")))
    guards = build_guards([], size_facts, function=pair)
    assert guards.check((4, 2)) and not guards.check((4, 0))
    failure = guards.first_failure((4, 0))
    assert failure is not None and failure.kind is GuardKind.SIZE


def test_size_records_and_facts_are_joined() -> None:
    record = SizeGuard(SizeFact("math.floor(s0 / 2) > 1"), origin=WHERE)
    guards = build_guards([record], SizeFacts(symbols={"s0": "x.size(0)"}), function=pair)
    assert guards.check((torch.ones(4), 0)) and not guards.check((torch.ones(3), 0))
    failure = guards.first_failure((torch.ones(3), 0))
    assert failure is not None and failure.origin == WHERE


TABLE = torch.ones(5)


def test_sizes_of_globals_cells_and_attributes() -> None:
    hidden = torch.ones(3)

    def f(x: Any) -> Any:
        return hidden, TABLE

    symbols = {"s0": "globals['TABLE'].size(0)", "s1": "cell['hidden'].size(0)", "s2": "x.inner['a'].size(0)"}
    guards = build_guards([], SizeFacts(symbols=symbols, facts=(SizeFact("s0 == s1 + s2"),)), function=f)
    x = Base()
    x.inner = {"a": torch.ones(2)}  # type: ignore[attr-defined]
    assert guards.check((x,))
    hidden = torch.ones(4)
    assert not guards.check((x,)) and "s1 = 4" in str(guards.explain_failure((x,)))


@pytest.mark.parametrize(
    ("relation", "words"),
    [("s0 >", "no expression"), ("s7 > 1", "no argument defines"), ("[s0]", "List"), ("(lambda: s0)()", "Lambda")],
)
def test_bad_relations_are_refused(relation: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        build_guards([], SizeFacts(symbols={"s0": "x.size(0)"}, facts=(SizeFact(relation),)))


# ---- sources ---------------------------------------------------------------------------------------------------


def test_sources() -> None:
    cell = 1

    def f(x: Any, /, *rest: Any, key: Any = 2, **more: Any) -> Any:
        return cell, TABLE, len

    sources = {
        ArgumentSource("x"): 0,
        ItemSource(ArgumentSource("rest"), 1): 5,
        ArgumentSource("key"): 2,
        ItemSource(ArgumentSource("more"), "z"): 9,
        CellSource("cell"): 1,
    }
    records = [ConstantGuard(source, value) for source, value in sources.items()]
    records += [
        IdentityGuard(GlobalSource("TABLE"), TABLE),
        IdentityGuard(GlobalSource("len"), len),
        IdentityGuard(AttributeSource(ModuleSource("math"), "floor"), math.floor),
        ConstantGuard(DictItemSource(ArgumentSource("more"), "z"), 9),
        IdentityGuard(TypeSource(AttributeSource(GlobalSource("TABLE"), "dtype")), torch.dtype),
        ConstantGuard(AnswerSource(AttributeSource(ModuleSource("torch"), "is_grad_enabled")), True),
    ]
    guards = build_guards(records, function=f)
    assert guards.check((0, 4, 5), {"z": 9})
    for args, kwargs in [
        ((1, 4, 5), {"z": 9}),
        ((0, 4), {"z": 9}),
        ((0, 4, 5), {}),
        ((0, 4, 5), {"key": 3, "z": 9}),
        ((), {}),
    ]:
        assert not guards.check(args, kwargs)
    assert "missing" in str(guards.explain_failure((0, 4), {"z": 9}))
    frame = guards.frame_check(f.__code__)
    assert frame.wants_globals
    assert frame.check(0, 2, (4, 5), {"z": 9}, 1, f.__globals__)
    assert not frame.check(0, 2, (4, 5), {"z": 9}, 3, f.__globals__)
    assert not frame.check(0, 2, (4, 5), {"z": 9}, 1, {})
    shadowed = {**f.__globals__, "len": print}
    assert not frame.check(0, 2, (4, 5), {"z": 9}, 1, shadowed)
    values = {"x": 0, "key": 2, "rest": (4, 5), "more": {"z": 9}, "cell": 1}
    assert guards.explain_frame(values, f.__globals__) is None
    failure = guards.frame_failure({**values, "cell": 3}, f.__globals__)
    assert failure is not None and failure.source == "cell['cell']" and guards.explain_frame(values, {}) is not None
    cell = 2
    assert not guards.check((0, 4, 5), {"z": 9})


def test_bound_methods_and_modules() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    net = Net().eval()
    record = ConstantGuard(AttributeSource(ArgumentSource("self"), "training"), False)
    for function in (net, net.forward):
        guards = build_guards([record], function=function)
        assert guards.check((1,))
        net.train()
        assert not guards.check((1,))
        net.eval()


def test_unknown_names_are_refused() -> None:
    guards = build_guards([ConstantGuard(ArgumentSource("nope"), 1)], function=pair)
    with pytest.raises(InvalidArgumentError, match="parameter 'nope'; the function has x, y"):
        guards.check((1, 2))
    with pytest.raises(InvalidArgumentError, match="free variable"):
        build_guards([ConstantGuard(CellSource("c"), 1)]).frame_check(pair.__code__)
    with pytest.raises(InvalidArgumentError, match="not of type"):
        build_guards([], function=int).check((1,))


def test_without_a_function_arguments_have_names() -> None:
    guards = build_guards([ConstantGuard(X, 1)])
    assert guards.check((), {"x": 1}) and not guards.check((), {"x": 2}) and len(guards) == 1
    with pytest.raises(InvalidArgumentError, match="function"):
        guards.check((1,))


def test_kinds_that_need_a_source_or_none() -> None:
    assert GradModeGuard(True).source is None
    with pytest.raises(TypeError, match="positional argument"):
        GradModeGuard(X, True)  # type: ignore[call-arg, arg-type]
