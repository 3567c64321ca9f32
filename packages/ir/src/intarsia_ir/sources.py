"""Where things come from: lines of the user's (`Origin`), and how to fetch a value again from a call (`Source`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from intarsia_ir.key_text import key_text

__all__ = [
    "AnswerSource",
    "ArgumentSource",
    "ArraySource",
    "AttributeSource",
    "CellSource",
    "DictItemSource",
    "GlobalSource",
    "ItemSource",
    "LengthSource",
    "ModuleSource",
    "Origin",
    "PlainAttributeSource",
    "ReferentSource",
    "SizeSource",
    "Source",
    "TypeSource",
]


@dataclass(frozen=True, slots=True)
class Origin:
    """One line of the user's program, and the operation there that a node stands for.

    Args:
        file: Path as the code object gives it.
        line: 1-based.
        function: Qualified name of the enclosing function.
        op: Name of the torch-level node, or "" when there is none.
    """

    file: str
    line: int
    function: str
    op: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True)
class Source:
    """How to fetch a value again from a call of the captured frame. Subclasses are the closed set of ways.

    A source is hashed once, and after what it is fetched from: those of nested modules are as deep as these nest.
    """

    __slots__ = ("_hash",)
    _hash: ClassVar[int]  # of each source, once it was asked for

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Source.__hash__  # type: ignore[method-assign]  # dataclasses keep what is there

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            pass
        new: list[Source] = []
        at: Source | None = self
        while at is not None and not hasattr(at, "_hash"):
            new.append(at)
            at = getattr(at, "base", None)
        for source in reversed(new):
            parts = [getattr(source, name) for name in source.__slots__]
            object.__setattr__(source, "_hash", hash((type(source).__name__, *parts)))
        return self._hash


@dataclass(frozen=True, slots=True)
class ArgumentSource(Source):
    """The parameter `name` of the captured frame, at entry (`*args` and `**kwargs` under their own names)."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class GlobalSource(Source):
    """The global (or, failing that, builtin) `name` as seen by the captured frame."""

    name: str

    def __str__(self) -> str:
        return f"globals[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class CellSource(Source):
    """The content of the free variable `name` of the captured function."""

    name: str

    def __str__(self) -> str:
        return f"cell[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class ModuleSource(Source):
    """The loaded module `name`, as in `sys.modules`: what an import statement inside of a function gives."""

    name: str

    def __str__(self) -> str:
        return f"modules[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class AttributeSource(Source):
    """`base.name`, as far as no code of the user is run for it: whether that is so is part of what is guarded."""

    base: Source
    name: str

    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


@dataclass(frozen=True, slots=True)
class PlainAttributeSource(Source):
    """`object.__getattribute__(base, name)`: the dictionary or a slot of an instance, past its class's own look-up."""

    base: Source
    name: str

    def __str__(self) -> str:
        return f"object.__getattribute__({self.base}, {self.name!r})"


@dataclass(frozen=True, slots=True)
class ItemSource(Source):
    """`base[key]` for a hashable constant key that is there: nothing is made for one that is missing."""

    base: Source
    key: Any

    def __str__(self) -> str:
        return f"{self.base}[{key_text(self.key)}]"


@dataclass(frozen=True, slots=True)
class DictItemSource(Source):
    """`dict.__getitem__(base, key)`: an entry of a subclass of dict, past the subclass's own look-up."""

    base: Source
    key: Any

    def __str__(self) -> str:
        return f"dict.__getitem__({self.base}, {key_text(self.key)})"


@dataclass(frozen=True, slots=True)
class TypeSource(Source):
    """`type(base)`."""

    base: Source

    def __str__(self) -> str:
        return f"type({self.base})"


@dataclass(frozen=True, slots=True)
class LengthSource(Source):
    """`len(base)`, of a built-in container."""

    base: Source

    def __str__(self) -> str:
        return f"len({self.base})"


@dataclass(frozen=True, slots=True)
class ReferentSource(Source):
    """`base()`: what the weak reference at `base` refers to."""

    base: Source

    def __str__(self) -> str:
        return f"{self.base}()"


@dataclass(frozen=True, slots=True)
class AnswerSource(Source):
    """`operator.call(base)`: what a function without parameters answers, one in C that changes nothing.

    A setting of a library is read so, or a context variable.
    """

    base: Source

    def __str__(self) -> str:
        return f"operator.call({self.base})"


@dataclass(frozen=True, slots=True)
class ArraySource(Source):
    """`torch.from_numpy(base)`: the tensor on the memory of the array at `base`, which is exactly a `numpy.ndarray`.

    It can be fetched where nothing warns: the array is writable, and of a type of this machine's byte order.
    """

    base: Source

    def __str__(self) -> str:
        return f"torch.from_numpy({self.base})"


@dataclass(frozen=True, slots=True)
class SizeSource(Source):
    """A number of the tensor at `base`: `base.size(dim)`, `base.stride(dim)`, or `base.storage_offset()` without `dim`.

    Args:
        base: Where the tensor is.
        kind: `"size"`, `"stride"` or `"storage_offset"`.
        dim: Dimension, counted from the front; None for the offset.
    """

    base: Source
    kind: str = "size"
    dim: int | None = 0

    def __str__(self) -> str:
        return f"{self.base}.{self.kind}({'' if self.dim is None else self.dim})"
