"""Guards as operations of the native check: the same order and meaning as the Python predicate of codegen.py.

Registers hold the values of the frame, then what is fetched; each source is fetched once. What has no operation of its
own (constants that are containers, overlaps in memory, torch function modes that are on) is a call of a Python function
among the operations, so every set of guards has a native check.
"""

from __future__ import annotations

import abc
import builtins
import ctypes
import functools
import importlib
import logging
import operator
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from intarsia_guards import abi, lookup, meaning
from intarsia_guards.codegen import (
    SET_BY_MODULE,
    HeldGuard,
    Layout,
    class_named,
    lengths_of,
    looks_up_as_module,
    numbered,
)
from intarsia_guards.held import Held, release
from intarsia_guards.relations import SizeTexts
from intarsia_guards.size_code import size_code, size_function
from intarsia_ir.errors import InvalidArgumentError
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

__all__ = ["assemble", "extension"]

_log = logging.getLogger("intarsia.guards")
_ANY_INDEX = -2


@functools.cache
def extension() -> types.ModuleType | None:
    """Return the extension, bound to torch; None where it isn't built or doesn't fit, which is logged once."""
    try:
        native = importlib.import_module("intarsia_guards._native")
        native.bind(abi.addresses())
        native.look_up(lookup.attribute, lookup.item)
        if "CALLED" not in native.OPERATIONS:
            raise AttributeError("OPERATIONS")
        problem = abi.disagreement(native)
    except ImportError:
        problem = "the extension isn't built; run `python -m intarsia_guards.build` once (it needs a C compiler)"
    except AttributeError:
        problem = "the extension is of another version; run `python -m intarsia_guards.build` again"
    except (LookupError, OSError) as error:
        problem = str(error)
    if problem:
        _log.warning("guards are checked in Python, which takes about ten times as long: %s", problem)
        return None
    return native


def assemble(native: Any, guards: Sequence[HeldGuard], sizes: SizeTexts, layout: Layout) -> tuple[Any, bool]:
    """Return the native check of `guards` (in order) and size relations for a layout, and whether it wants globals.

    Args:
        native: The extension.
        guards: What must hold.
        sizes: Size relations.
        layout: The values that the check is called with.

    Raises:
        InvalidArgumentError: A source names an argument or free variable that the layout lacks.
    """
    writer = _Writer(native, layout)
    # a tensor's exact class is checked with the rest of it
    tensors = [guard for guard in guards if guard.kind is GuardKind.TENSOR]
    writer.tensor_types = {(guard.source, class_named(guard.value.type_name)) for guard in tensors}
    for guard in guards:
        if guard.kind is not GuardKind.OVERLAP:
            writer.guard(guard)
    writer.apart([guard for guard in guards if guard.kind is GuardKind.OVERLAP], guards)
    writer.sizes(sizes)
    return writer.finish()


class _Writer:
    """Writes operations. Registers are numbers; globals, when wanted, come after arguments and free variables."""

    def __init__(self, native: Any, layout: Layout) -> None:
        self.native, self.layout = native, layout
        self.codes: dict[str, int] = native.OPERATIONS
        self.rows: list[tuple[Any, ...]] = []
        self.globals = len(layout.arguments) + len(layout.cells)
        self.n_registers = self.globals + 1
        self.registers: dict[Source, int] = {}
        self.by_identity: dict[int, int] = {}
        self.fetched: list[Source] = []  # kept alive, so that no identity is used twice
        self.constants: dict[int, tuple[int, Any]] = {}
        self.classes: dict[Source, Any] = {}
        self.wants_globals = False
        self.tensors: set[Source] = set()
        self.tensor_types: set[tuple[Source | None, Any]] = set()
        self.checked: set[tuple[Any, ...]] = set()

    def finish(self) -> tuple[Any, bool]:
        # without globals their register is never read, and comes first of those that are fetched into
        n_values = self.globals + self.wants_globals
        return self.native.Check(n_values, self.n_registers, self.rows), self.wants_globals

    # ---- operations ------------------------------------------------------------------------------------------

    def _fetch(self, name: str, read: int, number: int = -1, object: Any = None) -> int:
        out = self.n_registers
        self.n_registers += 1
        self.rows.append((self.codes[name], out, read, number, object, None))
        return out

    def _check(
        self, name: str, read: int, number: int = 0, object: Any = None, more: Any = None, out: int = -1
    ) -> None:
        key = (name, read, number, id(object), more, out)
        if key in self.checked:
            return
        self.checked.add(key)
        self.rows.append((self.codes[name], out, read, number, object, more))

    def _call(self, function: Callable[..., Any], *registers: int) -> None:
        self._check("CALL", -1, 0, function, registers)

    def _constant_register(self, value: Any) -> int:
        if id(value) not in self.constants:
            self.constants[id(value)] = (self._fetch("CONST", -1, -1, value), value)
        return self.constants[id(value)][0]

    # ---- values ----------------------------------------------------------------------------------------------

    def fetch(self, source: Source) -> int:
        """Return the register that holds what `source` names, after the operations that fetch it."""
        # guards share the objects that sources are made of; comparing sources by value takes ten times as long
        register = self.by_identity.get(id(source))
        if register is None:
            register = self.registers.get(source)
            if register is None:
                register = self.registers[source] = self._fetched(source)
            self.by_identity[id(source)] = register
            self.fetched.append(source)
        return register

    def _fetched(self, source: Source) -> int:
        match source:
            case ArgumentSource(name=name):
                return self._parameter("parameter", name, self.layout.arguments, 0)
            case CellSource(name=name):
                return self._parameter("free variable", name, self.layout.cells, len(self.layout.arguments))
            case GlobalSource(name=name):
                self.wants_globals = True
                return self._fetch("GLOBAL", self.globals, self._constant_register(vars(builtins)), name)
            case ModuleSource(name=name):
                return self._fetch("ITEM", self._constant_register(sys.modules), -1, name)
            case AttributeSource(base=base, name=name):
                return self._attribute(base, name)
            case ItemSource(base=base, key=key):
                number = key if type(key) is int and 0 <= key < 2**31 else -1
                return self._fetch("ITEM", self.fetch(base), number, key)
            case DictItemSource(base=base, key=key):
                return self._fetch("DICT_ITEM", self.fetch(base), -1, key)
            case PlainAttributeSource(base=base, name="__dict__"):
                cls = self.classes.get(base)
                if cls is not None and _has_usual_dict(cls):
                    return self._fetch("SPACE", self.fetch(base))
                return self._fetch("PLAIN_ATTRIBUTE", self.fetch(base), -1, "__dict__")
            case PlainAttributeSource(base=base, name=name):
                return self._fetch("PLAIN_ATTRIBUTE", self.fetch(base), -1, name)
            case TypeSource(base=base):
                return self._fetch("TYPE_OF", self.fetch(base))
            case ArraySource(base=base):
                return self._fetch("CALLED", self.fetch(base), -1, lookup.array_tensor)
            case AnswerSource(base=base):
                return self._fetch("CALLED", self.fetch(base), -1, operator.call)
            case ReferentSource(base=base):
                return self._fetch("REFERENT", self.fetch(base))
        raise InvalidArgumentError(f"{source!r} is no source that guards know", code="guards.source")

    def _item(self, source: Source) -> tuple[int, str] | None:
        """Return the register and key when a source that has no register yet is an item under a string."""
        if source in self.registers:
            return None
        match source:
            case ItemSource(base=base, key=str(key)):
                return self.fetch(base), sys.intern(key)
            case AttributeSource(base=base, name=name) if name in SET_BY_MODULE:
                self.fetch(base)
                cls = self.classes.get(base)
                if cls is not None and looks_up_as_module(cls, name):
                    return self.fetch(AttributeSource(base, "__dict__")), sys.intern(name)
        return None

    def _parameter(self, what: str, name: str, names: tuple[str, ...], start: int) -> int:
        if name not in names:
            raise InvalidArgumentError(
                f"a guard looks at the {what} {name!r}; the function has {', '.join(names) or 'none'}",
                code="guards.source",
            )
        return start + names.index(name)

    def _attribute(self, base: Source, name: str) -> int:
        owner = self.fetch(base)
        cls = self.classes.get(base)
        if name == "__dict__" and cls is not None and _has_usual_dict(cls):
            return self._fetch("SPACE", owner)
        if cls is None or not looks_up_as_module(cls, name):
            return self._fetch("ATTRIBUTE", owner, -1, name)
        space = self.fetch(AttributeSource(base, "__dict__"))
        return self._fetch("ITEM" if name in SET_BY_MODULE else "MODULE_ATTRIBUTE", space, -1, name)

    # ---- guards ----------------------------------------------------------------------------------------------

    def guard(self, guard: HeldGuard) -> None:
        """Add the check of one guard."""
        if guard.kind is GuardKind.SIZE:
            return  # its relation is among those of `sizes`
        if guard.source is None:
            self._ambient(guard)
            return
        value = guard.value
        if guard.kind is GuardKind.LENGTH and 0 <= value < 2**31 and (item := self._item(guard.source)):
            self._check("ITEM_LENGTH", item[0], value, item[1])
            return
        v = self.fetch(guard.source)
        match guard.kind:
            case GuardKind.TYPE:
                if (guard.source, release(value)) not in self.tensor_types:
                    self._held("TYPE", v, value)
                self.classes[guard.source] = value.get() if isinstance(value, Held) else value
            case GuardKind.IDENTITY:
                self._held("IS", v, value)
            case GuardKind.NOT_IDENTITY:
                self._held("IS_NOT", v, value)
            case GuardKind.CODE:
                self._held("CODE", v, value)
            case GuardKind.CONSTANT:
                self._constant(v, value)
            case GuardKind.SUBCLASS:
                self._subclass(v, *value)
            case GuardKind.LENGTH if 0 <= value < 2**31:
                self._check("LENGTH", v, value)
            case GuardKind.TENSOR:
                self._tensor(v, guard.source, value)
            case GuardKind.DICT_KEYS if all(isinstance(key, Held) and type(key.value) is str for key in value):
                names = tuple(sys.intern(key.value) for key in value)
                self._check("KEYS", v, 0, (names, _slow(guard.kind, value)))
            case GuardKind.HAS_ATTRIBUTE:
                self._check("HAS", v, int(value[1]), value[0])
            case GuardKind.ABSENT if isinstance(value, Held) and type(value.value) is str:
                self._check("LACKS", v, 0, (sys.intern(value.value), _slow(guard.kind, value)))
            case GuardKind.ABSENT if isinstance(value, Source):
                self._call(lookup.lacks, v, self.fetch(value))
            case GuardKind.DISTINCT:
                self._call(meaning.are_distinct, v, *map(self.fetch, value))
            case GuardKind.ALIASING:
                self._check("SAME", v, int(value[1]), out=self.fetch(value[0]))
            case GuardKind.LENGTH | GuardKind.DICT_KEYS | GuardKind.ABSENT | GuardKind.COMPARISON:
                self._call(_slow(guard.kind, value), v)
            case _:
                raise InvalidArgumentError(f"{guard.kind} with a source", code="guards.kind")

    def apart(self, overlaps: Sequence[HeldGuard], guards: Sequence[HeldGuard]) -> None:
        """Add one check for all guards against overlaps: each by itself would take the square of the time."""
        if overlaps:
            numbers, pairs = numbered(overlaps)
            self._call(meaning.all_apart(pairs, lengths_of(numbers, guards)), *map(self.fetch, numbers))

    def _held(self, name: str, v: int, value: Any) -> None:
        """Add a check by identity, with a weak reference or with the object itself."""
        if isinstance(value, Held) and value.reference is not None:
            self._check(f"{name}_WEAK", v, 0, value.reference)
        else:
            self._check(name, v, 0, value.value if isinstance(value, Held) else value)

    def _constant(self, v: int, value: Any) -> None:
        expected = value.value if isinstance(value, Held) else value
        if isinstance(value, Held) and value.reference is not None:
            self._call(_slow(GuardKind.CONSTANT, value), v)
        elif expected is None or type(expected) is bool:
            self._check("IS", v, 0, expected)
        elif type(expected) in (int, str, bytes):
            self._check("EQUAL", v, 0, expected)
        elif type(expected) is float:
            self._check("FLOAT", v, 0, expected)
        else:
            self._call(_slow(GuardKind.CONSTANT, value), v)

    def _subclass(self, v: int, held: Held, expected: bool) -> None:
        cls = release(held)
        if not expected and isinstance(cls, abc.ABCMeta):
            self._call(_never_registered(held), v)
        elif held.reference is not None:
            self._check("SUBCLASS_WEAK", v, int(expected), held.reference)
        else:
            self._check("SUBCLASS", v, int(expected), held.value)

    def _tensor(self, v: int, source: Source, facts: TensorFacts) -> None:
        cls = class_named(facts.type_name)
        device = self._device(*facts.device)
        if cls is None or device is None or len(facts.shape) != len(facts.strides) or len(facts.shape) > 64:
            self._call(_slow(GuardKind.TENSOR, facts), v)
            return
        want = (
            _dtype_number(facts.dtype),
            *device,
            facts.requires_grad,
            facts.dispatch_keys,
            facts.shape,
            facts.strides,
        )
        self._check("TENSOR", v, 0, cls, want)
        self.tensors.add(source)
        if facts.is_leaf is not None:
            self._check("IS", self.fetch(AttributeSource(source, "is_leaf")), 0, facts.is_leaf)

    def _device(self, kind: str, index: int | None) -> tuple[int, int] | None:
        """Return torch's numbers for a device; None when they can't be told."""
        number = _device_number(kind)
        if number is None:
            return None
        # every CPU is the CPU; other devices count as equal when their indices are
        return number, _ANY_INDEX if kind == "cpu" else -1 if index is None else index

    # ---- what isn't a value ----------------------------------------------------------------------------------

    def _ambient(self, guard: HeldGuard) -> None:
        value = guard.value
        match guard.kind:
            case GuardKind.GRAD_MODE | GuardKind.INFERENCE_MODE | GuardKind.HANDLING:
                self._check(guard.kind.name, -1, int(value))
            case GuardKind.DEFAULT_DTYPE:
                self._check("DEFAULT_DTYPE", -1, _dtype_number(release(value)))
            case GuardKind.DETERMINISTIC:
                self._check("DETERMINISTIC", -1, value[0] + 2 * value[1])
            case GuardKind.TORCH_MODES if not value:
                self._check("NO_MODES", -1)
            case GuardKind.TORCH_MODES:
                self._call(lambda: meaning.torch_function_modes() == release(value))
            case GuardKind.AUTOCAST:
                self._autocast(value)
            case _:
                raise InvalidArgumentError(f"{guard.kind} without a source", code="guards.kind")

    def _autocast(self, value: tuple[Any, ...]) -> None:
        for item in value:
            if not isinstance(item, tuple):
                self._check("AUTOCAST_CACHE", -1, int(item))
                continue
            device, on, name = item
            number, dtype = _device_number(device), meaning.autocast_dtype(name)
            if number is None:
                self._call(functools.partial(_autocast_is, device, on, dtype))
            else:
                self._check("AUTOCAST", -1, on + 2 * _dtype_number(dtype), out=number)

    # ---- sizes -----------------------------------------------------------------------------------------------

    def sizes(self, sizes: SizeTexts) -> None:
        """Add the relations over sizes: native code where all are integer arithmetic, else a Python function."""
        if not sizes.relations:
            return
        sources: list[Source] = []

        def name(source: Source) -> str:
            if source not in sources:
                sources.append(source)
            return f"v{sources.index(source)}"

        definitions = list(sizes.definitions(name))
        registers = tuple(self.fetch(source) for source in sources)
        function = size_function(len(sources), definitions, sizes.relations)
        read_int = self.native.READ_INT
        native_code = size_code(self.native.SIZE_OPERATIONS, read_int, definitions, sizes.relations)
        reads, code = native_code or ((), ())
        pairs = list(zip(reads[::2], reads[1::2]))
        # a size is read past Python's attributes only where a guard before has checked that it's a tensor
        safe = all(how == read_int or sources[value] in self.tensors for value, how in pairs)
        if native_code is None or not safe:
            self._call(function, *registers)
        else:
            self._check("SIZES", -1, 0, function, (registers, reads, code))


def _slow(kind: GuardKind, value: Any) -> Callable[[Any], bool]:
    """Return a check by the function that says what the kind means."""
    return lambda actual: meaning.holds(kind, release(value), actual, meaning.NO_FRAME)


def _never_registered(held: Held) -> Callable[[Any], bool]:
    """Return a check that a class isn't one of an abstract class; asked again when a class was registered anywhere."""
    answered: tuple[Callable[[], Any], object] | None = None

    def check(actual: Any) -> bool:
        nonlocal answered
        token = abc.get_cache_token()
        if answered is not None and answered[0]() is actual and answered[1] == token:
            return True
        if not meaning.holds(GuardKind.SUBCLASS, (release(held), False), actual, meaning.NO_FRAME):
            return False
        answered = weakref.ref(actual), token
        return True

    return check


def _autocast_is(device: str, on: bool, dtype: torch.dtype) -> bool:
    return torch.is_autocast_enabled(device) is on and torch.get_autocast_dtype(device) is dtype


def _has_usual_dict(cls: type) -> bool:
    """Whether `__dict__` of an instance is its dictionary, and not what a class of the user, or the thread, says."""
    if issubclass(cls, threading.local):
        return False
    for parent in cls.__mro__:
        if "__dict__" in vars(parent):
            return isinstance(vars(parent)["__dict__"], types.GetSetDescriptorType)
    return False


@functools.cache
def _dtype_number(dtype: torch.dtype) -> int:
    native = extension()
    assert native is not None  # it is what asks
    with abi.quietly():
        return int(native.tensor_facts(torch.empty(0, dtype=dtype, device="meta"))[0])


@functools.cache
def _device_number(kind: str) -> int | None:
    """Return torch's number of a kind of device; None for those that its C interface doesn't name."""
    library = ctypes.CDLL(os.path.join(torch.__path__[0], "lib", "libtorch_cpu.so"))
    number_of = getattr(library, f"aoti_torch_device_type_{kind}", None)
    return None if number_of is None else int(number_of())
