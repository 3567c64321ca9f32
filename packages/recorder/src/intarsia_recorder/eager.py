"""A mode for fake tensors that goes by eager's rules where meta kernels go by others.

Meta kernels accept calls that eager refuses, by the types, shapes, numbers, indices or memory of the operands, and some
give results other strides or types. Each kind of rule is a table over op names in a file of its own; here they are
looked up, once for each overload, and applied around the op.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._higher_order_ops.utils import registered_hop_fake_fns
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from intarsia_ir.device_guard import keep_device_guard
from intarsia_ir.errors import UnsupportedError
from intarsia_recorder.corrections import Correction, correction_of
from intarsia_recorder.element_types import refusal_check, stored_check
from intarsia_recorder.indices import dimension_check, index_check
from intarsia_recorder.launches import no_launches_of_fakes
from intarsia_recorder.operand_numbers import number_check
from intarsia_recorder.operand_shapes import shape_check
from intarsia_recorder.operand_types import mismatch_check
from intarsia_recorder.operands import Check
from intarsia_recorder.overlap import overlap_check
from intarsia_recorder.predictions import prediction_of
from intarsia_recorder.zeros import Zeros

__all__ = ["EagerMode"]


@functools.cache
def _import_what_modes_import() -> None:
    """Make a first mode in a thread of its own.

    It imports a large part of torch, where errors are caught whose tracebacks hold the frames that import: of the first
    call, that would be all frames of the user and their inputs, until a collection.
    """
    first = threading.Thread(target=FakeTensorMode)
    first.start()
    first.join()


class EagerMode(FakeTensorMode):
    """A FakeTensorMode that refuses what eager refuses, and gives results the strides and types that eager gives.

    It takes the arguments of a FakeTensorMode, which versions of torch write differently.

    Raises:
        RuntimeError: From an op that eager's CPU kernel doesn't implement for the type of its operands, or whose
            operands don't go together by types, shapes, numbers or places in memory.
        IndexError: From an op whose dimension its operand doesn't have, or whose index lies beyond the end.
        UnsupportedError: From an op of which only more than shapes tells whether eager takes its operands.

    Example:
        >>> with EagerMode():
        ...     torch.ones(2, dtype=torch.bool).ceil()
        Traceback (most recent call last):
        ...
        RuntimeError: aten.ceil.default isn't implemented for torch.bool on the CPU
    """

    supports_higher_order_operators = True  # torch looks their rules up by the class of a mode, and finds none for this

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _import_what_modes_import()
        keep_device_guard()
        super().__init__(*args, **kwargs)
        self.zeros = Zeros(self._make_zeros)

    def _make_zeros(self, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(torch.ops.aten._efficientzerotensor.default, (), args, kwargs)

    def dispatch(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one op, by eager's rules."""
        if any(cls is not FakeTensor and hasattr(cls, "__tensor_flatten__") for cls in types):
            return NotImplemented  # a wrapper subclass runs it, on the tensors inside
        if isinstance(func, torch._ops.HigherOrderOperator) and func not in _WITH_FAKES:
            return _by_rule_for_fakes(self, func, args, kwargs or {})
        rules = _RULES.get(func)
        if rules is None:
            rules = _RULES[func] = _rules_of(func)
        args, kwargs = self.zeros.found(args), self.zeros.placed(func, kwargs or {})
        for check in rules.checks:
            check(self, args, kwargs)
        if rules.predict is None:
            result = self._by_torch(func, types, args, kwargs)
        else:
            by_torch = functools.partial(self._by_torch, func, types, args, kwargs)
            result = rules.predict(self, by_torch, args, kwargs)
        self.zeros.note(func, result)
        return result if rules.correct is None else rules.correct(self, result, args, kwargs)

    def _by_torch(self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.shape_env is None:
            return super().dispatch(func, types, args, kwargs)
        with enable_python_dispatcher():  # of what runs in its C++ form, only Python knows symbolic sizes
            return super().dispatch(func, types, args, kwargs)


_WITH_FAKES: Any = registered_hop_fake_fns  # those that torch's own mode runs in `dispatch`


def _by_rule_for_fakes(mode: FakeTensorMode, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operator that takes functions as fake tensors of torch's own mode do."""
    rule = func.python_key_table.get(FakeTensorMode)
    if rule is None:
        raise UnsupportedError(f"{func} has no rule for fake tensors", code="recorder.higher_order")
    return rule(mode, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What is particular to one overload.

    Args:
        checks: Run before it, in this order.
        correct: Gives its result what eager gives it; None: it has that.
        predict: Predicts its results in the place of torch's fakes; None: those do.
    """

    checks: tuple[Check, ...] = ()
    correct: Correction | None = None
    predict: Any = None


_RULES: dict[Any, _Rules] = {}
_CHECKS = (
    refusal_check,
    mismatch_check,
    stored_check,
    dimension_check,
    overlap_check,
    index_check,
    shape_check,
    number_check,
)


def _by_its_fake(mode: FakeTensorMode, by_torch: Callable[[], Any], args: Sequence[Any], kwargs: Any) -> Any:
    """Run the fake implementation of an operator of a library, which may be its own body."""
    with no_launches_of_fakes():
        return by_torch()


def _rules_of(func: Any) -> _Rules:
    """Return what the tables say about an overload, in-place forms included."""
    if not isinstance(func, torch._ops.OpOverload):
        return _Rules()
    if func.namespace != "aten":
        return _Rules(predict=_by_its_fake) if func._schema.name in OPDEFS else _Rules()
    checks = [make(func) for make in _CHECKS]
    found = tuple(check for check in checks if check is not None)
    return _Rules(found, correction_of(func), prediction_of(func))
