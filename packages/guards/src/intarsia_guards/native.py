"""Guards as operations of the native check: the same order and meaning as the Python predicate of codegen.py.

Which operations check a guard is the native form of its row. Registers hold the values of the frame, then what is
fetched; each source is fetched once. What has no operation of its own (constants that are containers, overlaps in
memory, torch function modes that are on) is a call of a Python function among the operations, so every set of guards
has a native check.
"""

from __future__ import annotations

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
from collections.abc import Callable, Sequence
from typing import Any

import torch

from intarsia_guards import abi, lookup
from intarsia_guards.held import Held
from intarsia_guards.kinds.tensors import HeldTensor, class_named
from intarsia_guards.layout import SET_BY_MODULE, Layout, apart_check, looks_up_as_module, position
from intarsia_guards.relations import SizeTexts
from intarsia_guards.rows import HeldGuard
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
    ItemSource,
    LengthSource,
    ModuleSource,
    PlainAttributeSource,
    ReferentSource,
    Source,
    TypeSource,
)

__all__ = ["NativeWriter", "assemble", "extension"]

_log = logging.getLogger("intarsia.guards")
_ANY_INDEX = -2


@functools.cache
def extension() -> types.ModuleType | None:
    """Return the extension, bound to torch; None where it isn't built or doesn't fit, which is logged once."""
    try:
        native = importlib.import_module("intarsia_guards._native")
        native.bind(abi.addresses())
        native.look_up(lookup.attribute, lookup.item)
        if "NAMESPACE" not in native.OPERATIONS:
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


def assemble(native: Any, guards: Sequence[HeldGuard[Any]], layout: Layout) -> tuple[Any, bool]:
    """Return the native check of `guards` (in order) for a layout, and whether it wants globals.

    Args:
        native: The extension.
        guards: What must hold.
        layout: The values that the check is called with.

    Raises:
        InvalidArgumentError: A source names an argument or free variable that the layout lacks.
    """
    writer = NativeWriter(native, layout)
    # a tensor's exact class is checked with the rest of it
    tensors = [guard for guard in guards if isinstance(guard, HeldTensor)]
    writer.tensor_types = {(guard.source, class_named(guard.facts.type_name)) for guard in tensors}
    for guard in guards:
        guard.native(writer)
    if writer.apart:
        check, sources = apart_check(writer.apart, guards)
        writer.call(check, *map(writer.fetch, sources))
    writer.add_sizes()
    return writer.finish()


class NativeWriter:
    """What rows write their native form into.

    Registers are numbers; globals, when wanted, come after arguments and free variables. `classes` has the exact
    classes that guards before have fixed, `tensors` what they have found to be tensors, `tensor_types` the classes that
    guards on tensors will check; `apart` and `sizes` collect what is checked at once, at the end.
    """

    def __init__(self, native: Any, layout: Layout) -> None:
        self.extension, self.layout = native, layout
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
        self.tensor_types: set[tuple[Source, Any]] = set()
        self.checked: set[tuple[Any, ...]] = set()
        self.apart: list[tuple[Source, ...]] = []
        self.sizes = SizeTexts()

    def finish(self) -> tuple[Any, bool]:
        """Return the check, and whether it wants globals."""
        # without globals their register is never read, and comes first of those that are fetched into
        n_values = self.globals + self.wants_globals
        return self.extension.Check(n_values, self.n_registers, self.rows), self.wants_globals

    # ---- operations ------------------------------------------------------------------------------------------

    def _fetch(self, name: str, read: int, number: int = -1, object: Any = None) -> int:
        out = self.n_registers
        self.n_registers += 1
        self.rows.append((self.codes[name], out, read, number, object, None))
        return out

    def check(self, name: str, read: int, number: int = 0, object: Any = None, more: Any = None, out: int = -1) -> None:
        """Add an operation that checks something, unless it's there; `native.h` says what operations take."""
        key = (name, read, number, id(object), more, out)
        if key in self.checked:
            return
        self.checked.add(key)
        self.rows.append((self.codes[name], out, read, number, object, more))

    def held(self, name: str, v: int, value: Held[Any], number: int = 0) -> None:
        """Add a check by identity, with a weak reference or with the object itself."""
        if value.reference is not None:
            self.check(f"{name}_WEAK", v, number, value.reference)
        else:
            self.check(name, v, number, value.value)

    def call(self, function: Callable[..., Any], *registers: int) -> None:
        """Add a call of a Python function, which must return True."""
        self.check("CALL", -1, 0, function, registers)

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
                return position("parameter", name, self.layout.arguments)
            case CellSource(name=name):
                return len(self.layout.arguments) + position("free variable", name, self.layout.cells)
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
            case LengthSource(base=base):
                return self._fetch("CALLED", self.fetch(base), -1, lookup.length)
            case ArraySource(base=base):
                return self._fetch("CALLED", self.fetch(base), -1, lookup.array_tensor)
            case AnswerSource(base=base):
                return self._fetch("CALLED", self.fetch(base), -1, operator.call)
            case ReferentSource(base=base):
                return self._fetch("REFERENT", self.fetch(base))
        raise InvalidArgumentError(f"{source!r} is no source that guards know", code="guards.source")

    def item(self, source: Source) -> tuple[int, str] | None:
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

    def _attribute(self, base: Source, name: str) -> int:
        owner = self.fetch(base)
        cls = self.classes.get(base)
        if name == "__dict__" and cls is not None and _has_usual_dict(cls):
            return self._fetch("SPACE", owner)
        if cls is None or not looks_up_as_module(cls, name):
            return self._fetch("ATTRIBUTE", owner, -1, name)
        space = self.fetch(AttributeSource(base, "__dict__"))
        return self._fetch("ITEM" if name in SET_BY_MODULE else "MODULE_ATTRIBUTE", space, -1, name)

    # ---- numbers of torch ------------------------------------------------------------------------------------

    def device(self, kind: str, index: int | None) -> tuple[int, int] | None:
        """Return torch's numbers for a device; None when they can't be told."""
        number = _device_number(kind)
        if number is None:
            return None
        # every CPU is the CPU; other devices count as equal when their indices are
        return number, _ANY_INDEX if kind == "cpu" else -1 if index is None else index

    @property
    def sees_versions(self) -> bool:
        """Whether the extension knows where a tensor counts its writes."""
        return _sees_versions()

    def dtype(self, dtype: torch.dtype) -> int:
        """Return torch's number for an element type."""
        return _dtype_number(dtype)

    # ---- sizes -----------------------------------------------------------------------------------------------

    def add_sizes(self) -> None:
        """Add the relations over sizes: native code where all are integer arithmetic, else a Python function."""
        sizes = self.sizes
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
        read_int = self.extension.READ_INT
        native_code = size_code(self.extension.SIZE_OPERATIONS, read_int, definitions, sizes.relations)
        reads, code = native_code or ((), ())
        pairs = list(zip(reads[::2], reads[1::2]))
        # a size is read past Python's attributes only where a guard before has checked that it's a tensor
        safe = all(how == read_int or sources[value] in self.tensors for value, how in pairs)
        if native_code is None or not safe:
            self.call(function, *registers)
        else:
            self.check("SIZES", -1, 0, function, (registers, reads, code))


def _has_usual_dict(cls: type) -> bool:
    """Whether `__dict__` of an instance is its dictionary, and not what a class of the user, or the thread, says."""
    if issubclass(cls, threading.local):
        return False
    for parent in cls.__mro__:
        if "__dict__" in vars(parent):
            return isinstance(vars(parent)["__dict__"], types.GetSetDescriptorType)
    return False


@functools.cache
def _sees_versions() -> bool:
    return bool(abi.addresses()["count"])


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
