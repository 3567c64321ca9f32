"""Which extern calls have an effect. (None writes its operands or returns a view: rule L9 of the loops dialect.)"""

from __future__ import annotations

from typing import Any

import torch

from intarsia_ir.aten import effects
from intarsia_ir.higher_order import HigherOrderOp

__all__ = ["has_effect", "must_run"]


def has_effect(target: Any) -> bool:
    """Tell whether calls must stay, in program order: random draws, exchanges, and checks, which have no result.

    A target without a schema may do anything.
    """
    if isinstance(target, HigherOrderOp):
        return effects(target).random or effects(target).communicates
    schema = getattr(target, "_schema", None)
    if schema is None:
        return True
    random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
    return bool(schema.is_mutable or random or not schema.returns) or effects(target).communicates


def must_run(target: Any) -> bool:
    """Tell whether calls must stay whose results nobody reads: those with an effect, and those that may raise."""
    return has_effect(target) or effects(target).may_raise
