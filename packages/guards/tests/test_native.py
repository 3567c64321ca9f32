"""The native check and the Python predicate say the same, whatever happens to what is looked at."""

import functools
import gc
import logging
import random
import subprocess
import sys
import threading
import types
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

from intarsia_guards import abi, build, build_guards, native
from intarsia_guards.kinds.tensors import class_named
from intarsia_guards.meaning import is_apart
from intarsia_ir import (
    ArgumentSource,
    ArraySource,
    AttributeSource,
    DictItemSource,
    GlobalSource,
    GuardRecord,
    InvalidArgumentError,
    ItemSource,
    ReferentSource,
    SizeFact,
    SizeFacts,
    Source,
    TensorFacts,
    TypeSource,
)
from intarsia_ir.guards import (
    AbsentGuard,
    ConstantGuard,
    DictKeysGuard,
    GradModeGuard,
    IdentityGuard,
    LengthGuard,
    NotIdentityGuard,
    OverlapGuard,
    TensorGuard,
    TypeGuard,
)

CHECKS = settings(derandomize=True, deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
X, Y = ArgumentSource("x"), ArgumentSource("y")


def f(x: Any, y: Any = None) -> None: ...


class Asked:
    """A key that takes the place where `other` is looked up, and is compared with it: `then` is called."""

    def __init__(self, other: Any, then: Callable[[], object] = lambda: None) -> None:
        self.other, self.then = other, then

    def __hash__(self) -> int:
        return hash(self.other)

    def __eq__(self, other: object) -> bool:
        if other == self.other:
            self.then()
        return self is other


def both(records: list[GuardRecord], facts: SizeFacts | None = None) -> Any:
    """Return a check by both predicates, which must agree."""
    pair = [build_guards(records, facts, native=on).frame_check(f.__code__) for on in (True, False)]
    assert pair[0].wants_globals is pair[1].wants_globals

    def check(x: Any, y: Any = None, space: dict[str, Any] | None = None) -> bool:
        more = (space if space is not None else globals(),) if pair[0].wants_globals else ()
        answers = {predicate.check(x, y, *more) for predicate in pair}
        assert len(answers) == 1
        return answers.pop()

    return check


def facts_of(t: torch.Tensor, **changes: Any) -> TensorFacts:
    name = "torch.Tensor" if type(t) is torch.Tensor else f"{type(t).__module__}.{type(t).__qualname__}"
    keys = torch._C._dispatch_keys(t).raw_repr()
    fields: dict[str, Any] = {
        "type_name": name,
        "dtype": t.dtype,
        "device": (t.device.type, t.device.index),
        "shape": tuple(t.shape),
        "strides": t.stride(),
        "requires_grad": t.requires_grad,
        "dispatch_keys": keys,
    }
    return TensorFacts(**(fields | changes))


# ---- tensors ---------------------------------------------------------------------------------------------------


def tensors() -> list[torch.Tensor]:
    base = torch.zeros(4, 6)
    with torch.inference_mode():
        inference = torch.zeros(4, 6)
    return [
        base,
        base.clone().requires_grad_(),
        torch.nn.Parameter(base.clone()),
        base.t(),
        base[:, :3],
        base[:2],
        base.double(),
        base.to(torch.int64),
        base.to("meta"),
        base.to(torch.complex64).conj(),
        base.to(torch.complex64),
        base.to_sparse(),
        torch.zeros(()),
        torch.zeros(0, 6),
        inference,
        torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ]


def test_tensors_are_told_apart() -> None:
    """Every pair of a panel: one guard made of each, asked about each."""
    panel = tensors()
    for one in panel:
        if one.layout is not torch.strided or one.is_nested:
            continue
        check = both([TensorGuard(X, facts_of(one))])
        assert [check(other) for other in panel].count(True) == 1 and check(one)
        assert not check(3) and not check(None)


def test_open_dimensions_and_unasked_keys() -> None:
    check = both([TensorGuard(X, facts_of(torch.zeros(4, 6), shape=(None, 6), dispatch_keys=None))])
    assert check(torch.zeros(9, 6)) and not check(torch.zeros(9, 5)) and not check(torch.zeros(6))
    check = both([TensorGuard(X, facts_of(torch.zeros(4, 6), strides=(None, 1), is_leaf=True))])
    assert check(torch.zeros(4, 9)[:, :6]) and not check(torch.zeros(4, 12)[:, ::2])


def test_metadata_changed_in_place_is_seen() -> None:
    """The object stays; its storage, sizes, strides, type of numbers and requires_grad don't."""
    t = torch.zeros(4, 4)
    check = both([TensorGuard(X, facts_of(t))])
    assert check(t)
    t.requires_grad_()
    assert not check(t)
    t.requires_grad_(False)
    assert check(t)
    t.data = torch.zeros(4, 5)
    assert not check(t)
    t.data = torch.zeros(4, 4).t()
    assert not check(t)
    t.data = torch.zeros(4, 4)
    assert check(t)
    t.resize_(2, 2)
    assert not check(t)


def test_swapped_tensors_are_seen() -> None:
    one, other = torch.zeros(3), torch.zeros(5)
    check = both([TensorGuard(X, facts_of(one))])
    torch.utils.swap_tensors(one, other)
    assert not check(one) and check(other)


def test_tensor_subclasses_are_asked_in_python() -> None:
    class Mine(torch.Tensor):
        pass

    mine = torch.zeros(3).as_subclass(Mine)
    check = both([TensorGuard(X, facts_of(mine))])
    assert check(mine) and not check(torch.zeros(3)) and not check(torch.zeros(4).as_subclass(Mine))


def test_wrappers_of_a_module_are_checked_natively() -> None:
    one, two = TwoTensor(torch.zeros(3), torch.zeros(3)), TwoTensor(torch.zeros(4), torch.zeros(4))
    guards = [TensorGuard(X, facts_of(one))]
    check = both(guards)
    assert class_named(facts_of(one).type_name) is TwoTensor
    assert check(one) and check(TwoTensor(torch.ones(3), torch.ones(3)))
    assert not check(two) and not check(torch.zeros(3)) and not check(torch.nn.Parameter(torch.zeros(3)))
    assert not check(TwoTensor(torch.zeros(3).double(), torch.zeros(3).double()))


# ---- remembered look-ups ---------------------------------------------------------------------------------------


def test_every_change_of_a_dict_is_seen() -> None:
    rng = random.Random(0)
    d: dict[Any, Any] = {"a": 1, "b": 2}
    records = [
        ConstantGuard(ItemSource(X, "a"), 1),
        AbsentGuard(X, "z"),
        DictKeysGuard(X, ("a", "b")),
    ]
    check = both(records)
    changes = [
        lambda: d.update(a=rng.choice((1, 1, 2))),
        lambda: d.setdefault("z", 1),
        lambda: d.pop("z", None),
        lambda: d.update(b=d.pop("b", 0)),
        lambda: d.update(a=d.pop("a", 1)),
        lambda: (d.clear(), d.update(a=1, b=2)),
        lambda: None,
    ]
    seen = set()
    for _ in range(2000):
        rng.choice(changes)()
        expected = list(d) == ["a", "b"] and d["a"] == 1
        assert check(d) is expected
        seen.add(expected)
    assert seen == {True, False}


class Slots:
    pass


@pytest.mark.parametrize("write", ["attribute", "setattr", "dict", "update"])
def test_attributes_written_by_specialised_bytecode_are_seen(write: str) -> None:
    """CPython writes attributes of an instance in several ways; each changes the version of its dictionary."""

    def set_n(o: Any, n: int) -> None:
        o.n = n

    def set_by_update(o: Any, n: int) -> None:
        vars(o).update(n=n)

    ways = {
        "attribute": set_n,
        "setattr": lambda o, n: setattr(o, "n", n),
        "dict": lambda o, n: o.__dict__.__setitem__("n", n),
        "update": set_by_update,
    }
    o = Slots()
    o.n = 0  # type: ignore[attr-defined]
    check = both([ConstantGuard(ItemSource(AttributeSource(X, "__dict__"), "n"), 0)])
    for i in range(300):
        ways[write](o, i % 3)
        assert check(o) is (i % 3 == 0)


def test_another_dict_at_the_same_address_is_looked_up() -> None:
    check = both([ConstantGuard(ItemSource(X, "a"), 1)])
    for i in range(200):
        assert check({"a": i % 2}) is (i % 2 == 1)


def test_globals_shadow_builtins() -> None:
    check = both([IdentityGuard(GlobalSource("len"), len)])
    space: dict[str, Any] = {}
    assert check(0, 0, space) and check(0, 0, space)
    space["len"] = max
    assert not check(0, 0, space)
    del space["len"]
    assert check(0, 0, space)


# ---- modules ---------------------------------------------------------------------------------------------------


def module_source(name: str) -> Source:
    return AttributeSource(X, name)


def test_what_modules_keep_in_their_dicts() -> None:
    module = torch.nn.Linear(3, 3)
    weight = facts_of(module.weight)
    records = [
        TypeGuard(X, torch.nn.Linear),
        TensorGuard(module_source("weight"), weight),
        LengthGuard(module_source("_forward_hooks"), 0),
        AbsentGuard(AttributeSource(X, "__dict__"), "forward"),
        ConstantGuard(module_source("training"), True),
    ]
    check = both(records)
    assert check(module) and check(module)
    handle = module.register_forward_hook(lambda *a: None)
    assert not check(module)
    handle.remove()
    assert check(module)
    module.eval()
    assert not check(module)
    module.train()
    module.forward = lambda x: x  # type: ignore[method-assign,assignment]
    assert not check(module)
    del module.forward
    assert check(module)
    module.weight = torch.nn.Parameter(torch.zeros(3, 4))
    assert not check(module)
    module.weight = torch.nn.Parameter(torch.zeros(3, 3))
    assert check(module)
    del module.weight
    module.register_buffer("weight", torch.zeros(3, 3))
    assert not check(module)
    module.__class__ = torch.nn.Identity  # type: ignore[assignment]
    assert not check(module)


def test_a_class_that_says_what_its_dict_is_is_not_asked() -> None:
    class Odd:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            return {"n": 5}

    records = [
        TypeGuard(X, Odd),
        ConstantGuard(ItemSource(AttributeSource(X, "__dict__"), "n"), 5),
    ]
    assert not both(records)(Odd())


def test_ordered_dict_keys_are_those_that_it_lists() -> None:
    d = OrderedDict(a=1, b=2)
    check = both([DictKeysGuard(X, ("a", "b"))])
    assert check(d)
    d.move_to_end("a")
    assert not check(d)


def test_dict_subclasses_are_looked_into_past_what_they_answer() -> None:
    class Upper(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return 10

        def __len__(self) -> int:
            return 7

        def __contains__(self, key: object) -> bool:
            return False

    refused = [
        ConstantGuard(ItemSource(X, "a"), 10),
        ConstantGuard(ItemSource(X, "a"), 1),
        LengthGuard(X, 7),
        LengthGuard(X, 1),
        AbsentGuard(X, "a"),
    ]
    assert not any(both([record])(Upper(a=1)) for record in refused)
    check = both([ConstantGuard(DictItemSource(X, "a"), 1), AbsentGuard(X, "b")])
    assert check(Upper(a=1)) and check({"a": 1}) and not check(Upper(a=2)) and not check(Upper(a=1, b=2))
    assert not both([ConstantGuard(DictItemSource(X, "a"), 1)])(types.MappingProxyType({"a": 1}))


# ---- sizes -----------------------------------------------------------------------------------------------------

NUMBERS = st.integers(-3, 9).map(str) | st.just(str(2**62)) | st.sampled_from(["s0", "s1", "s2"])
ARITHMETIC = st.recursive(
    NUMBERS,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner)
        | st.builds("{}({}, {})".format, st.sampled_from(["max", "min"]), inner, inner)
        | st.builds("{}({})".format, st.sampled_from(["abs", "-", "+"]), inner)
    ),
    max_leaves=6,
)
COMPARISONS = st.builds("{} {} {}".format, ARITHMETIC, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), ARITHMETIC)
RELATIONS = st.recursive(
    COMPARISONS | st.builds("0 <= {} < {}".format, ARITHMETIC, ARITHMETIC),
    lambda inner: (
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=3,
)
SYMBOLS = {"s0": "x.size(0)", "s1": "x.stride(1)", "s2": "y"}


@CHECKS
@given(RELATIONS, st.integers(0, 6), st.integers(1, 6), st.integers(-3, 9) | st.just(2**63) | st.booleans())
def test_relations(relation: str, rows: int, columns: int, number: int) -> None:
    facts = SizeFacts(symbols=SYMBOLS, facts=(SizeFact(relation),))
    tensor = facts_of(torch.zeros(1, 1), shape=(None, None), strides=(None, None))
    check = both([TensorGuard(X, tensor)], facts)
    t = torch.zeros(rows, 6)[:, :columns]
    values = {"s0": t.size(0), "s1": t.stride(1), "s2": number}
    try:
        expected = bool(eval(relation, {}, values))
    except ArithmeticError:
        expected = False
    assert check(t, number) is expected


def test_sizes_are_read_past_python_only_behind_a_guard_on_the_tensor() -> None:
    class Sized:
        def size(self, dim: int) -> int:
            return 4

    check = both([], SizeFacts(symbols={"s0": "x.size(0)"}, facts=(SizeFact("s0 == 4"),)))
    assert check(Sized()) and check(torch.zeros(4)) and not check(torch.zeros(3)) and not check(None)


def test_relations_in_floats_are_checked_in_python() -> None:
    facts = SizeFacts(symbols={"s2": "y"}, facts=(SizeFact("math.sqrt(s2) == 3.0"), SizeFact("s2 / 2 > 4")))
    check = both([], facts)
    assert check(0, 9) and not check(0, 16)


def test_lengths_numbers_and_items_from_the_end_are_read() -> None:
    symbols = {"k0": "len(x)", "k1": "y", "s0": "x[-1].size(0)"}
    facts = SizeFacts(symbols=symbols, facts=(SizeFact("k0 <= k1"), SizeFact("s0 == k0")))
    check = both([GradModeGuard(True), TypeGuard(X, list)], facts)  # the first has a constant of its own in text
    assert check([0, torch.zeros(2)], 2) and check([0, 1, torch.zeros(3)], 9)
    assert not check([0, torch.zeros(3)], 2) and not check([0, torch.zeros(2)], 1)
    assert not check([], 2) and not check((0, torch.zeros(2)), 2)


# ---- errors and lifetime ---------------------------------------------------------------------------------------


def test_an_exception_fails_a_guard_and_an_interrupt_passes_through() -> None:
    def fail(error: BaseException) -> None:
        raise error

    guards = build_guards([ConstantGuard(ItemSource(X, "n"), 1)], native=True)
    check = guards.frame_check(f.__code__)
    key = Asked("n")
    x = {key: 0, "n": 1}
    key.then = lambda: fail(ValueError())
    assert check.check(x, None) is False
    key.then = lambda: fail(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        check.check(x, None)
    assert sys.exc_info() == (None, None, None)


def test_a_wrong_number_of_values_is_an_error() -> None:
    check, _ = build_guards([], native=True).frame_check(f.__code__)
    with pytest.raises(TypeError, match="takes 2 positional"):
        check(1)


def test_a_guard_may_drop_itself_while_it_runs() -> None:
    checks: list[Any] = []

    def drop() -> None:
        checks.clear()
        gc.collect()

    records = [ConstantGuard(ItemSource(X, "n"), 1), LengthGuard(Y, 0)]
    checks.append(build_guards(records, native=True).frame_check(f.__code__).check)
    key = Asked("n")
    x = {key: 0, "n": 1}
    key.then = drop
    assert checks[0](x, ()) and not checks


def test_a_cycle_through_a_check_is_collected() -> None:
    class Node(list[Any]):
        pass

    held: list[Any] = [Node()]  # lists can't be held weakly
    alive = weakref.ref(held[0])
    check = build_guards([IdentityGuard(X, held)], native=True).frame_check(f.__code__).check
    held.append(check)
    del held, check
    gc.collect()
    assert alive() is None


@CHECKS
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6), st.integers(1, 3)), min_size=2, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4),
    st.booleans(),
)
def test_overlaps_of_many_tensors(
    slices: list[tuple[int, int, int]], pairs: list[tuple[int, int]], known: bool
) -> None:
    """One check for all pairs answers as each pair by itself; slices of one buffer may or may not overlap."""
    buffer = torch.zeros(64)
    tensors = [buffer[start : start + step * n : step] if n else buffer[:0] for start, n, step in slices]
    sources = [ItemSource(X, number) for number in range(len(tensors))]
    pairs = [(a, b) for a, b in pairs if a != b and max(a, b) < len(tensors)]
    records = [OverlapGuard(sources[a], (sources[b],)) for a, b in pairs]
    if known:
        records += [TensorGuard(s, facts_of(t)) for s, t in zip(sources, tensors)]
    assert both(records)(tensors) is all(is_apart(tensors[a], [tensors[b]]) for a, b in pairs)


def test_arrays_by_the_tensor_on_their_memory() -> None:
    array = np.zeros((2, 3), np.float32)
    facts = facts_of(torch.from_numpy(array))
    check = both([TypeGuard(X, np.ndarray), TensorGuard(ArraySource(X), facts)])
    assert check(array) and check(np.ones((2, 3), np.float32))
    read_only = array.copy()
    read_only.flags.writeable = False
    others = [
        array[::-1],
        array.T,
        array.astype(">f4"),
        array.astype(np.float64),
        array[:1],
        read_only,
        torch.zeros(2, 3),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in [*others, np.ma.masked_array(array), array.astype(object), torch.zeros(2, 3), None, 3]:
            assert not check(other)


def test_c_has_two_types_of_64_bits() -> None:
    array = np.zeros(2, np.dtype("q" if np.dtype("q") is not np.dtype("int64") else "l"))
    assert array.dtype == np.int64
    check = both([TensorGuard(ArraySource(X), facts_of(torch.zeros(2, dtype=torch.int64)))])
    assert not check(array) and check(array.astype(np.int64))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_of_numpy(kind: type) -> None:
    values = [kind(0.0), kind(-0.0), kind("nan"), kind(1.5), kind("inf")]
    for value in values:
        check = both([ConstantGuard(X, value)])
        assert [check(other) for other in values] == [other is value for other in values]
        assert not check(float(value))


def test_what_a_weak_reference_refers_to() -> None:
    class Thing:
        value = 3

    thing = Thing()
    check = both([ConstantGuard(AttributeSource(ReferentSource(X), "value"), 3)])
    assert check(weakref.ref(thing)) and not check(thing) and not check(None)
    thing.value = 4
    assert not check(weakref.ref(thing))
    gone = weakref.ref(thing)
    del thing
    gc.collect()
    assert gone() is None and not check(gone)


def test_objects_are_held_weakly() -> None:
    thing = Slots()
    alive = weakref.ref(thing)
    check = both(
        [
            IdentityGuard(X, thing),
            NotIdentityGuard(Y, thing),
            TypeGuard(TypeSource(X), type),
        ]
    )
    assert check(thing, 1) and not check(thing, thing)
    del thing
    gc.collect()
    assert alive() is None and not check(None)


def test_many_registers_and_threads() -> None:
    values = [list(range(200)) for _ in range(4)]
    records = [ConstantGuard(ItemSource(X, i), i) for i in range(200)]
    check = build_guards(records, native=True).frame_check(f.__code__).check
    assert check.n_operations == 400
    answers: list[set[bool]] = [set() for _ in values]

    def work(i: int) -> None:
        for n in range(300):
            values[i][n % 200] = -1
            answers[i].add(check(values[i], None))
            values[i][n % 200] = n % 200
            assert check(values[i], None)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [{False}] * 4


def test_what_failed_is_tried_first() -> None:
    asked: list[int] = []
    keys = {Asked(n, functools.partial(asked.append, n)): 0 for n in range(3)}
    records = [ConstantGuard(ItemSource(X, n), 1) for n in range(3)]
    check, _ = build_guards(records, native=True).frame_check(f.__code__)
    good, bad = {**keys, 0: 1, 1: 1, 2: 1}, {**keys, 0: 1, 1: 1, 2: 2}
    asked.clear()
    assert not check(bad, None) and asked == [0, 1, 2]
    asked.clear()
    assert not check(bad, None) and asked == [2]
    assert check(good, None)


# ---- building and choosing -------------------------------------------------------------------------------------


def test_the_native_check_is_there_and_agrees_with_torch() -> None:
    found = native.extension()
    assert found is not None and abi.disagreement(found) == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("deterministic", [(False, False), (True, False), (True, True)])
def test_state_of_the_process(dtype: torch.dtype, deterministic: tuple[bool, bool]) -> None:
    found = native.extension()
    try:
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic[0], warn_only=deterministic[1])
        assert abi.disagreement(found) == ""
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_without_the_extension_python_checks_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    native.extension.cache_clear()
    monkeypatch.setitem(sys.modules, "intarsia_guards._native", None)
    try:
        with caplog.at_level(logging.WARNING, "intarsia.guards"):
            for _ in range(2):
                check, _ = build_guards([LengthGuard(X, 2)]).frame_check(f.__code__)
        assert isinstance(check, types.FunctionType) and check([1, 2], None) and not check([1], None)
        assert len(caplog.records) == 1 and "python -m intarsia_guards.build" in caplog.text
        with pytest.raises(InvalidArgumentError, match="isn't there"):
            build_guards([], native=True)
    finally:
        native.extension.cache_clear()


def test_loading_is_unseen_by_modes_and_needs_no_special_state() -> None:
    """The first guards may be built anywhere: under modes of the user, another default device, in inference mode."""
    calls: list[Any] = []

    class Functions(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func)
            return func(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func)
            return func(*args, **(kwargs or {}))

    native.extension.cache_clear()
    native._dtype_number.cache_clear()
    with torch.device("meta"), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), Functions(), Operations():
        calls.clear()
        found = native.extension()
        number = native._dtype_number(torch.int8)
        seen = list(calls)
    assert found is not None and number == 1 and seen == []


def test_a_torch_without_a_symbol_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(abi._SYMBOLS["libc10.so"], "grad_mode", "_ZN3c108NoSuchThingEv")
    with pytest.raises(LookupError, match="NoSuchThing"):
        abi.addresses()


def test_building_in_a_folder(tmp_path: Path) -> None:
    made = build.build_in_place(folder=tmp_path)
    text = f"import importlib.util as u; s = u.spec_from_file_location('_native', {str(made)!r})"
    subprocess.run(
        [sys.executable, "-c", f"{text}; m = u.module_from_spec(s); s.loader.exec_module(m); m.OPERATIONS"], check=True
    )


def test_keys_with_code_of_their_own_may_drop_what_was_fetched() -> None:
    """A look-up compares keys, and that can run anything: what was fetched before must stay alive."""

    class Key:
        def __hash__(self) -> int:
            return hash("b")

        def __eq__(self, other: object) -> bool:
            outer["inner"] = {}
            return False

    outer: dict[str, Any] = {}
    outer["inner"] = {"list": {Key(): 0, "b": 1}}
    path = ItemSource(ItemSource(X, "inner"), "list")
    records = [ConstantGuard(ItemSource(path, "b"), 1), LengthGuard(path, 2)]
    assert build_guards(records, native=True).frame_check(f.__code__).check(outer, None)
    assert outer == {"inner": {}}
