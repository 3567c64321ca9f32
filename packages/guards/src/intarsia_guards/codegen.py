"""Writing the predicate: one Python function for all guards of an entry, straight-line, returning at the first failure.

Terms: the *layout* of a predicate is its parameters (the frame's arguments, its free variables, then its globals when a
guard needs them). Every source is fetched once, into a variable, at its first use. Guards are ordered by how deep their
source is, so that an object is checked before anything is fetched from it, and among equals by cost.

Attributes of modules are read past `__getattr__`: where a guard before has fixed the exact class of an object, and
that class is a `torch.nn.Module` with the usual attribute lookup and has no class attribute of the name, the value lies
in the instance's dictionary or in the parameters, buffers or submodules in it.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from intarsia_guards import lookup, meaning
from intarsia_guards.held import Held, release
from intarsia_guards.relations import SizeTexts
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.observers import observer_keys
from intarsia_ir.records import (
    AnswerSource,
    ArgumentSource,
    ArraySource,
    AttributeSource,
    CellSource,
    DictItemSource,
    GlobalSource,
    GuardKind,
    ItemSource,
    ModuleSource,
    PlainAttributeSource,
    ReferentSource,
    Source,
    TensorFacts,
    TypeSource,
)

__all__ = [
    "SET_BY_MODULE",
    "HeldGuard",
    "Layout",
    "Predicate",
    "class_named",
    "lengths_of",
    "looks_up_as_module",
    "numbered",
    "order",
    "write",
]


@dataclass(frozen=True, slots=True)
class HeldGuard:
    """A guard record whose value is held as `held.hold` does.

    Args:
        kind: Which check.
        source: Where the value is fetched; None for ambient state.
        value: As in the record; objects are `Held`.
        origin: User line.
        reason: As in the record.
    """

    kind: GuardKind
    source: Source | None
    value: Any
    origin: Any = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The values that a predicate is called with, in order: arguments, free variables, and globals where wanted."""

    arguments: tuple[str, ...]
    cells: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Predicate:
    """A generated predicate.

    Args:
        function: Takes the values of its layout, and globals last when `wants_globals`.
        wants_globals: Whether a guard looks at a global.
        text: Its source, to read.
    """

    function: Callable[..., bool]
    wants_globals: bool
    text: str


_COST = {
    kind: cost
    for cost, kind in enumerate(
        [
            GuardKind.TYPE,
            GuardKind.IDENTITY,
            GuardKind.NOT_IDENTITY,
            GuardKind.CONSTANT,
            GuardKind.COMPARISON,
            GuardKind.SUBCLASS,
            GuardKind.LENGTH,
            GuardKind.CODE,
            GuardKind.TENSOR,
            GuardKind.DICT_KEYS,
            GuardKind.HAS_ATTRIBUTE,
            GuardKind.ABSENT,
            GuardKind.GRAD_MODE,
            GuardKind.INFERENCE_MODE,
            GuardKind.DEFAULT_DTYPE,
            GuardKind.DETERMINISTIC,
            GuardKind.AUTOCAST,
            GuardKind.TORCH_MODES,
            GuardKind.HANDLING,
            GuardKind.ALIASING,
            GuardKind.DISTINCT,
            GuardKind.SIZE,
            GuardKind.OVERLAP,
        ]
    )
}


def order(guards: Sequence[HeldGuard]) -> tuple[HeldGuard, ...]:
    """Return the guards in the order in which they are checked."""
    depths: dict[int, int] = {}

    def rank(guard: HeldGuard) -> tuple[int, int]:
        others = guard.value if guard.kind in (GuardKind.OVERLAP, GuardKind.DISTINCT) else ()
        if guard.kind is GuardKind.ALIASING:
            others = guard.value[:1]
        elif isinstance(guard.value, Source):
            others = (guard.value,)
        depth = max(1, *(_depth(source, depths) for source in (guard.source, *others)))
        # sizes speak about tensors anywhere: every tensor has been checked before them
        return (depth if guard.kind is not GuardKind.SIZE else 1_000_000), _COST[guard.kind]

    return tuple(sorted(guards, key=rank))


def _depth(source: Source | None, known: dict[int, int]) -> int:
    """Return how many sources there are from `source` to the outermost object; `known`: by identity."""
    new: list[Source] = []
    while source is not None and id(source) not in known:
        new.append(source)
        source = getattr(source, "base", None)
    depth = known[id(source)] if source is not None else 0
    for above in reversed(new):
        depth = known[id(above)] = depth + 1
    return depth


def write(guards: Sequence[HeldGuard], sizes: SizeTexts, layout: Layout) -> Predicate:
    """Return the predicate of `guards` (in order) and size relations for a layout.

    Raises:
        InvalidArgumentError: A source names an argument or free variable that the layout lacks.
    """
    writer = _Writer(layout)
    for guard in guards:
        if guard.kind is not GuardKind.OVERLAP:
            writer.guard(guard)
    writer.apart([guard for guard in guards if guard.kind is GuardKind.OVERLAP], guards)
    writer.sizes(sizes)
    return writer.finish()


def numbered(guards: Sequence[HeldGuard]) -> tuple[dict[Source, int], list[tuple[int, tuple[int, ...]]]]:
    """Return the tensors that guards against overlaps speak of, numbered, and the pairs in these numbers."""
    numbers: dict[Source, int] = {}
    pairs: list[tuple[int, tuple[int, ...]]] = []
    for guard in guards:
        assert guard.source is not None
        first, *others = [numbers.setdefault(source, len(numbers)) for source in (guard.source, *guard.value)]
        pairs.append((first, tuple(others)))
    return numbers, pairs


def lengths_of(sources: Iterable[Source], guards: Sequence[HeldGuard]) -> tuple[int | None, ...]:
    """Return how many bytes each tensor spans, where its guard tells."""
    lengths = {guard.source: meaning.bytes_of(guard.value) for guard in guards if guard.kind is GuardKind.TENSOR}
    return tuple(lengths.get(source) for source in sources)


@dataclass(slots=True)
class _Writer:
    layout: Layout
    lines: list[str] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    variables: dict[Source, str] = field(default_factory=dict)
    classes: dict[Source, Any] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    wants_globals: bool = False

    def finish(self) -> Predicate:
        parameters = [f"a{i}" for i in range(len(self.layout.arguments))]
        parameters += [f"f{i}" for i in range(len(self.layout.cells))]
        parameters += ["g"] if self.wants_globals else []
        body = self.lines or ["pass"]
        text = "\n".join([f"def guard({', '.join(parameters)}):", "    try:", *(f"        {line}" for line in body)])
        text += "\n    except Exception:\n        return False\n    return True\n"
        space = dict(self.constants)
        exec(compile(text, "<intarsia guard>", "exec"), space)
        return Predicate(space["guard"], self.wants_globals, text)

    # ---- values ----------------------------------------------------------------------------------------------

    def constant(self, value: Any) -> str:
        """Return a name for an object."""
        for name, constant in self.constants.items():
            if constant is value:
                return name
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def held(self, value: Any) -> tuple[str, bool]:
        """Return the text of a held value, and whether it may be dead."""
        if not isinstance(value, Held):
            value = Held(lambda: value, value)
        if value.reference is not None:
            return f"{self.constant(value.reference)}()", True
        plain = value.value is None or value.value is True or value.value is False
        return (repr(value.value) if plain else self.constant(value.value)), False

    def fetch(self, source: Source) -> str:
        """Return the variable that holds what `source` names, after the lines that fetch it."""
        if source in self.variables:
            return self.variables[source]
        match source:
            case ArgumentSource(name=name):
                return self._parameter("a", name, self.layout.arguments)
            case CellSource(name=name):
                return self._parameter("f", name, self.layout.cells)
            case GlobalSource(name=name):
                variable = self._assign(source, None)
                self._global(variable, name)
            case ModuleSource(name=name):
                self._assign(source, f"{self.constant(sys.modules)}[{name!r}]")
            case AttributeSource(base=base, name=name):
                self._attribute(source, self.fetch(base), base, name)
            case ItemSource(base=base, key=key):
                self._item(source, self.fetch(base), self._key(key))
            case DictItemSource(base=base, key=key):
                self._assign(source, f"{self.constant(lookup.dict_item)}({self.fetch(base)}, {self._key(key)})")
            case PlainAttributeSource(base=base, name=name):
                self._assign(source, f"{self.constant(lookup.plain_attribute)}({self.fetch(base)}, {name!r})")
            case TypeSource(base=base):
                self._assign(source, f"type({self.fetch(base)})")
            case ArraySource(base=base):
                self._assign(source, f"{self.constant(lookup.array_tensor)}({self.fetch(base)})")
            case AnswerSource(base=base):
                self._assign(source, f"{self.fetch(base)}()")
            case ReferentSource(base=base):
                self._assign(source, f"{self.constant(lookup.referent)}({self.fetch(base)})")
            case _:
                raise InvalidArgumentError(f"{source!r} is no source that guards know", code="guards.source")
        return self.variables[source]

    def _parameter(self, letter: str, name: str, names: tuple[str, ...]) -> str:
        if name not in names:
            what = "parameter" if letter == "a" else "free variable"
            raise InvalidArgumentError(
                f"a guard looks at the {what} {name!r}; the function has {', '.join(names) or 'none'}",
                code="guards.source",
            )
        return f"{letter}{names.index(name)}"

    def _assign(self, source: Source, text: str | None) -> str:
        variable = f"v{len(self.variables)}"
        self.variables[source] = variable
        if text is not None:
            self.lines.append(f"{variable} = {text}")
        return variable

    def _key(self, key: Any) -> str:
        return repr(key) if type(key) in (str, int) else self.constant(key)

    def _global(self, variable: str, name: str) -> None:
        self.wants_globals = True
        space = self.constant(vars(builtins))
        self.lines.append(f"{variable} = g[{name!r}] if {name!r} in g else {space}[{name!r}]")

    def _item(self, source: Source, owner: str, key: str) -> None:
        plain = f"{owner}[{key}] if type({owner}) in (dict, list, tuple)"
        self._assign(source, f"{plain} else {self.constant(lookup.item)}({owner}, {key})")

    def _attribute(self, source: Source, owner: str, base: Source, name: str) -> None:
        plain = f"{self.constant(lookup.attribute)}({owner}, {name!r})"
        cls = self.classes.get(base)
        if cls is None or not looks_up_as_module(cls, name):
            self._assign(source, plain)
            return
        space = self._space(base, owner)
        if name in SET_BY_MODULE:
            self._assign(source, f"{space}[{name!r}]")
            return
        variable = self._assign(source, None)
        self.lines += [
            f"if {name!r} in {space}: {variable} = {space}[{name!r}]",
            f"elif {name!r} in {space}['_parameters']: {variable} = {space}['_parameters'][{name!r}]",
            f"elif {name!r} in {space}['_buffers']: {variable} = {space}['_buffers'][{name!r}]",
            f"else: {variable} = {space}['_modules'][{name!r}]",
        ]

    def _space(self, base: Source, owner: str) -> str:
        """Return the variable that holds the instance dictionary of `owner`."""
        return self.fetch(AttributeSource(base, "__dict__")) if base in self.classes else f"{owner}.__dict__"

    def require(self, condition: str) -> None:
        """Add a check that must hold, unless it's there already."""
        if condition not in self.required:
            self.required.add(condition)
            self.lines.append(f"if not ({condition}): return False")

    # ---- guards ----------------------------------------------------------------------------------------------

    def guard(self, guard: HeldGuard) -> None:
        """Add the check of one guard."""
        if guard.kind is GuardKind.SIZE:
            return  # its relation is among those of `sizes`
        if guard.source is None:
            self._ambient(guard)
            return
        v = self.fetch(guard.source)
        match guard.kind:
            case GuardKind.TYPE:
                expected, _ = self.held(guard.value)
                self.require(f"type({v}) is {expected}")
                self.classes[guard.source] = guard.value.get() if isinstance(guard.value, Held) else guard.value
            case GuardKind.IDENTITY:
                self._identity(v, guard.value)
            case GuardKind.NOT_IDENTITY:
                expected, may_die = self.held(guard.value)
                self.require(f"{v} is not {expected} or {v} is None" if may_die else f"{v} is not {expected}")
            case GuardKind.CONSTANT:
                self._constant(v, guard.value)
            case GuardKind.COMPARISON:
                op, number, holds = guard.value
                self.require(f"type({v}) in (int, float) and ({v} {op} {self.constant(number)}) is {holds}")
            case GuardKind.SUBCLASS:
                self.require(f"{self._slow(guard.kind, guard.value)}({v})")
            case GuardKind.LENGTH:
                self.require(f"{self.constant(lookup.length)}({v}) == {guard.value}")
            case GuardKind.CODE:
                expected, _ = self.held(guard.value)
                self.require(f"{self.constant(lookup.code_of)}({v}) is {expected} and {expected} is not None")
            case GuardKind.TENSOR:
                self._tensor(v, guard.value)
            case GuardKind.DICT_KEYS:
                self._dict_keys(v, guard.value)
            case GuardKind.HAS_ATTRIBUTE:
                name, present = guard.value
                self.require(f"{self.constant(lookup.has_attribute)}({v}, {name!r}) is {present}")
            case GuardKind.ABSENT if isinstance(guard.value, Source):
                self.require(f"{self.constant(lookup.lacks)}({v}, {self.fetch(guard.value)})")
            case GuardKind.ABSENT:
                self._absent(v, guard.value)
            case GuardKind.DISTINCT:
                values = ", ".join([v, *map(self.fetch, guard.value)])
                self.require(f"{self.constant(meaning.are_distinct)}({values})")
            case GuardKind.ALIASING:
                other, same = guard.value
                self.require(f"({v} is {self.fetch(other)}) is {same}")
            case _:
                raise InvalidArgumentError(f"{guard.kind} with a source", code="guards.kind")

    def apart(self, overlaps: Sequence[HeldGuard], guards: Sequence[HeldGuard]) -> None:
        """Add one check for all guards against overlaps."""
        if overlaps:
            numbers, pairs = numbered(overlaps)
            check = self.constant(meaning.all_apart(pairs, lengths_of(numbers, guards)))
            self.require(f"{check}({', '.join(map(self.fetch, numbers))})")

    def _identity(self, v: str, value: Any) -> None:
        expected, may_die = self.held(value)
        # a dead reference gives None, which is a value that a program can have
        self.require(f"{v} is {expected} and {v} is not None" if may_die else f"{v} is {expected}")

    def _constant(self, v: str, value: Any) -> None:
        expected = value.get() if isinstance(value, Held) else value
        kind = type(expected)
        if expected is None or kind is bool:
            self.require(f"{v} is {expected!r}")
        elif kind in (int, str, bytes):
            self.require(f"type({v}) is {kind.__name__} and {v} == {expected!r}")
        elif kind is float and math.isfinite(expected) and expected != 0.0:
            self.require(f"type({v}) is float and {v} == {expected!r}")
        else:
            text, may_die = self.held(value)
            same = f"{self.constant(meaning.same_constant)}({v}, {text})"
            self.require(f"{text} is not None and {same}" if may_die else same)

    def _dict_keys(self, v: str, keys: tuple[Any, ...]) -> None:
        self.require(f"{self._slow(GuardKind.DICT_KEYS, keys)}({v})")

    def _absent(self, v: str, value: Any) -> None:
        key, may_die = self.held(value)
        slow = self._slow(GuardKind.ABSENT, value)
        self.require(f"{slow}({v})" if may_die else f"{key} not in {v} if type({v}) is dict else {slow}({v})")

    def _slow(self, kind: GuardKind, value: Any) -> str:
        """Return the name of a check by the function that says what the kind means."""

        def check(actual: Any) -> bool:
            return meaning.holds(kind, release(value), actual, meaning.NO_FRAME)

        return self.constant(check)

    def _tensor(self, v: str, facts: TensorFacts) -> None:
        cls = class_named(facts.type_name)
        if cls is None:
            self.require(f"{self.constant(meaning.type_name)}(type({v})) == {facts.type_name!r}")
        else:
            self.require(f"type({v}) is {self.constant(cls)}")
        checks = [f"{v}.dtype is {self.constant(facts.dtype)}", *self._dims(f"{v}.shape", facts.shape)]
        checks += self._dims(f"{v}.stride()", facts.strides)
        kind, index = facts.device
        if kind == "cpu":
            checks += [f"{v}.is_cpu"]
        else:
            device = torch.device(kind) if index is None else torch.device(kind, index)
            checks += [f"{v}.device == {self.constant(device)}"]
        checks.append(f"{v}.requires_grad is {facts.requires_grad}")
        if facts.is_leaf is not None:
            checks.append(f"{v}.is_leaf is {facts.is_leaf}")
        if facts.dispatch_keys is not None:
            checks.append(f"{self.constant(torch._C._dispatch_keys)}({v}).raw_repr() == {facts.dispatch_keys}")
        self.require(" and ".join(checks))

    def _dims(self, text: str, wanted: tuple[int | None, ...]) -> list[str]:
        """Conditions on sizes or strides: one comparison when all are known."""
        if None not in wanted:
            return [f"{text} == {wanted!r}"]
        checks = [f"len({text}) == {len(wanted)}"]
        return checks + [f"{text}[{i}] == {n}" for i, n in enumerate(wanted) if n is not None]

    def _ambient(self, guard: HeldGuard) -> None:
        match guard.kind:
            case GuardKind.GRAD_MODE:
                self.require(f"{self.constant(torch.is_grad_enabled)}() is {guard.value}")
            case GuardKind.INFERENCE_MODE:
                self.require(f"{self.constant(torch.is_inference_mode_enabled)}() is {guard.value}")
            case GuardKind.DEFAULT_DTYPE:
                expected, _ = self.held(guard.value)
                self.require(f"{self.constant(torch.get_default_dtype)}() is {expected}")
            case GuardKind.DETERMINISTIC:
                self.require(f"{self.constant(meaning.deterministic_state)}() == {guard.value!r}")
            case GuardKind.TORCH_MODES:
                self._modes(guard.value)
            case GuardKind.HANDLING:
                self.require(f"{self.constant(meaning.is_handling)}() is {guard.value}")
            case GuardKind.AUTOCAST:
                self._autocast(guard.value)
            case _:
                raise InvalidArgumentError(f"{guard.kind} without a source", code="guards.kind")

    def _modes(self, value: tuple[Any, ...]) -> None:
        self.require(f"{self.constant(torch._C._len_torch_function_stack)}() == {len(value)}")
        self.require(f"{self.constant(torch._C._len_torch_dispatch_stack)}() == 0")
        self.require(f"not {self.constant(observer_keys)}()")
        if value:
            expected = "".join(self.held(item)[0] + ", " for item in value)
            self.require(f"{self.constant(meaning.torch_function_modes)}() == ({expected})")

    def _autocast(self, value: tuple[Any, ...]) -> None:
        enabled, dtype = self.constant(torch.is_autocast_enabled), self.constant(torch.get_autocast_dtype)
        for item in value:
            if not isinstance(item, tuple):
                self.require(f"{self.constant(torch.is_autocast_cache_enabled)}() is {item}")
                continue
            device, on, name = item
            self.require(f"{enabled}({device!r}) is {on}")
            self.require(f"{dtype}({device!r}) is {self.constant(meaning.autocast_dtype(name))}")

    # ---- sizes -----------------------------------------------------------------------------------------------

    def sizes(self, sizes: SizeTexts) -> None:
        """Add the definitions of size symbols and the relations over them."""
        for name, text in sizes.definitions(self.fetch):
            self.lines.append(f"{name} = {text}")
        for relation in sizes.relations:
            self.require(relation)
        if sizes.uses_math:
            self.constants["math"] = math


# what every module has in its instance dictionary; when it's missing there, the guard fails
SET_BY_MODULE = frozenset(vars(torch.nn.Module()))


def looks_up_as_module(cls: Any, name: str) -> bool:
    """Whether an attribute of an instance that isn't in its dictionary comes from `torch.nn.Module.__getattr__`."""
    module = torch.nn.Module
    return (
        isinstance(cls, type)
        and issubclass(cls, module)
        and cls.__getattr__ is module.__getattr__
        and cls.__getattribute__ is object.__getattribute__
        and not any(name in vars(parent) for parent in cls.__mro__)
    )


def class_named(name: str) -> type | None:
    """Return the tensor class with a name, for the classes that torch brings."""
    for cls in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        if meaning.type_name(cls) == name:
            return cls
    return None
