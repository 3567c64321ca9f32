"""What a tensor of the original program is during functionalization: a storage and a chain of view steps.

  Base   one storage: the tensor that first owned it, and the node that holds its present contents
  Step   one view op, with its arguments as nodes of the new graph
  Ref    one tensor object of the program: base plus chain; several nodes can be the same object (in-place results)
  Items  the tensors that one node with several results produces

Contents have versions: a write gives the base a new node and version, and a Ref with an older version is stale.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from intarsia_ir.records import Origin

__all__ = ["Base", "BaseKind", "Items", "Ref", "Step", "layout_of"]

Layout = tuple[tuple[Any, ...], tuple[Any, ...], Any]


class BaseKind(enum.Enum):
    """Who owns a storage."""

    INPUT = "input"
    CONSTANT = "constant"
    FRESH = "fresh"


@dataclass(slots=True, eq=False)
class Base:
    """One storage.

    Args:
        kind: Who owns it.
        node: What holds its contents now, with any strides; None: an item that nobody picked yet.
        value: The tensor that first owned it: shape, strides and offset that view steps count on.
        position: Number of the input; -1 for other kinds.
        in_list: It was written by an op that writes a list of tensors.
    """

    kind: BaseKind
    node: fx.Node | None
    value: torch.Tensor
    position: int = -1
    version: int = 0
    first_write: int = -1
    last_read: int = -1
    in_list: bool = False
    # `node` with the strides of `value`, once somebody needed it
    laid_out: fx.Node | None = None
    # view steps replayed on the present contents
    replayed: dict[tuple[int, ...], fx.Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One view op: `op(base, *args, **kwargs)`, then item `item` of the list it returns.

    Args:
        args: Arguments after the tensor; nodes are nodes of the new graph.
        value: The value of the view (`results`: of the whole list) in the original program.
        origins: The user lines of the view.
    """

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    value: torch.Tensor
    item: int | None = None
    results: Any = None
    origins: tuple[Origin, ...] = ()

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return the argument at `position` behind the tensor, however it was passed."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


@dataclass(slots=True, eq=False)
class Ref:
    """One tensor object of the program.

    Args:
        base: Its storage.
        steps: How it views it.
        node: What holds its values, if `version` is the version of the base.
    """

    base: Base
    steps: tuple[Step, ...] = ()
    node: fx.Node | None = None
    version: int = -1

    @property
    def value(self) -> torch.Tensor:
        """The tensor as the original program had it: its metadata."""
        return self.steps[-1].value if self.steps else self.base.value


@dataclass(slots=True, eq=False)
class Items:
    """The results of a node that has several: tensors as Refs, other values as they are.

    Args:
        node: The node of the new graph.
        refs: One entry per result.
    """

    node: fx.Node
    refs: list[Any]


def layout_of(value: torch.Tensor) -> Layout:
    """Return shape, strides and storage offset."""
    return tuple(value.shape), tuple(value.stride()), value.storage_offset()
