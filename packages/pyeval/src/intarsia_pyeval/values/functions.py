"""Python functions, their cells and globals, and what is bound to them."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from intarsia_ir.guards import CodeGuard, IdentityGuard
from intarsia_ir.records import Source
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import InstanceDict

if TYPE_CHECKING:
    from intarsia_pyeval.sources import Guards, Sources

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


class PythonFunction(Value):
    """What an existing function and one made while tracing have in common: both can be inlined."""

    __slots__ = ()

    code: CodeType

    def type(self) -> Any:
        """Return the function type."""
        return FunctionType

    def trusted(self) -> bool:
        """Tell whether the function belongs to a library that nobody patches."""
        return False


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

    def trusted(self) -> bool:
        """Tell by the module of the function."""
        return is_trusted(self.value.__module__)

    def guard_identity(self, guards: Guards) -> None:
        """Rely on its being this very object."""
        if self.source is not None:
            guards.add(IdentityGuard, self.source, self.value)

    def guard_code(self, guards: Guards) -> None:
        """Rely on its body."""
        if self.source is not None and not self.trusted():
            guards.add(CodeGuard, self.source, self.code)

    def source_of(self, name: str, sources: Sources) -> Source | None:
        """Return the source of an attribute of the function; None when the function is trusted."""
        return None if self.source is None or self.trusted() else sources.attribute(self.source, name)


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


class FunctionDict(InstanceDict):
    """The attributes of a function that the traced code made."""

    __slots__ = ()


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
        real: object | None = self.real
        return real
