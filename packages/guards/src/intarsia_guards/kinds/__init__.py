"""The kinds of guards: a file for each thing that guards look at, a class for each kind.

A new kind is a record in `intarsia_ir` and a class here, listed below.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia_guards.kinds import ambient, contents, objects, sizes, tensors
from intarsia_guards.rows import HeldGuard
from intarsia_ir.records import GuardKind

__all__ = ["ROWS"]

_LISTED: tuple[type[HeldGuard], ...] = (
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
    ambient.HeldGradMode,
    ambient.HeldInferenceMode,
    ambient.HeldAutocast,
    ambient.HeldDefaultDtype,
    ambient.HeldDeterministic,
    ambient.HeldTorchModes,
    ambient.HeldHandling,
    sizes.HeldSize,
)
ROWS: Mapping[GuardKind, type[HeldGuard]] = MappingProxyType({row.kind: row for row in _LISTED})
"""What a record asks for -> the class that holds it."""
