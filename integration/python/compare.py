"""Compare two object graphs: values, classes, order, memory layout, and which objects are one and the same."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["Difference", "compare"]

# things without a state of their own: equal or different, and never the same by accident
PLAIN = (
    int, bool, str, bytes, complex, type(None), range, slice, torch.dtype, torch.device, torch.layout, type, np.generic,
)  # fmt: skip
SHARED = (types.ModuleType, types.BuiltinFunctionType, type(Ellipsis))


# what torch's compilers note on tensors and modules is no effect of a program
MARKS = ("_dynamo_", "_is_torch_compile", "__overloads__")


class Difference(AssertionError):
    """Two runs differ; the message has the place."""


def compare(actual: Any, expected: Any, where: str = "result") -> None:
    """Check that two values look the same from the outside.

    Raises:
        Difference: They don't; the message names the first place.
    """
    _Comparison().values(actual, expected, where)


class _Comparison:
    """Walks both graphs in step; objects and storages seen are paired, in both directions."""

    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.keep: list[Any] = []  # no id is used twice while both are alive

    def values(self, a: Any, e: Any, where: str) -> None:
        if type(a) is not type(e) and type(a).__qualname__ != type(e).__qualname__:
            raise Difference(f"{where}: {type(a).__name__} {a!r:.200} is not {type(e).__name__} {e!r:.200}")
        if isinstance(e, float | np.floating):
            self.check(math.isclose(a, e, rel_tol=1e-5, abs_tol=1e-7) or (a != a and e != e), where, a, e)
        elif isinstance(e, type):
            self.check(a is e or a.__qualname__ == e.__qualname__, where, a, e)
        elif isinstance(e, PLAIN):
            self.check(a == e, where, a, e)
        elif isinstance(e, SHARED):
            self.check(a is e, where, a, e)
        elif isinstance(e, tuple):
            self.sequences(a, e, where)
        elif not self.seen(a, e, where):
            self.objects(a, e, where)

    def objects(self, a: Any, e: Any, where: str) -> None:
        """Compare two objects that have an identity."""
        match e:
            case torch.Tensor():
                self.tensors(a, e, where)
            case torch.Generator():
                self.check(torch.equal(a.get_state(), e.get_state()), f"{where}: state", a, e)
            case list():
                self.sequences(a, e, where)
            case dict() | types.MappingProxyType():
                self.mappings(a, e, where)
            case set() | frozenset():
                self.check(a == e, where, a, e)
            case types.FunctionType():
                self.functions(a, e, where)
            case types.MethodType():
                self.values(a.__func__, e.__func__, f"{where}.__func__")
                self.values(a.__self__, e.__self__, f"{where}.__self__")
            case functools.partial():
                self.values((a.func, a.args, a.keywords), (e.func, e.args, e.keywords), where)
            case types.CellType():
                self.cells(a, e, where)
            case Iterator():
                self.sequences(list(a), list(e), f"{where}, iterated")
            case BaseException():
                self.sequences(a.args, e.args, f"{where}.args")
                self.check(str(a) == str(e), where, a, e)
        if not isinstance(e, torch.Tensor | types.FunctionType | Iterator):
            self.attributes(a, e, where)

    def tensors(self, a: torch.Tensor, e: torch.Tensor, where: str) -> None:
        for fact in ("shape", "dtype", "device", "requires_grad", "is_leaf"):
            self.check(getattr(a, fact) == getattr(e, fact), f"{where}.{fact}", getattr(a, fact), getattr(e, fact))
        self.check(a.is_inference() == e.is_inference(), f"{where}.is_inference()", a, e)
        self.check(a.stride() == e.stride(), f"{where}.stride()", a.stride(), e.stride())
        try:
            torch.testing.assert_close(a, e, equal_nan=True)
        except AssertionError as error:
            raise Difference(f"{where}: {error}") from error
        if e.numel():
            ours, theirs = a.untyped_storage().data_ptr(), e.untyped_storage().data_ptr()
            self.check(self.storages.setdefault(theirs, ours) == ours, f"{where}: memory shared", a, e)
            self.check(self.storages.setdefault(~ours, theirs) == theirs, f"{where}: memory shared", a, e)
        self.mappings(vars(a), vars(e), f"{where}.__dict__")

    def sequences(self, a: Any, e: Any, where: str) -> None:
        self.check(len(a) == len(e), f"len({where})", a, e)
        for position, (x, y) in enumerate(zip(a, e)):
            self.values(x, y, f"{where}[{position}]")

    def mappings(self, a: Mapping[Any, Any], e: Mapping[Any, Any], where: str) -> None:
        ours, theirs = [key for key in a if not _is_mark(key)], [key for key in e if not _is_mark(key)]
        self.check(len(ours) == len(theirs), f"keys of {where}", ours, theirs)
        for x, y in zip(ours, theirs):
            self.values(x, y, f"key of {where}")
            self.values(a[x], e[y], f"{where}[{y!r}]")

    def functions(self, a: Any, e: Any, where: str) -> None:
        if a is not e:
            self.check(a.__code__ == e.__code__ or a.__qualname__ == e.__qualname__, where, a, e)
            self.sequences(a.__closure__ or (), e.__closure__ or (), f"{where}.__closure__")
            self.values(a.__defaults__, e.__defaults__, f"{where}.__defaults__")
            self.mappings(vars(a), vars(e), f"{where}.__dict__")

    def cells(self, a: types.CellType, e: types.CellType, where: str) -> None:
        try:
            content = e.cell_contents
        except ValueError:
            content = None
        if content is not None:
            self.values(a.cell_contents, content, f"{where}.cell_contents")

    def attributes(self, a: Any, e: Any, where: str) -> None:
        """Compare instance attributes, those in slots included."""
        if dataclasses.is_dataclass(e):
            names = [f.name for f in dataclasses.fields(e)]
        else:
            names = [name for kind in type(e).__mro__ for name in vars(kind).get("__slots__", ()) if name[0] != "_"]
        for name in names:
            self.check(hasattr(a, name) == hasattr(e, name), f"{where}.{name} exists", a, e)
            if hasattr(e, name):
                self.values(getattr(a, name), getattr(e, name), f"{where}.{name}")
        if hasattr(e, "__dict__"):
            self.mappings(vars(a), vars(e), where)

    def seen(self, a: Any, e: Any, where: str) -> bool:
        """Pair two objects; tell whether they were paired before."""
        known = id(e) in self.pairs
        self.check(self.pairs.setdefault(id(e), id(a)) == id(a), f"{where} is another object", a, e)
        self.check(self.pairs.setdefault(~id(a), id(e)) == id(e), f"{where} is another object", a, e)
        self.keep.append((a, e))
        return known

    @staticmethod
    def check(holds: bool, where: str, a: Any, e: Any) -> None:
        if not holds:
            raise Difference(f"{where}: {a!r:.300} is not {e!r:.300}")


def _is_mark(key: Any) -> bool:
    return isinstance(key, str) and key.startswith(MARKS)
