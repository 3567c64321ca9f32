"""The meaning of guard records, spelled out: is a capture valid for another frame?"""

from __future__ import annotations

import builtins
import importlib
import math
import sys
from typing import Any

from intarsia_ir.guards import (
    AbsentGuard,
    AliasingGuard,
    CodeGuard,
    ConstantGuard,
    DictKeysGuard,
    DistinctGuard,
    HasAttributeGuard,
    IdentityGuard,
    LengthGuard,
    NotIdentityGuard,
    SubclassGuard,
    TensorGuard,
    TypeGuard,
)
from intarsia_ir.records import (
    AnswerSource,
    ArgumentSource,
    ArraySource,
    AttributeSource,
    CellSource,
    DictItemSource,
    GlobalSource,
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
    match record:
        case TypeGuard(cls=cls):
            return type(x) is cls
        case ConstantGuard(value=value):
            both_nan = isinstance(x, float) and isinstance(value, float) and math.isnan(x) and math.isnan(value)
            return type(x) is type(value) and (x == value or both_nan) and repr(x) == repr(value)
        case IdentityGuard(value=value):
            return x is value
        case NotIdentityGuard(value=value):
            return x is not value
        case SubclassGuard(cls=cls, expected=expected):
            return issubclass(x, cls) is expected
        case LengthGuard(length=length):
            return len(x) == length
        case DistinctGuard(others=others):
            return len({id(x), *(id(fetch(other, frame, code)) for other in others)}) == 1 + len(others)
        case DictKeysGuard(keys=keys):
            return tuple(x) == keys
        case HasAttributeGuard(name=name, expected=expected):
            return hasattr(x, name) is expected
        case AbsentGuard(key=key):
            return (fetch(key, frame, code) if isinstance(key, Source) else key) not in x
        case CodeGuard(code=other):
            return x.__code__ is other
        case AliasingGuard(other=other, same=same):
            return (x is fetch(other, frame, code)) is same
        case TensorGuard(facts=facts):
            now = (tuple(x.shape), tuple(x.stride()), x.dtype, x.requires_grad)
            return now == (facts.shape, facts.strides, facts.dtype, facts.requires_grad)
    raise AssertionError(record)
