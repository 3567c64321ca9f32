"""What can be seen of a program: values, layouts, who is whom, side effects, output, exceptions; and the comparison."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["Observation", "difference", "observe"]

_EXACT = (bool, int, str, bytes, type(None), torch.dtype, torch.Size, type, torch.device, type(...), range, complex)
_NUMBER = re.compile(r"-?\d+\.\d*(?:e[-+]?\d+)?|-?\d+e[-+]?\d+|nan|-?inf")


@dataclass(slots=True)
class Observation:
    """Everything reachable from some roots, as lines, with the numbers apart.

    Args:
        lines: One for each object met: where, what it is, and the number it was given, so that two names of one
            object, or two views of one storage, read differently from two objects.
        numbers: Where -> float, or copy of a tensor.
        printed: The output.
    """

    lines: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    printed: str = ""


def observe(roots: Mapping[str, Any], printed: str = "") -> Observation:
    """Return what can be seen from named roots."""
    walker = _Walker()
    for name, value in roots.items():
        walker.walk(name, value)
    walker.seen.printed = printed
    return walker.seen


def difference(got: Observation, wanted: Observation, *, exact: bool) -> str:
    """Return the first thing that differs, in words; "" when nothing does.

    Args:
        got: Of the compiled run.
        wanted: Of the run in eager.
        exact: Whether floats must agree in every bit; else by the defaults of `torch.testing.assert_close`.
    """
    for a, e in zip(got.lines, wanted.lines):
        if a != e:
            return f"{a!r} instead of {e!r}"
    if len(got.lines) != len(wanted.lines):
        more = (got.lines if len(got.lines) > len(wanted.lines) else wanted.lines)[
            min(len(got.lines), len(wanted.lines))
        ]
        return f"{len(got.lines)} objects instead of {len(wanted.lines)}; first: {more!r}"
    for where, e in wanted.numbers.items():
        found = _number_difference(got.numbers[where], e, exact)
        if found:
            return f"{where}: {found}"
    if not _same_text(got.printed, wanted.printed, exact):
        return f"printed {got.printed!r} instead of {wanted.printed!r}"
    return ""


def _number_difference(got: Any, wanted: Any, exact: bool) -> str:
    if isinstance(wanted, float):
        got, wanted = torch.tensor(got, dtype=torch.float64), torch.tensor(wanted, dtype=torch.float64)
        tolerances = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 1.3e-6, "atol": 1e-5}
    else:
        tolerances = {"rtol": 0.0, "atol": 0.0} if exact else {}
    try:
        torch.testing.assert_close(got, wanted, equal_nan=True, check_stride=False, **tolerances)
    except AssertionError as error:
        return " ".join(str(error).split()) + f"; got {got}, wanted {wanted}"
    return ""


def _same_text(got: str, wanted: str, exact: bool) -> bool:
    """Compare output; floats in it may differ in their last digits unless `exact`."""
    if got == wanted or exact:
        return got == wanted
    if _NUMBER.sub("#", got) != _NUMBER.sub("#", wanted):
        return False
    pairs = zip(map(float, _NUMBER.findall(got)), map(float, _NUMBER.findall(wanted)))
    return all(a == e or (a != a and e != e) or abs(a - e) <= 2e-4 + 1e-4 * abs(e) for a, e in pairs)


class _Walker:
    """Visits objects once, in program-independent order."""

    def __init__(self) -> None:
        self.seen = Observation()
        self.ids: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.alive: list[Any] = []

    def walk(self, where: str, value: Any) -> None:
        """Visit a value and what it holds."""
        kind = type(value).__name__
        if isinstance(value, float) and type(value) is float:
            self.seen.lines.append(f"{where}: float")
            self.seen.numbers[where] = value
        elif isinstance(value, _EXACT):
            self.seen.lines.append(f"{where}: {kind} {value!r}")
        elif id(value) in self.ids:
            self.seen.lines.append(f"{where}: the same as #{self.ids[id(value)]}")
        else:
            label = f"{where}: {kind} "
            if not isinstance(value, tuple):
                # equal tuples may be one object or two: CPython itself shares constants
                label += f"#{self.ids.setdefault(id(value), len(self.ids))} "
                self.alive.append(value)
            if isinstance(value, torch.Tensor):
                self.seen.lines.append(label + self._tensor(where, value))
                return
            self.seen.lines.append(label + _words(value))
            for name, part in _parts(value):
                self.walk(f"{where}{name}", part)

    def _tensor(self, where: str, value: torch.Tensor) -> str:
        self.seen.numbers[where] = value.detach().clone()
        storage = "empty"
        if value.numel():
            key = value.untyped_storage().data_ptr()
            storage = f"storage {self.storages.setdefault(key, len(self.storages))} + {value.storage_offset()}"
        return (
            f"{value.dtype} {tuple(value.shape)} strides {value.stride()} {storage} grad {value.requires_grad} "
            f"leaf {value.is_leaf} inference {value.is_inference()}"
        )


def _words(value: Any) -> str:
    """What there is to say of an object besides its parts."""
    match value:
        case types.FunctionType():
            return value.__qualname__
        case types.BuiltinFunctionType() | types.ModuleType():
            return str(value.__name__)
        case list() | tuple() | dict() | set() | frozenset():
            return f"of {len(value)}"
    return ""


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    """What an object holds, in an order that only the program decides."""
    match value:
        case list() | tuple():
            yield from ((f"[{n}]", item) for n, item in enumerate(value))
        case dict():
            yield from ((f".key{n}", key) for n, key in enumerate(value))
            yield from ((f"[{key!r}]" if isinstance(key, (str, int)) else f".value{n}", item)
                        for n, (key, item) in enumerate(value.items()))  # fmt: skip
        case set() | frozenset():
            yield from ((f".member{n}", item) for n, item in enumerate(sorted(value, key=repr)))
        case types.FunctionType():
            yield ".__defaults__", value.__defaults__
            yield ".__kwdefaults__", value.__kwdefaults__
            yield from (
                (f".{name}", _content(cell)) for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ())
            )
            yield ".__dict__", value.__dict__
        case types.MethodType():
            yield ".__self__", value.__self__
            yield ".__func__", value.__func__
        case functools.partial():
            yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
        case BaseException():
            yield ".args", value.args
            yield ".__cause__", type(value.__cause__)
            yield ".__context__", type(value.__context__)
            yield ".__dict__", vars(value)
        case types.ModuleType() | types.BuiltinFunctionType() | types.CodeType():
            return
        case torch.nn.Module():
            # the keys of hooks count up over the process
            yield from ((f".{name}", part) for name, part in vars(value).items() if "hooks" not in name)
        case _:
            yield from ((f".{name}", getattr(value, name)) for name in getattr(type(value), "__slots__", ())
                        if hasattr(value, name))  # fmt: skip
            if hasattr(value, "__dict__"):
                yield from ((f".{name}", part) for name, part in vars(value).items())


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "an empty cell"
