"""Tensors of a program's own: parameters, buffers, and what a function finds in globals, closures and objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Signature, Source

__all__ = ["Weights"]


class Weights:
    """Names of tensors, one for each, whatever ways lead to it.

    Args:
        module: Its parameters and buffers have their own names.

    Attributes:
        named: Name -> tensor, of those that were asked for.
    """

    def __init__(self, module: torch.nn.Module | None = None) -> None:
        self.named: dict[str, torch.Tensor] = {}
        self._known: dict[int, str] = {}
        if module is not None:
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                self._known.setdefault(id(tensor), name)

    def name(self, tensor: torch.Tensor, hint: str) -> str:
        """Return the name of a tensor; one that the module doesn't name is called `hint`, or like it.

        Raises:
            UnsupportedError: `export.weight`: its elements can't be written.
        """
        if not _is_plain(tensor):
            raise UnsupportedError(
                f"{hint} is a tensor of class {type(tensor).__qualname__}, layout {tensor.layout}, on {tensor.device}, "
                "whose elements can't be written to an artefact",
                code="export.weight",
                hints=("make it a plain tensor on the CPU, of memory that no two elements share",),
            )
        entry = self._known.get(id(tensor))
        if entry is None:
            taken = {*self.named, *self._known.values()}
            entry = (
                hint
                if hint not in taken
                else next(n for k in range(len(taken) + 1) if (n := f"{hint}_{k}") not in taken)
            )
            self._known[id(tensor)] = entry
        self.named[entry] = tensor
        return entry

    def check(self, signatures: Sequence[Signature], inputs: Sequence[Sequence[str | Source]]) -> None:
        """Check that no written tensor shares memory with another one: in a file each has its own.

        Raises:
            UnsupportedError: `export.weight`: one does.
        """
        storages: dict[int, list[str]] = {}
        for name, tensor in self.named.items():
            storages.setdefault(tensor.untyped_storage()._cdata, []).append(name)
        for signature, places in zip(signatures, inputs, strict=True):
            for write in signature.writes:
                place = places[write.input]
                if isinstance(place, str) and len(_sharing(storages.values(), place)) > 1:
                    raise UnsupportedError(
                        f"{place} is written and shares memory with "
                        f"{', '.join(n for n in _sharing(storages.values(), place) if n != place)}",
                        code="export.weight",
                        hints=("give each of them memory of its own: tensor.clone()",),
                    )


def _is_plain(tensor: torch.Tensor) -> bool:
    """Tell whether elements and layout are all of a tensor."""
    classes = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if type(tensor) not in classes or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return False
    expanded = any(stride == 0 and n > 1 for stride, n in zip(tensor.stride(), tensor.shape, strict=True))
    return not (expanded or tensor.is_conj() or tensor.is_neg())


def _sharing(groups: Iterable[list[str]], name: str) -> list[Any]:
    return next(group for group in groups if name in group)
