"""One sample: compiled and run beside eager, twice; the verdict is told by counters and comparison."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
import torch.utils._pytree as pytree

import intarsia
from intarsia import Stage
from intarsia.levels import Loops
from intarsia_ir.errors import UnsupportedError
from intarsia_loops import from_fx
from intarsia_loops.program import Extern
from intarsia_testkit.differential import clone_all
from integration.opinfo.compare import difference
from integration.opinfo.samples import Sample

__all__ = ["SECONDS", "UNDEFINED", "Judge", "caller", "doubled", "line", "too_long", "unexpected"]

SECONDS = 90
UNDEFINED = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
"""Operators whose values are whatever the memory held: only type and layout are compared."""

CHECKS = ("aten._assert_async.msg", "aten._assert_scalar.default")
"""Calls that compute nothing: they raise where eager would, and what is checked is computed by a kernel."""

COUNTS = frozenset({"lengths", "offsets"})
"""Keyword operands that say how many elements of another one belong together: doubled, they say nothing of it, and
eager reads and writes past the end."""

Inputs = tuple[Any, ...]


class Judge:
    """Judges samples, one after the other.

    Args:
        dynamic: As for `intarsia.compile`.
        twice: Whether the second, doubled shape is run as well.
    """

    def __init__(self, *, dynamic: bool | None, twice: bool) -> None:
        self.dynamic, self.twice = dynamic, twice
        self.externs: list[str] = []
        note = Stage("note", Loops, Loops, self._note, trusted=True)
        self.pipeline = intarsia.default_pipeline().after("lower", note)
        signal.signal(signal.SIGALRM, too_long)

    def _note(self, program: Loops) -> Loops:
        self.externs += [str(i.target) for i in from_fx(program.graph_module).items if isinstance(i, Extern)]
        return program

    @torch.no_grad()
    def __call__(self, sample: Sample) -> dict[str, Any]:
        """Return `result` (generated, extern, unsupported, wrong, or eager where eager itself raises) and details."""
        intarsia.reset()
        self.externs.clear()
        function = caller(sample.function)
        expected = _attempt(function, sample.inputs)
        if isinstance(expected, Exception):
            return {"result": "eager", "why": line(expected)}
        compiled = intarsia.compile(
            function,
            fullgraph=True,
            dynamic=self.dynamic,
            pipeline=self.pipeline,
            options={"on_error": "raise", "rng": "eager"},
        )
        signal.alarm(SECONDS)
        try:
            verdict = self._first(compiled, sample, expected)
            if self.twice and verdict["result"] in ("generated", "extern"):
                verdict |= self._second(compiled, function, sample)
        finally:
            signal.alarm(0)
        return verdict

    def _first(self, compiled: Callable[..., Any], sample: Sample, expected: Any) -> dict[str, Any]:
        found = _run(compiled, sample, sample.inputs, expected)
        stats = intarsia.stats()
        if found is None and (stats.frames_eager or stats.fallbacks or not stats.graphs):
            return {"result": "unsupported", "why": "no graph"}
        if found is not None:
            return found
        called = [name for name in self.externs if name not in CHECKS]
        return {
            "result": "extern" if called else "generated",
            "kernels": stats.kernels_generated,
            "calls": stats.extern_calls,
            "externs": sorted(set(called)),
        }

    def _second(self, compiled: Callable[..., Any], function: Callable[..., Any], sample: Sample) -> dict[str, Any]:
        for inputs in doubled(sample.inputs):
            expected = _attempt(function, inputs)
            if not isinstance(expected, Exception):
                break
        else:
            return {"second": "eager"}
        before = intarsia.stats()
        found = _run(compiled, sample, inputs, expected)
        after = intarsia.stats()
        if found is not None:
            return {**found, "second": "failed"}
        if after.frames_eager > before.frames_eager or after.fallbacks > before.fallbacks:
            return {"result": "unsupported", "why": "no graph", "second": "failed"}
        return {"second": "recompiled" if after.graphs > before.graphs else "same"}


def caller(op: Callable[..., Any]) -> Callable[..., Any]:
    def call(operand: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return op(operand, *args, **kwargs)

    return call


def doubled(inputs: Inputs) -> Iterator[Inputs]:
    """Yield operands that are twice as long, in the last dimension and in the first; none where that has no meaning."""
    if any(isinstance(inputs[-1].get(name), torch.Tensor) for name in COUNTS):
        return

    def double(t: torch.Tensor, dim: int) -> torch.Tensor:
        if not t.dim() or t.layout is not torch.strided:
            return t
        return torch.cat([t.detach(), t.detach()], dim).requires_grad_(t.requires_grad)

    for dim in (-1, 0):
        yield pytree.tree_map_only(torch.Tensor, lambda t, dim=dim: double(t, dim), inputs)


def _attempt(function: Callable[..., Any], inputs: Inputs) -> Any:
    """Result and inputs afterwards of eager, or what it raises."""
    try:
        return _call(function, inputs)
    except Exception as error:  # eager's own error, whatever it is
        return error


def _call(function: Callable[..., Any], inputs: Inputs) -> tuple[Any, Any]:
    leaves, spec = pytree.tree_flatten(inputs)
    copies = pytree.tree_unflatten(
        clone_all(leaves) if all(_plain(x) for x in leaves) else [_clone(x) for x in leaves], spec
    )
    torch.manual_seed(0)
    return function(*copies), copies


def _plain(x: Any) -> bool:
    return not isinstance(x, torch.Tensor) or (x.layout is torch.strided and not x.is_conj() and not x.is_neg())


def _clone(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x


def _run(compiled: Callable[..., Any], sample: Sample, inputs: Inputs, expected: Any) -> dict[str, Any] | None:
    """None when the compiled function does what eager did, else the verdict."""
    try:
        actual = _call(compiled, inputs)
    except UnsupportedError as error:
        return {"result": "unsupported", "why": error.code, "message": str(error)[:600]}
    except Exception as error:
        return unexpected(error)
    wrong = difference(actual, expected, sample.op.op, inputs, values=sample.op.name not in UNDEFINED)
    return {"result": "wrong", "why": wrong} if wrong else None


def unexpected(error: Exception) -> dict[str, Any]:
    """Return the verdict for an error that eager doesn't raise."""
    trace = "".join(traceback.format_exception(error)[-3:])
    return {"result": "wrong", "why": f"raises {line(error)}", "message": trace[-1500:]}


def line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]


def too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"longer than {SECONDS} s")
