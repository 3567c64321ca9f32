"""Runs one program in CPython and by its captures, and compares everything that can be seen of it."""

from __future__ import annotations

import collections
import re
from typing import Any

from executor import Executor

from intarsia_ir.errors import IntarsiaError
from intarsia_pyeval import Extension


def differing(source: str) -> tuple[Any, Any] | None:
    """Return what CPython and the capture give, where they differ, for `f(*make())` of a module's text.

    Results are compared with the exact classes of all parts, `log`, the arguments afterwards, and errors by their text.
    """
    wanted, found = _outcome(source, traced=False), _outcome(source, traced=True)
    return None if wanted == found else (wanted, found)


def _outcome(source: str, traced: bool) -> Any:
    names: dict[str, Any] = {}
    exec(source, names)
    args = names["make"]() if "make" in names else ()
    names["log"].clear()
    try:
        result = Executor(Extension, force=True).call(names["f"], *args) if traced else names["f"](*args)
        found = described(result)
    except IntarsiaError:
        raise
    except Exception as error:
        # a method that was fetched from its class names the class that it was fetched for
        found = type(error).__name__, re.sub(r"^(\w+\.)?(\w+\(\))", r"\2", str(error))
    return found, list(names["log"]), [described(arg) for arg in args]


def described(value: Any, outer: tuple[int, ...] = ()) -> Any:
    """Return the class of a value and what it holds, past what its class overrides.

    `outer`: the identities of the containers around it; one that holds itself is named by the depth at which it began.
    """
    kind = type(value)
    if id(value) in outer:
        return kind.__name__, outer.index(id(value))
    inside = (*outer, id(value))
    if isinstance(value, dict):
        home: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        body: Any = [(described(k, inside), described(v, inside)) for k, v in home.items(value)]
    elif isinstance(value, collections.deque):
        body = [*(described(item, inside) for item in collections.deque.__iter__(value)), value.maxlen]
    elif isinstance(value, (list, tuple, set, frozenset)):
        home = next(base for base in (list, tuple, set, frozenset) if isinstance(value, base))
        body = [described(item, inside) for item in home.__iter__(value)]
    elif isinstance(value, (int, float, complex, str, bytes, range, slice, type(None), type)):
        body = repr(value)
    else:
        body = None
    return kind.__name__, body, repr(getattr(value, "__dict__", None)) if kind.__module__ != "builtins" else None
