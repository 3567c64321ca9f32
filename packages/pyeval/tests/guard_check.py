"""The meaning of guard records, spelled out: is a capture valid for another frame?"""

from __future__ import annotations

import builtins
import importlib
import math
import sys
from typing import Any

from intarsia_ir.records import (
    AnswerSource,
    ArgumentSource,
    ArraySource,
    AttributeSource,
    CellSource,
    DictItemSource,
    GlobalSource,
    GuardKind,
    GuardRecord,
    ItemSource,
    ModuleSource,
    ReferentSource,
    Source,
    TypeSource,
)


def fetch(source: Source, frame: Any, code: Any) -> Any:
    """Return what a source names in a frame."""
    match source:
        case ArgumentSource(name=name):
            return frame.locals[name]
        case CellSource(name=name):
            return frame.closure[code.co_freevars.index(name)].cell_contents
        case GlobalSource(name=name):
            return frame.globals[name] if name in frame.globals else getattr(builtins, name)
        case ModuleSource(name=name):
            return sys.modules[name]
        case AttributeSource(base=base, name=name):
            return getattr(fetch(base, frame, code), name)
        case ItemSource(base=base, key=key):
            return fetch(base, frame, code)[key]
        case DictItemSource(base=base, key=key):
            return dict.__getitem__(fetch(base, frame, code), key)
        case TypeSource(base=base):
            return type(fetch(base, frame, code))
        case ReferentSource(base=base) | AnswerSource(base=base):
            return fetch(base, frame, code)()
        case ArraySource(base=base):
            return importlib.import_module("torch").from_numpy(fetch(base, frame, code))
    raise AssertionError(source)


def failures(records: tuple[GuardRecord, ...], frame: Any, code: Any) -> list[GuardRecord]:
    """Return the guards that don't hold; one that can't be fetched doesn't."""
    failed = []
    for record in records:
        try:
            held = record.source is None or holds(record, fetch(record.source, frame, code), frame, code)
        except Exception:
            held = False
        if not held:
            failed.append(record)
    return failed


def holds(record: GuardRecord, x: Any, frame: Any, code: Any) -> bool:
    """Tell whether one guard holds for a value."""
    value = record.value
    match record.kind:
        case GuardKind.TYPE:
            return type(x) is value
        case GuardKind.CONSTANT:
            both_nan = isinstance(x, float) and isinstance(value, float) and math.isnan(x) and math.isnan(value)
            return type(x) is type(value) and (x == value or both_nan) and repr(x) == repr(value)
        case GuardKind.IDENTITY:
            return x is value
        case GuardKind.NOT_IDENTITY:
            return x is not value
        case GuardKind.SUBCLASS:
            return issubclass(x, value[0]) is value[1]
        case GuardKind.LENGTH:
            return len(x) == value
        case GuardKind.DISTINCT:
            return len({id(x), *(id(fetch(other, frame, code)) for other in value)}) == 1 + len(value)
        case GuardKind.DICT_KEYS:
            return tuple(x) == value
        case GuardKind.HAS_ATTRIBUTE:
            return hasattr(x, value[0]) is value[1]
        case GuardKind.ABSENT:
            return (fetch(value, frame, code) if isinstance(value, Source) else value) not in x
        case GuardKind.CODE:
            return x.__code__ is value
        case GuardKind.ALIASING:
            return (x is fetch(value[0], frame, code)) is value[1]
        case GuardKind.TENSOR:
            facts = (tuple(x.shape), tuple(x.stride()), x.dtype, x.requires_grad)
            return facts == (value.shape, value.strides, value.dtype, value.requires_grad)
    raise AssertionError(record.kind)
