"""A program as its caller sees it: library calls in full, and of a kernel what it reads and writes.

That is all that linking needs beside the source of the kernels, and reading it back takes a fraction of the time that
their nests take. In text an item is `%y: f32[4], %z: f32[4] = kernel(%x)`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Origin, SizeFacts
from intarsia_loops.program import Buffer, Extern, Kernel, Placement, Program

__all__ = ["Called", "KernelCall", "called"]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """The call of a kernel.

    Args:
        outs: Buffers that it writes to memory, in step order; behind them those that its launches hand on.
        operands: Buffers that it reads from memory, sorted.
        origins: User lines; not part of equality.
    """

    outs: tuple[str, ...]
    operands: tuple[str, ...]
    origins: tuple[Origin, ...] = field(default=(), compare=False)

    def writes(self) -> tuple[str, ...]:
        """Return the buffers that it writes."""
        return self.outs

    def reads(self) -> frozenset[str]:
        """Return the buffers that it reads."""
        return frozenset(self.operands)


@dataclass(frozen=True, slots=True)
class Called:
    """A program whose kernels are calls.

    Args:
        buffers: Every buffer that a call, the caller or a result has, by name: not those that stay inside of a launch.
        inputs: As those of a `Program`, and so are the other fields but `items`.
        items: In execution order.
    """

    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    items: tuple[KernelCall | Extern, ...]
    outputs: tuple[Any, ...]
    facts: SizeFacts = field(default_factory=SizeFacts)
    placement: Placement | None = None
    constants: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def called(program: Program, shared: Collection[str] = ()) -> Called:
    """Return what the caller sees of a program of kernels.

    Args:
        program: Its nests are in kernels.
        shared: Local buffers that launches of one kernel hand on, for which the caller makes room.

    Raises:
        InvalidArgumentError: It has nests outside of kernels.

    Example:
        >>> from intarsia_loops import from_fx, kernels
        >>> text = '''// dialect: kernels 2
        ... graph(%x: f32[4]) {
        ...   kernel[i0: 4] {
        ...     local %y: f32[4] = map[i0: 4] neg(load(%x, i0))
        ...     %z: f32[4] = map[i0: 4] exp(load(%y, i0))
        ...   }
        ...   return (%z,)
        ... }
        ... '''
        >>> seen = called(from_fx(kernels.parse_ir(text)))
        >>> seen.items, list(seen.buffers)
        ((KernelCall(outs=('z',), operands=('x',), origins=()),), ['x', 'z'])
    """
    items = tuple(_item(item, shared) for item in program.items)
    local = {name for item in program.items if isinstance(item, Kernel) for name in item.local}.difference(shared)
    buffers = {name: buffer for name, buffer in program.buffers.items() if name not in local}
    return Called(
        MappingProxyType(buffers),
        program.inputs,
        items,
        program.outputs,
        program.facts,
        program.placement,
        program.constants,
    )


def _item(item: object, shared: Collection[str]) -> KernelCall | Extern:
    if isinstance(item, Kernel):
        handed_on = tuple(s.out for s in item.steps if s.out in item.local and s.out in shared)
        return KernelCall((*item.writes(), *handed_on), tuple(sorted(item.reads())), item.origins)
    if not isinstance(item, Extern):
        raise InvalidArgumentError(
            "a program whose caller is asked for has a nest outside of kernels", code="loops.called"
        )
    return item
