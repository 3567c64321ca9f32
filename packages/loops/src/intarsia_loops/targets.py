"""The callable targets of the GraphModule view: one kind for each kind of item."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import torch

from intarsia_loops._items import made_by, map_refs, outs_of, reads_of
from intarsia_loops.evaluate import call_extern, run_kernel, run_nest, tensor_of
from intarsia_loops.program import Buffer, Extern, Item, Kernel, Nest, TensorRef
from intarsia_loops.rewrites import matching_buffers

__all__ = ["ExternOp", "ItemOp", "KernelOp", "NestOp", "ViewOp", "target_of"]


def target_of(item: Item, buffers: Mapping[str, Buffer], symbols: tuple[str, ...]) -> ItemOp:
    """Return the callable target of an item.

    Args:
        item: The nest, kernel or extern call.
        buffers: The program's buffers.
        symbols: The program's size symbols, in the order of the arguments.
    """
    return _OPS[type(item)](item, buffers, symbols)


class ItemOp(ABC):
    """Callable target of one item. Equal when the items do the same, whatever their buffers are called.

    Attributes:
        item: The nest, kernel or extern call.
        buffers: Every buffer that it reads or makes.
        reads: Buffers read, in the order of the node's arguments.
        symbols: Size symbols, the arguments after them.
        outs: Buffers that reach memory; with one the node is that tensor, else a tuple of them.
        dialect: The one that it is of, for `intarsia_ir.dialects`; "": of both.
    """

    kind: ClassVar[str] = "item"
    dialect: ClassVar[str] = ""

    def __init__(self, item: Any, buffers: Mapping[str, Buffer], symbols: tuple[str, ...] = ()) -> None:
        self.item = item
        self.reads = reads_of(item)
        self.outs = outs_of(item)
        names = (*self.reads, *made_by(item))
        numbers = outs_of(item) if isinstance(item, Extern) else ()  # a result that is no buffer is a number
        self.buffers: Mapping[str, Buffer] = {n: buffers[n] for n in names if n and (n in buffers or n not in numbers)}
        self.symbols = symbols
        self._hash = hash(self._summary())
        self.__name__ = self.__qualname__ = self._label()
        self.__module__ = f"intarsia_loops.{self.kind}"

    def __call__(self, *args: Any) -> Any:
        tensors, sizes = args[: len(self.reads)], args[len(self.reads) :]
        results = self._run(dict(zip(self.reads, tensors, strict=True)), dict(zip(self.symbols, sizes, strict=True)))
        return results[self.outs[0]] if self.is_single else tuple(results.get(o) for o in self.outs)

    @property
    def is_single(self) -> bool:
        """Whether the node is one tensor rather than a tuple."""
        return len(self.outs) == 1

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ItemOp) or type(other) is not type(self) or other._hash != self._hash:
            return False
        return self.symbols == other.symbols and self._matches(other)  # FX takes equal targets for one

    def __deepcopy__(self, memo: Any) -> ItemOp:
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__name__} -> {', '.join(self.outs)})"

    @abstractmethod
    def _label(self) -> str:
        """Name of the target, as printed code shows it."""

    @abstractmethod
    def _summary(self) -> Any:
        """Something cheap that equal items share."""

    @abstractmethod
    def _matches(self, other: Any) -> bool:
        """Whether another target of this kind does the same."""

    def _same_buffers(self, other: ItemOp, names: Mapping[str, str]) -> bool:
        return all(self.buffers[a] == other.buffers[b] for a, b in names.items())

    @abstractmethod
    def _run(self, memory: dict[str, torch.Tensor], sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        """Interpret the item on the buffers it reads."""


class NestOp(ItemOp):
    """Target of a nest."""

    kind = "nests"
    dialect = "loops"

    def _label(self) -> str:
        return str(self.item.kind)

    def _summary(self) -> Any:
        nest = self.item
        return (nest.kind, nest.dtype, nest.body.form, tuple([a.extent for a in nest.axes]))

    def _matches(self, other: Any) -> bool:
        names = matching_buffers((self.item,), (other.item,))
        return names is not None and self._same_buffers(other, names)

    def _run(self, memory: dict[str, torch.Tensor], sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        return {self.item.out: run_nest(self.item, self.buffers[self.item.out], memory, sizes)}


class KernelOp(ItemOp):
    """Target of a kernel."""

    kind = "kernels"
    dialect = "kernels"

    def _label(self) -> str:
        return "kernel_" + "_".join(dict.fromkeys(s.kind for s in self.item.steps))

    def _summary(self) -> Any:
        steps = [(s.kind, s.dtype, s.body.form, tuple([a.extent for a in s.axes])) for s in self.item.steps]
        return (len(self.item.local), tuple(steps))

    def _matches(self, other: Any) -> bool:
        names = matching_buffers(self.item.steps, other.item.steps)
        if names is None or len(self.item.rows) != len(other.item.rows):
            return False
        return {names[n] for n in self.item.local} == other.item.local and self._same_buffers(other, names)

    def _run(self, memory: dict[str, torch.Tensor], sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        return run_kernel(self.item, self.buffers, memory, sizes)


class ExternOp(ItemOp):
    """Target of an extern call."""

    kind = "externs"

    def _label(self) -> str:
        return str(self.item.target).replace(".", "_").replace("::", "_")

    def _summary(self) -> Any:
        return (str(self.item.target), tuple([buffer.shape for buffer in self.buffers.values()]))

    def _matches(self, other: Any) -> bool:
        return bool(self._form() == other._form())

    def _form(self) -> Any:
        """The call with buffers named by position."""
        place = {n: f"b{k}" for k, n in enumerate(dict.fromkeys((*self.reads, *self.outs)))}
        return (
            self.item.target,
            map_refs(self.item.args, lambda r: replace(r, buffer=place[r.buffer])),
            map_refs(self.item.kwargs, lambda r: replace(r, buffer=place[r.buffer])),
            tuple([place[o] if o else "" for o in self.outs]),
            tuple([self.buffers.get(n) for n in place if n]),
        )

    def _run(self, memory: dict[str, torch.Tensor], sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        return call_extern(self.item, self.buffers, memory, sizes)


class ViewOp:
    """Target of an output that is a strided view of a buffer.

    Attributes:
        ref: The view.
        buffer: The buffer viewed.
        symbols: Size symbols, the arguments after the tensor.
    """

    def __init__(self, ref: TensorRef, buffer: Buffer, symbols: tuple[str, ...] = ()) -> None:
        self.ref = ref
        self.buffer = buffer
        self.symbols = symbols
        self.__name__ = self.__qualname__ = "view"
        self.__module__ = "intarsia_loops.views"

    def __call__(self, base: torch.Tensor, *sizes: int) -> torch.Tensor:
        return tensor_of(self.ref, {self.ref.buffer: base}, dict(zip(self.symbols, sizes, strict=True)))

    def __hash__(self) -> int:
        return hash((self.ref.shape, self.ref.strides, self.ref.offset))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ViewOp) or other.buffer != self.buffer:
            return False
        return replace(other.ref, buffer=self.ref.buffer) == self.ref

    def __deepcopy__(self, memo: Any) -> ViewOp:
        return self


_OPS: Mapping[type, type[ItemOp]] = MappingProxyType({Nest: NestOp, Kernel: KernelOp, Extern: ExternOp})
