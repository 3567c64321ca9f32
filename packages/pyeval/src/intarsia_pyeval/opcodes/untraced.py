"""Instructions that end a graph, each with its reason."""

from __future__ import annotations

import dis
from types import MappingProxyType
from typing import TYPE_CHECKING

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.evaluate import EvaluatedFrame, Opcode, Signal

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = ["BREAKS", "raise_break"]


_ASYNC = "asynchronous code isn't captured"
_CLASS = "class bodies and modules run in CPython"
_GROUP = "exception groups aren't modelled"

BREAKS = MappingProxyType(
    {
        "ASYNC_GEN_WRAP": _ASYNC,
        "BEFORE_ASYNC_WITH": _ASYNC,
        "CALL_INTRINSIC_2": "type parameters and exception groups aren't modelled",
        "CHECK_EG_MATCH": _GROUP,
        "END_ASYNC_FOR": _ASYNC,
        "EXIT_INIT_CHECK": "only CPython's own shortcut for constructors runs it",
        "GET_AITER": _ASYNC,
        "GET_ANEXT": _ASYNC,
        "GET_AWAITABLE": _ASYNC,
        "IMPORT_STAR": _CLASS,
        "LOAD_BUILD_CLASS": "a class made by the traced code isn't modelled",
        "LOAD_CLASSDEREF": _CLASS,
        "LOAD_FROM_DICT_OR_DEREF": _CLASS,
        "LOAD_FROM_DICT_OR_GLOBALS": _CLASS,
        "LOAD_LOCALS": _CLASS,
        "LOAD_NAME": _CLASS,
        "PREP_RERAISE_STAR": _GROUP,
        "PRINT_EXPR": "only an interactive session runs it",
        "SETUP_ANNOTATIONS": _CLASS,
        "STORE_NAME": _CLASS,
        "DELETE_NAME": _CLASS,
    }
)


def raise_break() -> dict[str, Opcode]:
    """Return handlers that break, for those instructions above that the running Python has."""
    return {name: _handler(name, reason) for name, reason in BREAKS.items() if name in dis.opmap}


def _handler(name: str, reason: str) -> Opcode:
    """Return a handler that breaks."""

    def handler(f: EvaluatedFrame, i: Instruction) -> Signal:
        raise Break("tracer.opcode", f"{name}: {reason}")

    return handler
