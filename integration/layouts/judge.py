"""All layouts of one sample, compiled in one graph and compared with eager; apart where that isn't the same."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

import intarsia
from intarsia_ir.errors import UnsupportedError
from integration.layouts.relaid import LAYOUTS, MIXED, relaid
from integration.opinfo.compare import difference, leaf_difference
from integration.opinfo.judge import SECONDS, UNDEFINED, line, too_long, unexpected
from integration.opinfo.samples import Sample

__all__ = ["DeviceLost", "Judge"]

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


class DeviceLost(Exception):
    """A kernel's assertion failed on the GPU, of which the process makes no use any more: a new one has to go on.

    Args:
        layout: The layout that was run; "all" of them at once.
        verdict: What is to be said of it: it's eager's own, or wrong.
    """

    def __init__(self, layout: str, verdict: dict[str, Any]) -> None:
        super().__init__(f"{layout}: {verdict['why']}")
        self.layout, self.verdict = layout, verdict


class Judge:
    """Judges samples, one after the other.

    Args:
        dynamic: As for `intarsia.compile`.
        backward: Whether gradients are compared as well.
        inplace: Whether the operator's form that writes its first operand is called.
        backend: What runs the graphs.
    """

    NOTHING_LOST: Mapping[str, dict[str, Any]] = MappingProxyType({})

    def __init__(
        self, *, dynamic: bool | None = None, backward: bool = False, inplace: bool = False, backend: str = "auto"
    ) -> None:
        self.dynamic, self.backward, self.inplace, self.backend = dynamic, backward, inplace, backend
        signal.signal(signal.SIGALRM, too_long)

    def __call__(self, sample: Sample, lost: Mapping[str, dict[str, Any]] = NOTHING_LOST) -> dict[str, dict[str, Any]]:
        """Return layout -> `result` (same, refused, eager or wrong) and why.

        Args:
            sample: What is called.
            lost: Layouts that aren't run, with their results; "all": they aren't run at once.

        Raises:
            DeviceLost: A layout that isn't among them, or all at once, stopped the GPU.
        """
        function = sample.op.inplace_variant if self.inplace else sample.function
        verdicts: dict[str, dict[str, Any]] = {}
        fitting: dict[str, Any] = {}
        for layout in (*LAYOUTS, *MIXED):
            if layout in lost:
                verdicts[layout] = lost[layout]
                continue
            expected = self._run(function, sample, [layout])
            if expected is None:
                continue
            if isinstance(expected, Exception):
                verdicts[layout] = {"result": "eager", "why": line(expected)}
                if self.inplace:
                    verdicts[layout] |= self._raises(function, sample, layout)
            else:
                fitting[layout] = expected
        if len(fitting) > 1 and "all" not in lost:
            together = self._judge(function, sample, list(fitting), None)
            if together["result"] == "same":
                return verdicts | dict.fromkeys(fitting, together)
        for layout, expected in fitting.items():
            verdicts[layout] = self._judge(function, sample, [layout], expected)
        return verdicts

    def run_eager(self, sample: Sample) -> None:
        """Run the sample in eager in every layout, to see whether the process outlives it."""
        function = sample.op.inplace_variant if self.inplace else sample.function
        for layout in (*LAYOUTS, *MIXED):
            self._run(function, sample, [layout])

    def _judge(self, function: Callable[..., Any], sample: Sample, layouts: list[str], expected: Any) -> dict[str, Any]:
        expected = expected if expected is not None else self._run(function, sample, layouts)
        if isinstance(expected, Exception):
            return {"result": "eager", "why": line(expected)}
        signal.alarm(SECONDS)
        try:
            actual = self._run(function, sample, layouts, self._compile(_caller(function)))
            if isinstance(actual, Exception):
                if isinstance(actual, UnsupportedError):
                    return {"result": "refused", "why": actual.code, "message": str(actual)[:400]}
                return {**unexpected(actual), "result": "wrong"}
        except TimeoutError as error:
            return {"result": "wrong", "why": line(error)}
        finally:
            signal.alarm(0)
        stats = intarsia.stats()
        if stats.frames_eager or stats.fallbacks or not stats.graphs:
            return {"result": "refused", "why": "no graph"}
        for layout, a, e in zip(layouts, actual, expected, strict=True):
            inputs = relaid(sample.inputs, layout)
            wrong = self._difference(sample, inputs, a, e)
            if wrong and len(layouts) == 1:
                (again,) = self._run(function, sample, layouts)
                if self._difference(sample, inputs, again, e):
                    return {"result": "eager", "why": "eager differs from itself"}
                if wrong.startswith("input") and self._overwrites(function, sample, layout, e[1]):
                    return {"result": "eager", "why": "eager overwrites an operand, which it keeps on the CPU"}
            if wrong:
                return {"result": "wrong", "why": f"{layout}: {wrong}"}
        return {"result": "same"}

    def _raises(self, function: Callable[..., Any], sample: Sample, layout: str) -> dict[str, Any]:
        """Where eager raises, so must we, or refuse."""
        actual = self._run(function, sample, [layout], self._compile(_caller(function)))
        if isinstance(actual, Exception):
            return {}
        return {"result": "wrong", "why": "eager raises, ours doesn't"}

    def _compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        intarsia.reset()
        options = {"on_error": "raise", "rng": "eager"}
        return intarsia.compile(function, fullgraph=True, dynamic=self.dynamic, backend=self.backend, options=options)

    def _run(
        self, function: Callable[..., Any], sample: Sample, layouts: list[str], call: Callable[..., Any] | None = None
    ) -> Any:
        """Return for each layout (results, operands afterwards, gradients), or the error; None without operands."""
        calls = [relaid(sample.inputs, layout) for layout in layouts]
        if None in calls:
            return None
        torch.manual_seed(0)
        try:
            with torch.set_grad_enabled(self.backward):
                results = (call or _caller(function))(calls)
                runs = [(r, c, self._gradients(r, c)) for r, c in zip(results, calls, strict=True)]
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # what fails there fails here
            return runs
        except Exception as error:  # eager's own error, or what a compiled function makes of it
            if _device_is_lost():
                layout = layouts[0] if len(layouts) == 1 else "all"
                result = "wrong" if call else "eager"
                raise DeviceLost(layout, {"result": result, "why": f"the GPU stopped: {line(error)}"}) from error
            return error

    def _overwrites(self, function: Callable[..., Any], sample: Sample, layout: str, after: Any) -> bool:
        """Tell whether eager writes an operand on a GPU that it leaves alone on the CPU."""
        devices = [t.device.type for t in _tensors(sample.inputs)]
        if "cuda" not in devices or not _changed(after, relaid(sample.inputs, layout)):
            return False
        on_cpu = sample._replace(inputs=pytree.tree_map_only(Tensor, lambda t: t.detach().cpu(), sample.inputs))
        ran = self._run(function, on_cpu, [layout])
        return isinstance(ran, list) and not _changed(ran[0][1], relaid(on_cpu.inputs, layout))

    def _gradients(self, results: Any, inputs: Call, *, narrow: bool = False) -> list[Any]:
        if not self.backward:
            return []
        leaves = [t for t in pytree.tree_leaves(inputs) if isinstance(t, Tensor) and t.requires_grad]
        outputs = [t for t in pytree.tree_leaves(results) if isinstance(t, Tensor) and t.requires_grad]
        if not leaves or not outputs:
            return []
        torch.manual_seed(1)
        gradients = torch.autograd.grad(outputs, leaves, [_tangent(t, narrow) for t in outputs], allow_unused=True)
        # of a running maximum of nothing eager's gradient is the operand itself, which requires grad
        return [g.detach() if g is not None and not g.numel() else g for g in gradients]

    def _difference(self, sample: Sample, inputs: Call, actual: Any, expected: Any) -> str | None:
        values = sample.op.name not in UNDEFINED
        wrong = difference(actual[:2], expected[:2], sample.op.op, inputs, values=values)
        wrong = wrong or _bits(actual[0], expected[0])
        wrong = wrong or (_sharing(actual, expected) if not self.backward else None)
        for k, (a, e) in enumerate(zip(actual[2], expected[2], strict=True)):
            wide = functools.partial(self._wide_gradient, sample, inputs, k)
            wrong = wrong or leaf_difference(_plain(a), _plain(e), values=values, wide=wide)
            wrong = wrong if wrong is None or wrong.startswith("gradient") else f"gradient {k}: {wrong}"
        return wrong

    def _wide_gradient(self, sample: Sample, inputs: Call, position: int) -> Any:
        """Return eager's gradient in double precision, of the same tangents; None where it can't be had."""
        torch.manual_seed(0)
        wide = pytree.tree_map_only(Tensor, _widened, inputs)
        try:
            with torch.enable_grad():
                operand, args, kwargs = wide
                return self._gradients(sample.op.op(operand, *args, **kwargs), wide, narrow=True)[position]
        except (RuntimeError, TypeError, ValueError):  # no kernel for doubles: nothing to compare with
            return None


def _device_is_lost() -> bool:
    """Tell whether this process can use its GPU no more; most errors leave it usable."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _changed(after: Any, before: Any) -> bool:
    pairs = zip(_tensors(after), _tensors(before), strict=True)
    return any(leaf_difference(_plain(a), _plain(b), values=True, wide=lambda: None) is not None for a, b in pairs)


def _caller(function: Callable[..., Any]) -> Callable[[list[Call]], list[Any]]:
    def call(calls: list[Call]) -> list[Any]:
        return [function(operand, *args, **kwargs) for operand, args, kwargs in calls]

    return call


def _plain(value: Any) -> Any:
    return value.resolve_conj().resolve_neg() if isinstance(value, Tensor) and value.layout is torch.strided else value


def _tangent(output: Tensor, narrow: bool = False) -> Tensor:
    """Return a tangent with the output's strides where it is dense, as the compiled pass expects it.

    Args:
        output: What the tangent is of.
        narrow: Draw what is drawn for an output of single precision.
    """
    dtype = {torch.float64: torch.float32, torch.complex128: torch.complex64}.get(output.dtype) if narrow else None
    drawn = torch.randn(output.shape, dtype=dtype or output.dtype, device=output.device).to(output.dtype)
    return torch.empty_like(output).copy_(drawn) if output.layout is torch.strided else drawn


def _widened(x: Tensor) -> Tensor:
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        return x.clone()
    wide = x.detach().to(torch.complex128 if x.dtype.is_complex else torch.float64)
    return wide.requires_grad_(x.requires_grad)


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (t for t in pytree.tree_leaves(tree) if isinstance(t, Tensor) and t.layout is torch.strided)


def _bits(actual: Any, expected: Any) -> str | None:
    """Return which result has another bit than eager's."""
    for k, (a, e) in enumerate(zip(_tensors(actual), _tensors(expected), strict=True)):
        if (a.is_conj(), a.is_neg()) != (e.is_conj(), e.is_neg()):
            return f"result {k}: conjugate, negative {a.is_conj()}, {a.is_neg()} instead of {e.is_conj()}, {e.is_neg()}"
    return None


def _sharing(actual: Any, expected: Any) -> str | None:
    """Return where results share memory with operands, or are operands, otherwise than in eager."""
    shown = [[_places(result, run) for result in _tensors(run[0])] for run in (actual, expected)]
    return None if shown[0] == shown[1] else f"shared memory {shown[0]} instead of {shown[1]}"


def _places(result: Tensor, run: Any) -> list[tuple[str, int]]:
    """Return which operands and results a result shares memory with."""
    others = [*enumerate(_tensors(run[1])), *((-1 - k, t) for k, t in enumerate(_tensors(run[0])))]
    storage = result.untyped_storage()._cdata
    return [("is" if t is result else "shares", k) for k, t in others if t.untyped_storage()._cdata == storage]
