"""What profilers are shown of a compiled graph: a range for the graph and for each kernel, named after user lines.

    def run(x, w):
        if _profiled(): return _ranged(x, w)        costs 0.1 us
        ...
        _seg0(x.data_ptr(), y.data_ptr())

    def run(x, w):                                  the same, made when a profiler asks for the first time
        with _range("intarsia graph f"):
            ...
            with _range("intarsia kernel seg0: model.py:12 (tanh, mul)"):
                _seg0(x.data_ptr(), y.data_ptr())

The ranges are torch's own, so they come out wherever torch's profilers put theirs: tables, traces, NVTX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.profiler import record_function

from intarsia_ir.meta import function_of
from intarsia_ir.records import Origin, Role, Signature
from intarsia_ir.where import lines_with_ops

__all__ = ["RangedLine", "graph_name", "in_range", "is_profiled", "kernel_label", "ranged"]

LONGEST = 200  # characters of a name

is_profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled


class RangedLine(str):
    """A line of a generated function that has a range of its own.

    Attributes:
        label: The name of the range.
    """

    label: str

    def __new__(cls, text: str, label: str) -> RangedLine:
        """Return `text` with a label."""
        line = super().__new__(cls, text)
        line.label = label
        return line


def ranged(lines: Iterable[str]) -> list[str]:
    """Return lines with the labels among them made ranges, which the function knows as `_range`.

    Example:
        >>> ranged(["a()", RangedLine("b()", "kernel b")])
        ['a()', "with _range('kernel b'):", '    b()']
    """
    result: list[str] = []
    for line in lines:
        result += [f"with _range({line.label!r}):", f"    {line}"] if isinstance(line, RangedLine) else [line]
    return result


def graph_name(gm: fx.GraphModule, signature: Signature) -> str:
    """Return what profilers call a graph: the function that it comes from, and whether it is the backward half."""
    is_backward = any(spec.role is Role.TANGENT for spec in signature.inputs)
    return function_of(gm) + " backward" * is_backward


def kernel_label(entry: str, origins: Iterable[Origin]) -> str:
    """Return the name of a kernel's range.

    Example:
        >>> kernel_label("seg0", [Origin("/a/model.py", 12, "f", "tanh"), Origin("/a/model.py", 12, "f", "mul")])
        'intarsia kernel seg0: model.py:12 (tanh, mul)'
    """
    lines = lines_with_ops(origins)
    name = f"intarsia kernel {entry}: {lines}" if lines else f"intarsia kernel {entry}"
    return name if len(name) <= LONGEST else name[: LONGEST - 4] + " ..."


def in_range(run: Callable[..., Sequence[Any]], label: str) -> Callable[..., Sequence[Any]]:
    """Return `run` with a range around each call that is profiled."""

    def call(*inputs: Any) -> Sequence[Any]:
        if not is_profiled():
            return run(*inputs)
        with record_function(label):
            return run(*inputs)

    return call
