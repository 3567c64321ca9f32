"""The kinds of guards: a file for each thing that guards look at, a class for each kind.

A new kind is a record in `intarsia_ir` and a class here, listed below.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from intarsia_guards.kinds import ambient, contents, definitions, objects, sizes, tensors
from intarsia_guards.rows import HeldGuard
from intarsia_ir.records import GuardRecord

__all__ = ["ROWS"]

_LISTED: tuple[type[HeldGuard[Any]], ...] = (
    objects.HeldType,
    objects.HeldIdentity,
    objects.HeldNotIdentity,
    objects.HeldSubclass,
    objects.HeldCode,
    objects.HeldAliasing,
    objects.HeldDistinct,
    contents.HeldConstant,
    contents.HeldComparison,
    contents.HeldLength,
    contents.HeldDictKeys,
    contents.HeldHasAttribute,
    contents.HeldAbsent,
    tensors.HeldTensor,
    tensors.HeldOverlap,
    tensors.HeldVersion,
    definitions.HeldClass,
    definitions.HeldNamespace,
    ambient.HeldGradMode,
    ambient.HeldInferenceMode,
    ambient.HeldAutocast,
    ambient.HeldDefaultDtype,
    ambient.HeldDeterministic,
    ambient.HeldTorchModes,
    ambient.HeldHandling,
    sizes.HeldSize,
)
ROWS: Mapping[type[GuardRecord], type[HeldGuard[Any]]] = MappingProxyType({row.record: row for row in _LISTED})
"""Class of a record -> the class that holds it."""
