"""Which texts stay open: those that are made of open numbers and can't fail, whatever the numbers are."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intarsia_bytecode import info_of
from intarsia_ir.guards import TypeGuard
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.numbers import ChangingNumber
from intarsia_pyeval.values.texts import OpenText

if TYPE_CHECKING:
    from intarsia_ir.records import Source
    from intarsia_pyeval.sources import Guards
    from intarsia_pyeval.tracer import Tracer

__all__ = ["by_percent", "formatted", "given", "is_open", "joined", "opened", "separated"]


#: Any number of a type, where nobody knows it.
_SAMPLE: dict[Any, Any] = {float: 1.5, int: 3, bool: True}
#: A conversion of the operator `%`: its width and precision, and its letter.
_CONVERSION = re.compile(r"%(?:\(.*?\))?([-+ #0-9.*]*)[hlL]?(.)", re.DOTALL)


def is_open(value: Value) -> bool:
    """Tell whether a value is a text or a number that isn't a constant."""
    return isinstance(value, (ChangingNumber, OpenText))


def opened(guards: Guards, function: Callable[..., str], parts: Sequence[Value]) -> Value | None:
    """Return the text that `function` makes of parts of which some are open; None where it must know them.

    Args:
        guards: Where relying on the text is noted.
        function: `str`, `repr`, `format`, `str.format`, or one that joins texts.
        parts: Its operands.
    """
    if not any(map(is_open, parts)) or not all(is_open(part) or isinstance(part, Const) for part in parts):
        return None
    numbers = [_sample(part) for part in parts]
    never_fails = _NEVER_FAILS.get(function)
    if never_fails is not None and not never_fails(parts, numbers):
        return None
    try:
        sample = function(*numbers)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return None
    return OpenText(guards, sample, function, parts)


def given(tx: Tracer, value: str, source: Source) -> Value | None:
    """Model a text of the call that was another one before, where what comes of a break is passed on; else None.

    Elsewhere such a text is a name or a mode, and what it decides is compiled for each.
    """
    if info_of(tx.frames.stack[0].code) is None:
        return None
    tx.guards.add(TypeGuard, source, str)
    return OpenText(tx.guards, value, source=source)


def joined(guards: Guards, parts: Sequence[Value]) -> Value:
    """Return the texts one after the other."""
    if not any(isinstance(part, OpenText) for part in parts):
        return Const("".join(str(part.as_python()) for part in parts))
    return OpenText(guards, "".join(map(_sample, parts)), _concatenated, parts)


def separated(guards: Guards, between: Const, parts: Sequence[Value]) -> Value | None:
    """Return `between.join(parts)` where some of them are open; None where there are none, or one isn't a text."""
    if not any(isinstance(part, OpenText) for part in parts) or any(part.type() is not str for part in parts):
        return None
    return opened(guards, _joined, [between, *parts])


def formatted(guards: Guards, text: Value, args: Sequence[Value], keywords: Mapping[str, Value]) -> Value | None:
    """Return `text.format(*args, **keywords)`, with some of the values open; None where it must know them."""
    if not keywords:
        return opened(guards, str.format, [text, *args])
    parts = [text, *args, *keywords.values()]
    if not isinstance(text, Const) or not _has_safe_fields(parts, [text.value]):
        return None
    return opened(guards, _ByName(tuple(keywords)), parts)


def by_percent(guards: Guards, text: str, values: Sequence[Value]) -> Value | None:
    """Return `text % values`, with some of the values open; None where it must know them."""
    return opened(guards, _formatted_by_percent, [Const(text), *values])


def _joined(between: str, *parts: str) -> str:
    return between.join(parts)


def _concatenated(*parts: str) -> str:
    return "".join(parts)


def _sample(part: Value) -> Any:
    """Return what an operand is in this call, or might be."""
    if isinstance(part, OpenText):
        return part.sample
    if not isinstance(part, ChangingNumber):
        return part.as_python()
    now = part.now()
    return _SAMPLE[part.type()] if now is None else now


def _has_safe_spec(parts: Sequence[Value], samples: Sequence[Any]) -> bool:
    """Tell whether `format(number, spec)` can't fail: a character's number must be in range."""
    return len(parts) == 1 or (isinstance(parts[1], Const) and not str(samples[1]).endswith("c"))


def _has_safe_fields(parts: Sequence[Value], samples: Sequence[Any]) -> bool:
    """Tell whether the fields of `str.format` can't fail."""
    if not isinstance(parts[0], Const):
        return False
    try:
        specs = [spec or "" for _, _, spec, _ in string.Formatter().parse(samples[0])]
    except ValueError:
        return False
    return not any("{" in spec or spec.endswith("c") for spec in specs)


def _has_safe_conversions(parts: Sequence[Value], samples: Sequence[Any]) -> bool:
    """Tell whether `text % numbers` can't fail: `%d` of an infinity does, and `%c` of a large number."""
    if not isinstance(parts[0], Const):
        return False
    conversions = [(width, letter) for width, letter in _CONVERSION.findall(samples[0]) if letter != "%"]
    whole = all(type(sample) is not float for sample in samples)
    return all("*" not in width and letter in ("srafFeEgG" + "diuxXo" * whole) for width, letter in conversions)


@dataclass(frozen=True, slots=True)
class _ByName:
    """Calls `str.format` with the last operands by name."""

    names: tuple[str, ...]

    def __call__(self, text: str, *values: Any) -> str:
        split = len(values) - len(self.names)
        return text.format(*values[:split], **dict(zip(self.names, values[split:], strict=True)))


def _formatted_by_percent(text: str, *values: Any) -> str:
    return text % values


#: What makes a text -> whether it does so for all numbers of these types; the others never fail.
_NEVER_FAILS: dict[Callable[..., str], Callable[[Sequence[Value], Sequence[Any]], bool]] = {
    format: _has_safe_spec,
    str.format: _has_safe_fields,
    _formatted_by_percent: _has_safe_conversions,
}
