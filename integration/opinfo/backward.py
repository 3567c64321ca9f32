"""Gradients of torch's operators: samples in eager and compiled, outputs and gradients compared.

`python -m integration.opinfo.backward [--stride N] [--offset N] [--limit N] [--backend NAME]` prints a line for each
sample that isn't right and the counts; a wrong gradient, a crash or a fallback fails.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

import intarsia


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.opinfo.backward", description=__doc__)
    parser.add_argument("--stride", type=int, default=43, help="take every n-th sample")
    parser.add_argument("--offset", type=int, default=7, help="the first one taken")
    parser.add_argument("--limit", type=int, default=400, help="stop after so many")
    parser.add_argument("--backend", default="aten", help="as for intarsia.compile")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    for number, (name, function, arguments) in enumerate(samples(options.stride, options.offset)):
        if number == options.limit:
            break
        verdict, reason = judge(function, arguments, options.backend)
        counts[verdict] += 1
        if verdict != "right":
            print(f"{verdict:<12} {name}: {reason}"[:300].replace("\n", " "), flush=True)
    print(dict(counts))
    return int(bool(counts["wrong"] or counts["crash"] or counts["fallback"]))


def samples(stride: int, offset: int) -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Yield name, function and arguments of every n-th float32 sample of the operators that have a backward pass."""
    from torch.testing._internal.common_methods_invocations import op_db

    number = -1
    for op in op_db:
        if not op.supports_autograd or torch.float32 not in op.dtypes:
            continue
        try:
            found = list(op.sample_inputs("cpu", torch.float32, requires_grad=True))
        except (RuntimeError, ValueError, ImportError):  # some samples need a library that isn't there
            continue
        for position, sample in enumerate(found):
            number += 1
            if number % stride == offset:
                name = f"{op.name}.{op.variant_test_name}[{position}]"
                yield name, applied(op.op), (sample.input, sample.args, sample.kwargs)


def applied(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, args, kwargs: op(x, *args, **kwargs)


def judge(function: Callable[..., Any], arguments: Any, backend: str) -> tuple[str, str]:
    """Return "right", "wrong", "unsupported", "crash", "fallback" or "raises" (eager does), and why."""
    try:
        expected = run(function, arguments)
    except (RuntimeError, ValueError, TypeError) as error:
        return "raises", str(error)
    intarsia.reset()
    try:
        actual = run(intarsia.compile(function, backend=backend, options={"on_error": "raise"}), arguments)
    except intarsia.UnsupportedError as error:
        return "unsupported", f"{error.code} {error}"
    except Exception as error:
        return "crash", f"{type(error).__name__} {error}"
    try:
        compare(expected, actual)
    except AssertionError as error:
        return "wrong", str(error)
    stats = intarsia.stats()
    return ("fallback", str(stats)) if stats.fallbacks or not stats.graphs else ("right", "")


def run(call: Callable[..., Any], arguments: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs and gradients on fresh leaves, with the same random numbers each time."""
    x, args, kwargs = tree_map(fresh, arguments)
    leaves = [t for t in tree_leaves((x, args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.manual_seed(0)
    outputs = tree_leaves(call(x, args, kwargs))
    graded = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    torch.manual_seed(1)
    tangents = [torch.randn_like(o) for o in graded]
    gradients = torch.autograd.grad(graded, leaves, tangents, allow_unused=True) if graded and leaves else ()
    return outputs, list(gradients)


def fresh(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def compare(expected: tuple[list[Any], list[Any]], actual: tuple[list[Any], list[Any]]) -> None:
    for a, b in zip([*expected[0], *expected[1]], [*actual[0], *actual[1]], strict=True):
        if isinstance(a, torch.Tensor):
            assert isinstance(b, torch.Tensor), "a tensor is missing"
            torch.testing.assert_close(b, a, equal_nan=True)
            assert a.requires_grad == b.requires_grad, "requires_grad differs"
        else:
            assert a == b or (a != a and b != b), f"{a!r} became {b!r}"


if __name__ == "__main__":
    raise SystemExit(main())
