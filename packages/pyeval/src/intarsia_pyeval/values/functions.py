"""Python functions, their cells and globals, and what is bound to them."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Hashable, Sequence
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from intarsia_ir.errors import InternalError
from intarsia_ir.records import GuardKind, Source
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.trust import STABLE, is_trusted
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import is_none
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import InstanceDict, attribute_key
from intarsia_pyeval.values.sequences import Tuple
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.sources import Guards
    from intarsia_pyeval.tracer import Tracer

__all__ = ["BoundMethod", "Cell", "Function", "Globals", "MadeFunction", "Partial", "PythonFunction"]


class Cell(Value):
    """The cell of a variable that functions share.

    Args:
        content: Model of the content, None when empty or not looked at.
        real: The existing cell.
        source: Where the content of an existing cell is fetched.
        frame_name: Name of the variable, when the cell belongs to the captured frame itself.
        owner: Source of the cell object itself, when it isn't a variable of the captured frame.
    """

    __slots__ = ("content", "frame_name", "known", "owner", "real")

    def __init__(
        self,
        content: Value | None = None,
        real: CellType | None = None,
        source: Source | None = None,
        frame_name: str | None = None,
        owner: Source | None = None,
    ) -> None:
        self.source = source
        self.content = content
        self.real = real
        self.known = real is None
        self.frame_name = frame_name
        self.owner = owner

    def type(self) -> Any:
        """Return the cell type."""
        return CellType

    def load(self, tx: Tracer, name: str, free: bool) -> Value:
        """Return the content."""
        if not self.known:
            self.known = True
            assert self.real is not None
            try:
                found = self.real.cell_contents
            except ValueError:
                raise Break("tracer.exception", f"the variable {name!r} has no value yet") from None
            self.content = tx.live.wrap(found, self.source)
        if self.content is None:
            if free:
                tx.raising.error(
                    NameError,
                    f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope",
                )
            tx.raising.error(
                UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value"
            )
        return self.content

    def peek(self, tx: Tracer, name: str) -> Value | None:
        """Return the content, or None when the cell is empty."""
        if self.content is None and self.known:
            return None
        return self.load(tx, name, free=True)

    def store(self, tx: Tracer, value: Value | None) -> None:
        """Set the content, or empty the cell."""
        tx.effects.changed(self)
        self.known = True
        self.content = value

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read `cell_contents`."""
        if name == "cell_contents" and (self.content is not None or not self.known):
            return self.load(tx, name, free=True)
        return super().get_attribute(tx, name)

    def reconstruct(self, out: Builder) -> None:
        """Push the cell: of the frame, of another function, or a new one."""
        if self.frame_name is not None:
            out.closure_cell(self.frame_name)
        elif self.owner is not None:
            out.load_source(self.owner)
        else:
            out.call(lambda: out.constant(CellType), [])
            out.remember(self)
            if self.content is not None:
                out.emit("COPY", 1)
                out.store_attribute("cell_contents", self.content)

    def emit_effects(self, out: Builder) -> None:
        """Store the content in an existing cell."""
        if self.frame_name is not None:
            out.store_cell(self.frame_name, self.content)
            return
        if self.real is None:
            return  # made while tracing: built in its last state
        out.load(self)
        if self.content is None:
            out.emit("DELETE_ATTR", "cell_contents")
        else:
            out.store_attribute("cell_contents", self.content)


class Globals(Dict):
    """A module's namespace. That of the captured frame is read and changed as its globals.

    Functions, classes and modules in the namespace of a trusted module aren't guarded, other values are.
    """

    __slots__ = ("builtins", "frame", "trusted")

    def __init__(self, real: dict[str, Any], source: Source | None, frame: bool) -> None:
        super().__init__(source=source, real=real)
        self.frame = frame
        self.trusted = not frame and is_trusted(real.get("__name__"))
        self.checked = True  # names are strings
        self.builtins: dict[str, Value] = {}  # what was found behind the namespace

    def item_source(self, tx: Tracer, key: Hashable) -> Source | None:
        """Return where the value of a name is found."""
        if self.trusted and isinstance(self.real.get(key), STABLE):
            return None
        return tx.sources.glob(str(key)) if self.frame else super().item_source(tx, key)

    def guard_absent(self, tx: Tracer, key: Hashable) -> None:
        """Builtins of the captured frame are guarded through its globals; elsewhere rely on absence."""
        if not self.frame and not self.trusted:
            super().guard_absent(tx, key)

    def emit_effects(self, out: Builder) -> None:
        """Store and delete names."""
        if not self.frame:
            super().emit_effects(out)
            return
        for first, key, value in self._log.values():
            name = key.as_python()
            if value is not None:
                out.load(value)
                out.emit("STORE_GLOBAL", name)
            elif first:
                out.emit("DELETE_GLOBAL", name)


class PythonFunction(Value):
    """What an existing function and one made while tracing have in common: both can be inlined."""

    __slots__ = ()

    code: CodeType

    def type(self) -> Any:
        """Return the function type."""
        return FunctionType

    def truth(self, tx: Tracer) -> bool:
        """Functions are true."""
        return True

    def global_names(self, tx: Tracer) -> Globals:
        """Return the namespace."""
        raise InternalError(f"{type(self).__name__} must define this", code="tracer.abstract")

    def positional_defaults(self, tx: Tracer) -> Sequence[Value]:
        """Return the defaults of the last positional parameters."""
        raise InternalError(f"{type(self).__name__} must define this", code="tracer.abstract")

    def keyword_default(self, tx: Tracer, name: str) -> Value | None:
        """Return the default of a keyword-only parameter."""
        raise InternalError(f"{type(self).__name__} must define this", code="tracer.abstract")

    def cells(self, tx: Tracer) -> Sequence[Cell]:
        """Return the cells of the free variables."""
        raise InternalError(f"{type(self).__name__} must define this", code="tracer.abstract")

    def trusted(self) -> bool:
        """Tell whether the function belongs to a library that nobody patches."""
        return False

    def call(self, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        """Evaluate the body."""
        return tx.inline(self, args, keywords)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Bind to an instance."""
        if name != "__get__":
            return super().call_method(tx, name, args, keywords)
        owner, *_ = arity("__get__", args, keywords, 1, 2)
        if not is_none(owner):
            return BoundMethod(self, owner)
        raise Break("tracer.call", f"{self.describe()} is bound to None")  # gives the function, or raises

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Functions are equal when they are the same."""
        return tx.compare_identity(op, self, other)


class Function(PythonFunction):
    """A function that existed before the call."""

    __slots__ = ("attributes", "closure", "code", "value")

    def __init__(self, value: FunctionType, source: Source | None = None) -> None:
        self.source = source
        self.value = value
        self.code = value.__code__
        self.closure: Sequence[Cell] | None = None
        self.attributes: dict[str, Value] = {}

    def identity(self) -> object | None:
        """Return the function."""
        return self.value

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"function {self.value.__module__}.{self.value.__qualname__}"

    def hash_key(self, tx: Tracer) -> Hashable:
        """Functions hash by identity."""
        self.guard_identity(tx.guards)
        return self.value

    def trusted(self) -> bool:
        """Tell by the module of the function."""
        return is_trusted(self.value.__module__)

    def guard_identity(self, guards: Guards) -> None:
        """Rely on its being this very object."""
        if self.source is not None:
            guards.add(GuardKind.IDENTITY, self.source, self.value)

    def guard_code(self, guards: Guards) -> None:
        """Rely on its body."""
        if self.source is not None and not self.trusted():
            guards.add(GuardKind.CODE, self.source, self.code)

    def global_names(self, tx: Tracer) -> Globals:
        """Return the namespace."""
        source = None if self.source is None else tx.sources.attribute(self.source, "__globals__")
        return tx.live.namespace(self.value.__globals__, source)

    def positional_defaults(self, tx: Tracer) -> Sequence[Value]:
        """Return the defaults, guarded unless the function is trusted."""
        values = self.value.__defaults__ or ()
        source = self.source_of("__defaults__", tx)
        return [tx.live.wrap(v, None if source is None else tx.sources.item(source, i)) for i, v in enumerate(values)]

    def keyword_default(self, tx: Tracer, name: str) -> Value | None:
        """Return the default, guarded unless the function is trusted."""
        values = self.value.__kwdefaults__ or {}
        if name not in values:
            return None
        source = self.source_of("__kwdefaults__", tx)
        return tx.live.wrap(values[name], None if source is None else tx.sources.item(source, name))

    def source_of(self, name: str, tx: Tracer) -> Source | None:
        """Return the source of an attribute of the function; None when the function is trusted."""
        return None if self.source is None or self.trusted() else tx.sources.attribute(self.source, name)

    def cells(self, tx: Tracer) -> Sequence[Cell]:
        """Return the cells, one model for each real cell."""
        if self.closure is None:
            source = None if self.source is None else tx.sources.attribute(self.source, "__closure__")
            found = []
            for index, real in enumerate(self.value.__closure__ or ()):
                owner = None if source is None else tx.sources.item(source, index)
                found.append(tx.live.cell(real, owner))
            self.closure = found
        return self.closure

    def call(self, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        """Let the plug-in take the call, or evaluate the body."""
        return tx.call_function(self, args, keywords)

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read an attribute of the function."""
        if name in self.attributes:
            return self.attributes[name]
        return tx.function_attribute(self, name)

    def reconstruct(self, out: Builder) -> None:
        """Push the function as a constant."""
        out.constant(self.value)


class MadeFunction(PythonFunction):
    """A function that the traced code made."""

    __slots__ = ("_globals", "annotations", "attributes", "closure", "code", "defaults", "keyword_defaults")

    def __init__(self, code: CodeType, names: Globals) -> None:
        self.source = None
        self.code = code
        self._globals = names
        self.defaults: Sequence[Value] = ()
        self.keyword_defaults: Dict | None = None
        self.annotations: Value | None = None
        self.closure: Sequence[Cell] = ()
        self.attributes: dict[str, Value] = {}

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"function {self.code.co_qualname}"

    def hash_key(self, tx: Tracer) -> Hashable:
        """The model stands for the function."""
        return self

    def global_names(self, tx: Tracer) -> Globals:
        """Return the namespace."""
        return self._globals

    def positional_defaults(self, tx: Tracer) -> Sequence[Value]:
        """Return the defaults."""
        return self.defaults

    def keyword_default(self, tx: Tracer, name: str) -> Value | None:
        """Return the default."""
        return None if self.keyword_defaults is None else self.keyword_defaults.find(tx, name)

    def cells(self, tx: Tracer) -> Sequence[Cell]:
        """Return the cells."""
        return self.closure

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read an attribute."""
        if name in self.attributes:
            return self.attributes[name]
        if name in ("__name__", "__qualname__"):
            return tx.live.from_python(self.code.co_name if name == "__name__" else self.code.co_qualname)
        if name == "__doc__":
            has = self.code.co_consts and isinstance(self.code.co_consts[0], str)
            return tx.live.from_python(self.code.co_consts[0] if has else None)
        if name == "__code__":
            return tx.live.wrap(self.code, None)
        if name == "__module__":
            return tx.live.from_python(self._globals.real.get("__name__") if self._globals.real else None)
        if name == "__defaults__":
            return Tuple(self.defaults) if self.defaults else tx.live.from_python(None)
        if name == "__dict__":
            return FunctionDict(self)
        if name == "__type_params__" and name in _SLOTS:
            return Tuple()  # making a generic function isn't modelled
        if name == "__get__":
            return BoundBuiltin(self, name)
        if name == "__annotations__":
            found = self.attributes[name] = self._annotations(tx)
            return found
        if not hasattr(FunctionType, name):
            tx.raising.error(AttributeError, f"'function' object has no attribute {name!r}")
        return super().get_attribute(tx, name)

    def _annotations(self, tx: Tracer) -> Value:
        """Return the annotations as a dict: they are given as alternating names and values."""
        if self.annotations is None:
            return Dict()
        flat = tx.unpack(self.annotations)
        return Dict({name.as_python(): (name, value) for name, value in zip(flat[::2], flat[1::2], strict=True)})

    def set_attribute(self, tx: Tracer, name: str, value: Value) -> None:
        """Set an attribute; those that change what the function does break."""
        if name in ("__code__", "__defaults__", "__kwdefaults__", "__dict__"):
            super().set_attribute(tx, name, value)
        tx.effects.advanced()
        self.attributes[name] = value

    def delete_attribute(self, tx: Tracer, name: str) -> None:
        """Delete an attribute that was set."""
        if name not in self.attributes:
            super().delete_attribute(tx, name)
        tx.effects.advanced()
        del self.attributes[name]

    def reconstruct(self, out: Builder) -> None:
        """Make the function."""
        if not self._globals.frame:
            raise Unreconstructable(f"{self.describe()} was made with the globals of another module")
        out.make_function(self)
        if self.attributes:
            out.remember(self)
        for name, value in self.attributes.items():
            out.emit("COPY", 1)
            out.store_attribute(name, value)


def _is_slot(name: str) -> bool:
    """Tell whether functions keep an attribute outside of their dict."""
    return name in _SLOTS


_SLOTS = {"__name__", "__qualname__", "__doc__", "__module__", "__annotations__"}
_SLOTS |= {"__type_params__"} if sys.version_info >= (3, 12) else set()


class FunctionDict(InstanceDict):
    """The attributes of a function that the traced code made."""

    __slots__ = ()

    def read(self, tx: Tracer, key: Value) -> Value | None:
        """Return an attribute, or None."""
        name = attribute_key(key)
        return None if _is_slot(name) else self.owner.attributes.get(name)

    def write(self, tx: Tracer, key: Value, value: Value | None) -> None:
        """Set an attribute, or delete it."""
        name = attribute_key(key)
        if _is_slot(name):
            raise Break("tracer.mutation", f"{name!r} is set in the dict of a function")
        if value is None:
            self.owner.delete_attribute(tx, name)
        else:
            self.owner.set_attribute(tx, name, value)

    def whole(self, tx: Tracer) -> Value:
        """Return all attributes as a dict of their own."""
        plain: dict[Hashable, tuple[Value, Value]] = {
            k: (tx.live.from_python(k), v) for k, v in self.owner.attributes.items() if not _is_slot(k)
        }
        return Dict(plain)


class BoundMethod(Value):
    """A function bound to its first argument."""

    __slots__ = ("function", "owner")
    shared = False

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        self.source = source
        self.function = function
        self.owner = owner

    def type(self) -> Any:
        """Return the method type."""
        return types.MethodType

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"method {self.function.describe()}"

    def truth(self, tx: Tracer) -> bool:
        """Methods are true."""
        return True

    def hash_key(self, tx: Tracer) -> Hashable:
        """Equal function and owner make equal methods."""
        return BoundMethod, self.function.hash_key(tx), self.owner.hash_key(tx)

    def call(self, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call the function with the owner first."""
        return tx.call(self.function, [self.owner, *args], keywords)

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read an attribute of the function, or of the method itself."""
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        return self.function.get_attribute(tx, name)

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Methods are equal when function and owner are the same."""
        if op not in ("==", "!=") or not isinstance(other, BoundMethod):
            return None
        equal = tx.same(self.function, other.function) and tx.same(self.owner, other.owner)
        return tx.live.from_python(equal is (op == "=="))

    def reconstruct(self, out: Builder) -> None:
        """Bind the function again."""
        out.call(
            lambda: out.constant(types.MethodType), [lambda: out.load(self.function), lambda: out.load(self.owner)]
        )


class Partial(Value):
    """A `functools.partial` object."""

    __slots__ = ("args", "function", "keywords", "real")

    def __init__(
        self,
        function: Value,
        args: Sequence[Value],
        keywords: Keywords,
        source: Source | None = None,
        real: Any = None,
    ) -> None:
        self.source = source
        self.function = function
        self.args = tuple(args)
        self.keywords = dict(keywords)
        self.real = real

    def type(self) -> Any:
        """Return functools.partial."""
        return functools.partial

    def identity(self) -> object | None:
        """Return the existing object."""
        found: object | None = self.real
        return found

    def truth(self, tx: Tracer) -> bool:
        """Partial objects are true."""
        return True

    def call(self, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call the function with the arguments put together."""
        return tx.call(self.function, [*self.args, *args], {**self.keywords, **keywords})

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read a part."""
        if name == "func":
            return self.function
        if name == "args":
            return Tuple(self.args)
        if name == "keywords":
            return Dict({k: (tx.live.from_python(k), v) for k, v in self.keywords.items()})
        if self.real is None and not hasattr(functools.partial, name):
            tx.raising.error(AttributeError, f"'functools.partial' object has no attribute {name!r}")
        return super().get_attribute(tx, name)

    def reconstruct(self, out: Builder) -> None:
        """Make the object."""
        out.call_with_keywords(functools.partial, [self.function, *self.args], self.keywords)
