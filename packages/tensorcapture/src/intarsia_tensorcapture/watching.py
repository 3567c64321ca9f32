"""What a graph does besides computing: whether it can be run in vain is asked where its results decide what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload, OpOverloadPacket

from intarsia_pyeval.checking import InVain, passed
from intarsia_recorder import EagerMode

__all__ = ["DRAWN_IN_VAIN", "WatchedMode", "calls_out", "generators", "is_of_torch_alone", "put_back"]


#: Namespaces of operators that do what their schemas say, and nothing else.
_OWN = frozenset({"aten", "prim", "prims"})
_TRAVERSING = frozenset({torch.autograd.grad, torch.autograd.backward})
_NOTHING = (False, ())


class WatchedMode(EagerMode):
    """An `EagerMode` that notes which tensors are written, and whether random numbers are drawn.

    Attributes:
        draws: An operator drew random numbers.
        written: Storages that were written, by their addresses; they are kept, so that no other takes the address.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.draws = False
        self.written: dict[int, Any] = {}

    def dispatch(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one op."""
        effects = _EFFECTS.get(func)
        if effects is None:
            effects = _EFFECTS[func] = _effects_of(func)
        if effects is not _NOTHING:
            self._note(*effects, args, kwargs or {})
        return super().dispatch(func, types, args, kwargs)

    def _note(
        self, draws: bool, writes: tuple[tuple[int, str], ...], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Note what an op does."""
        self.draws |= draws
        for place, name in writes:
            given = args[place] if place < len(args) else kwargs.get(name)
            for tensor in given if isinstance(given, (tuple, list)) else (given,):
                if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                    storage = tensor.untyped_storage()
                    self.written[storage._cdata] = storage

    def has_written(self, tensor: torch.Tensor) -> bool:
        """Tell whether memory of a tensor was written, by its own name or another; one of no storage may have been."""
        return tensor.layout is not torch.strided or tensor.untyped_storage()._cdata in self.written


_EFFECTS: dict[Any, tuple[bool, tuple[tuple[int, str], ...]]] = {}


def _effects_of(func: Any) -> tuple[bool, tuple[tuple[int, str], ...]]:
    """Return whether an op draws random numbers, and the arguments that it writes, by place and name."""
    if not isinstance(func, OpOverload):
        return _NOTHING
    writes = tuple(
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    draws = torch.Tag.nondeterministic_seeded in func.tags
    return (draws, writes) if draws or writes else _NOTHING


def calls_out(graph: torch.fx.Graph) -> bool:
    """Tell whether a graph calls something that may do more than its schema says."""
    for node in graph.nodes:
        target = node.target
        if isinstance(target, (OpOverload, OpOverloadPacket)):
            if not is_of_torch_alone(target):
                return True
        elif node.op == "call_function" and target in _TRAVERSING:
            return True
    return False


def is_of_torch_alone(target: OpOverload | OpOverloadPacket) -> bool:
    """Tell whether an operator does what its schema says, and nothing else."""
    name = target.namespace if isinstance(target, OpOverload) else target._qualified_op_name.partition("::")[0]
    return name in _OWN


_States = tuple[torch.Tensor, list[torch.Tensor]]


def generators() -> _States:
    """Return the states of torch's random generators."""
    return torch.random.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def _passed_or_put_back(results: Sequence[Any], count: int, states: _States) -> tuple[Any, ...] | None:
    """Do as `passed`; where a check fails, put the random generators back."""
    held = passed(results, count)
    if held is None:
        put_back(states)
    return held


def put_back(states: _States) -> None:
    """Put torch's random generators back."""
    torch.random.set_rng_state(states[0])
    torch.cuda.set_rng_state_all(states[1])


DRAWN_IN_VAIN = InVain(generators, _passed_or_put_back)
"""How a graph is called that draws random numbers."""
