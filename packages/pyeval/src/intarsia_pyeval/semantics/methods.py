"""Methods of built-in classes: a row for each that CPython has, which a test derives from the classes themselves.

A row is a rule; `Breaks`, with the reason; or, for special methods, an operation that has a rule for the kind:
`x.__len__()` does what `len(x)` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intarsia_ir.errors import InternalError
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import special
from intarsia_pyeval.values.base import Keywords, Value

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["PICKLED", "ROWS", "SIZE", "Breaks", "Rule", "call", "declare", "refused"]

#: Models a method: takes the capture, the receiver, the arguments by position and by name.
Rule = Callable[["Tracer", Any, list[Value], Keywords], Value]


@dataclass(frozen=True, slots=True)
class Breaks:
    """A method without a rule.

    Args:
        code: The code of the break.
        why: The reason, in a few words.
    """

    code: str
    why: str


#: Class that CPython lays out in C -> name of a method -> its row.
ROWS: dict[type, Mapping[str, Rule | Breaks]] = {}


def declare(cls: type, *rows: Mapping[str, Rule | Breaks]) -> None:
    """Give the rows of a class, apart from those that operations are; no method is in two. A base's come along."""
    added: dict[str, Rule | Breaks] = {}
    for part in rows:
        if not added.keys().isdisjoint(part):
            raise InternalError(f"a method of {cls.__name__} has two rows", code="tracer.table")
        added |= part
    inherited = next((ROWS[base] for base in cls.__mro__[1:] if base in ROWS), {})
    ROWS[cls] = {**inherited, **added}


def refused(names: Iterable[str], why: str, code: str = "tracer.call") -> dict[str, Breaks]:
    """Return rows of methods that break for one reason."""
    return dict.fromkeys(names, Breaks(code, why))


#: What an object takes in memory depends on how CPython made it.
SIZE = refused(["__sizeof__"], "it depends on how CPython made the object")
#: What `copy` and `pickle` ask for; `copy` is modelled without it.
PICKLED = refused(["__reduce__"], "it is for `pickle`")


def call(tx: Tracer, cls: type, value: Value, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the method of a class that CPython lays out in C."""
    row = ROWS[cls].get(name)
    if row is None:
        return special.operator_method(tx, value, name, args, keywords)
    if isinstance(row, Breaks):
        raise Break(row.code, f"method {name!r} of {value.describe()} isn't modelled: {row.why}")
    return row(tx, value, list(args), keywords)


# an instance of a subclass has attributes of its own, and may be asked past what its class overrides
declare(object, refused(["__getattribute__"], "it is called by its name", "tracer.attribute"))
