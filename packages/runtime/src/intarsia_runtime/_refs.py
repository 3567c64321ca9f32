"""Text of sizes and of tensor operands in a generated function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from intarsia_ir.dtypes import dtype_from_name, itemsize
from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_loops.called import Called
from intarsia_loops.program import Program, TensorRef
from intarsia_loops.shown import makers
from intarsia_runtime._names import Names

__all__ = ["RefWriter", "shape_text", "size_text"]

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def size_text(expr: Any) -> str:
    """Return Python text of an index expression; size symbols are variables of the same name."""
    return repr(expr)


def shape_text(exprs: Iterable[Any]) -> str:
    """Return the text of a tuple of index expressions.

    Example:
        >>> shape_text((3, 4)), shape_text((3,)), shape_text(())
        ('(3, 4)', '(3,)', '()')
    """
    items = [size_text(e) for e in exprs]
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


class RefWriter:
    """Writes operands as the tensor itself where that is exact, as `as_strided` otherwise.

    Args:
        program: What is run.
        names: Of the function that is written.
        offsets: Buffer in the arena -> its byte offset.
        sizes: Size symbols that launches take, some of which no buffer may have.

    Attributes:
        used_views: Whether any `as_strided` was written.
    """

    def __init__(
        self, program: Program | Called, names: Names, offsets: Mapping[str, int], sizes: Iterable[str] = ()
    ) -> None:
        self.program, self.names, self.offsets, self.sizes = program, names, offsets, frozenset(sizes)
        self.used_views = False
        self._made = makers(program).keys()
        self._arena_types: dict[str, str] = {}
        self._arena_views: dict[str, str] = {}

    def tensor(self, ref: TensorRef) -> str:
        """Return text of a tensor operand."""
        buffer = self.program.buffers[ref.buffer]
        shape, strides = shape_text(ref.shape), shape_text(ref.strides)
        if ref.buffer in self.offsets:
            start = f"{self.offsets[ref.buffer] // itemsize(buffer.dtype)} + {size_text(ref.offset)}"
            return self._arena_view(buffer.dtype, shape, strides, start.removesuffix(" + 0"))
        whole = ref.shape == buffer.shape and ref.strides == buffer.strides
        name = self.names.local(ref.buffer)
        if size_text(ref.offset) == "0":
            return name if whole else self._as_strided(name, shape, strides)
        return self._as_strided(name, shape, strides, f"{name}.storage_offset() + {size_text(ref.offset)}")

    def _as_strided(self, *arguments: str) -> str:
        self.used_views = True
        self.names.bind("_as_strided", torch.as_strided)
        return f"_as_strided({', '.join(arguments)})"

    def _arena_view(self, dtype: str, *layout: str) -> str:
        """Return a view of the arena; equal layers use the same few views, so each is made once, at the beginning.

        One whose layout has a size that a call gives is made where it is used.
        """
        self._arena_types[dtype] = self.names.bind(f"_{dtype}", dtype_from_name(dtype))
        text = self._as_strided(f"_arena_{dtype}", *layout)
        if not self._made.isdisjoint(_IDENTIFIER.findall(" ".join(layout))):
            return text
        return self._arena_views.setdefault(text, f"_view{len(self._arena_views)}")

    def arena_views(self) -> list[str]:
        """Return the statements that make the views of the arena which the operands written so far need."""
        typed = [f"_arena_{name} = _arena.view({text})" for name, text in sorted(self._arena_types.items())]
        return typed + [f"{name} = {text}" for text, name in self._arena_views.items()]

    def derived_symbols(self) -> list[tuple[str, str]]:
        """Return (symbol, text) for each size symbol that the caller doesn't pass but a tensor input shows.

        Raises:
            UnsupportedError: A symbol is found nowhere.
        """
        symbols = sorted(self._symbols())
        for symbol in symbols:  # first come: texts of sizes use the symbol's own name
            if self.names.local(symbol) != symbol:
                raise InternalError(f"{symbol!r} can't be a variable", code="runtime.size_symbol")
        positions = makers(self.program)
        return [(s, self._where_shown(s)) for s in symbols if s not in self.program.inputs and s not in positions]

    def is_symbolic(self) -> bool:
        """Tell whether any size or stride of the program is not a constant."""
        return bool(self._symbols())

    def _symbols(self) -> set[str]:
        """Return the names of all size symbols in the program's buffers and calls."""
        texts = (size_text(e) for b in self.program.buffers.values() for e in (*b.shape, *b.strides))
        named = {name for text in texts for name in _IDENTIFIER.findall(text)}
        return named | self.sizes | makers(self.program).keys()

    def _where_shown(self, symbol: str) -> str:
        for name in self.program.inputs:
            buffer = self.program.buffers.get(name)
            for attribute, exprs in (("shape", buffer.shape), ("stride()", buffer.strides)) if buffer else ():
                for dimension, expr in enumerate(exprs):
                    if size_text(expr) == symbol:
                        return f"{self.names.local(name)}.{attribute}[{dimension}]"
        raise UnsupportedError(
            f"size symbol {symbol} is neither passed nor the size of an input", code="runtime.size_symbol"
        )
