"""Running a whole program item by item: the interpreter that both dialects share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Origin
from intarsia_ir.stepping import Step, Watch
from intarsia_loops._text import item_text
from intarsia_loops.evaluate import called, laid_out, on, read_size, run_kernel, run_nest, size_of, tensor_of
from intarsia_loops.index import IndexExpr
from intarsia_loops.program import Buffer, Extern, Item, Kernel, Nest, Program, TensorRef
from intarsia_loops.shown import makers, shown_by, symbols_of

__all__ = ["bind", "bind_results", "origins_of", "output_of", "run_program"]


def run_program(program: Program, args: Iterable[Any], watch: Watch | None = None) -> tuple[Any, ...]:
    """Return the outputs of a program for these inputs; with a placement, through an arena laid out by it.

    Args:
        program: A program of the loops or of the kernels dialect.
        args: One tensor per input buffer and one int per size symbol, in the order of `program.inputs`.
        watch: Told of each item, right after it was run.

    Raises:
        InvalidArgumentError: The number of arguments is wrong, or a size can't be found in them.
    """
    memory = {name: _placed(value, program.buffers[name]) for name, value in program.constants.items()}
    sizes = bind(program, list(args), memory)
    arena = _Arena(program, sizes)
    for item in program.items:
        if isinstance(item, Nest):
            results = {item.out: run_nest(item, program.buffers[item.out], memory, sizes)}
            memory[item.out] = arena.hold(item.out, results[item.out])
        elif isinstance(item, Kernel):
            results = run_kernel(item, program.buffers, memory, sizes)
            for name in item.writes():
                memory[name] = arena.hold(name, results[name])
        else:
            results = bind_results(item, program.buffers, memory, sizes)
            memory.update(results)
        if watch is not None:
            watch(Step(item_text(item, program.buffers), results, {**sizes, **memory, **results}, origins_of(item)))
    return tuple(output_of(value, memory, sizes) for value in program.outputs)


def origins_of(item: Item) -> tuple[Origin, ...]:
    """Return the user's lines that an item comes from; of a kernel, those of its steps."""
    parts = item.steps if isinstance(item, Kernel) else (item,)
    return tuple(dict.fromkeys(origin for part in parts for origin in part.origins))


def bind_results(
    item: Extern, buffers: Mapping[str, Buffer], memory: Mapping[str, torch.Tensor], sizes: dict[str, int]
) -> dict[str, torch.Tensor]:
    """Run an extern call, note the values of the size symbols that its results show, and return its tensors.

    Raises:
        RuntimeFault: A result isn't what is known of its size.
    """
    result = called(item, memory, sizes)
    for shown in shown_by(item.outs, buffers):
        if shown.symbol not in sizes:
            sizes[shown.symbol] = read_size(shown, result[shown.name])
    # a library gives no workspace where it needs none
    given = {name: tensor for name, tensor in result.items() if name in buffers and tensor is not None}
    return {name: laid_out(tensor, buffers[name], sizes) for name, tensor in given.items()}


def output_of(value: Any, memory: Mapping[str, torch.Tensor], sizes: Mapping[str, int]) -> Any:
    """Return what a caller gets for an output of a program."""
    if isinstance(value, TensorRef):
        return tensor_of(value, memory, sizes)
    return size_of(value, sizes) if isinstance(value, IndexExpr) else value


def bind(program: Program, args: list[Any], memory: dict[str, torch.Tensor]) -> dict[str, int]:
    """Put tensors into memory and find the value of every size symbol."""
    if len(args) != len(program.inputs):
        raise InvalidArgumentError(
            f"the program takes {len(program.inputs)} inputs, not {len(args)}", code="loops.arguments"
        )
    sizes: dict[str, int] = {}
    for name, value in zip(program.inputs, args, strict=True):
        if name in program.buffers:
            memory[name] = _placed(value, program.buffers[name])
        else:
            sizes[name] = int(value)
    for shown in shown_by(memory, program.buffers):
        sizes.setdefault(shown.symbol, read_size(shown, memory[shown.name]))
    missing = symbols_of(program.buffers.values()) - sizes.keys() - makers(program).keys()
    if missing:
        raise InvalidArgumentError(f"no input has the size {min(missing)}", code="loops.arguments")
    return sizes


def _placed(value: torch.Tensor, buffer: Buffer) -> torch.Tensor:
    """Return an input or constant where the program reads it: numbers on the CPU may be read on another device."""
    return value if buffer.device == "cpu" else value.to(buffer.device)


class _Arena:
    """The memory of placed buffers. It starts full of a pattern, so that reading before writing shows."""

    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        self._program, self._sizes = program, sizes
        self._offsets = program.placement.offsets if program.placement else {}
        n_bytes = program.placement.arena_bytes if program.placement else 0
        with on(next((program.buffers[name].device for name in self._offsets), "cpu")):
            self._bytes = torch.full((n_bytes,), 0xA5, dtype=torch.uint8)

    def hold(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor where the plan puts it; itself when the buffer isn't placed."""
        if name not in self._offsets:
            return tensor
        dtype = dtype_from_name(self._program.buffers[name].dtype)
        start, span = self._offsets[name], _span(tensor) * dtype.itemsize
        place = (
            self._bytes[start : start + span]
            .view(dtype)
            .as_strided(tensor.shape, tensor.stride(), start // dtype.itemsize)
        )
        return place.copy_(tensor)


def _span(tensor: torch.Tensor) -> int:
    """Elements from the first to the last one in memory."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
