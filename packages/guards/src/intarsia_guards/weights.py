"""The weights of graphs, and the guards that tell whether they have changed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from intarsia_guards import lookup
from intarsia_guards.frame import Frame, fetch
from intarsia_ir.guards import VersionGuard
from intarsia_ir.records import InputSpec, ItemSource, Role, Signature, Source

__all__ = ["MOST_BYTES", "MOST_STATES", "Weight", "Weights"]

MOST_STATES = 4
"""States of its weights that a function is given, unless it is said otherwise."""
MOST_BYTES = 1 << 16
"""Of a buffer on the CPU, whose contents are compared: these take a few microseconds at most."""
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
# what a batch norm writes uncounted, and what it writes beside, which is counted
_STATISTICS, _COUNTED = ("running_mean", "running_var"), "num_batches_tracked"


class Weight(NamedTuple):
    """A parameter or buffer.

    Args:
        value: The tensor.
        guards: They hold as long as nothing writes it.
    """

    value: torch.Tensor
    guards: tuple[VersionGuard, ...]


class Weights:
    """Finds the weights that graphs take, until those of one function have changed too often to rely on them.

    Args:
        most_states: Of how many states of its weights a function is told; then of none, for its graphs would be
            compiled again and again.
    """

    def __init__(self, most_states: int = MOST_STATES) -> None:
        self._most = most_states
        self._states: weakref.WeakKeyDictionary[CodeType, set[Hashable]] = weakref.WeakKeyDictionary()

    def of(
        self,
        code: CodeType,
        signature: Signature,
        values: Mapping[str, Any],
        globals: Mapping[str, Any],
        refuse: Callable[[str], None],
    ) -> dict[str, Weight]:
        """Return the parameters and buffers that a graph takes, by the names of its inputs.

        Plain tensors in memory whose writes are seen: torch counts them, but for tensors made in inference mode, and
        but for what a batch norm writes to its statistics. Of a small buffer on the CPU the contents are compared;
        elsewhere statistics are taken where a count of batches is beside them, which a module writes with them.

        Args:
            code: The function that the graph was captured in.
            signature: Of the graph.
            values: Parameter or free variable of the function -> value.
            globals: The globals of the function.
            refuse: Told why there are none, where they have changed too often.
        """
        frame, weights = Frame(values, values, globals), dict[str, Weight]()
        for spec in signature.inputs:
            if spec.role in (Role.PARAMETER, Role.BUFFER) and spec.source is not None:
                value = fetch(spec.source, frame)
                if _is_counted(value) and (guards := _guards(spec, spec.source, value, frame)):
                    weights[spec.name] = Weight(value, guards)
        states = self._states.setdefault(code, set())
        states.add(tuple((id(value), *map(_state, guards)) for value, guards in weights.values()))
        if len(states) <= self._most:
            return weights
        refuse(
            f"not frozen: {code.co_qualname} has met more than {self._most} states of its weights; "
            "leave freezing off while they change"
        )
        return {}


def _is_counted(value: Any) -> bool:
    return type(value) in _PLAIN and value.layout is torch.strided and not value.is_inference() and not value.is_meta


def _guards(spec: InputSpec, source: Source, value: torch.Tensor, frame: Frame) -> tuple[VersionGuard, ...]:
    """Return the guards on a weight; none where its writes aren't all seen."""
    if spec.role is Role.PARAMETER:
        return (_guard(source, value),)
    if value.is_cpu and value.nbytes <= MOST_BYTES and value.is_contiguous() and not value.storage_offset():
        return (_guard(source, value, lookup.contents(value)),)
    if not isinstance(source, ItemSource) or source.key not in _STATISTICS:
        return (_guard(source, value),)
    beside = fetch(source.base, frame).get(_COUNTED)
    return (_guard(source, value), _guard(ItemSource(source.base, _COUNTED), beside)) if _is_counted(beside) else ()


def _guard(source: Source, value: torch.Tensor, contents: bytes | None = None) -> VersionGuard:
    memory = StorageWeakRef(value.untyped_storage())
    return VersionGuard(source, value, value._version, memory, contents, reason="its values were folded")


def _state(guard: VersionGuard) -> Hashable:
    return guard.version, getattr(guard.memory, "cdata", None), guard.contents
