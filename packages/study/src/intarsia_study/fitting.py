"""Prices of what a schedule makes, fitted to measured kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from intarsia_ir.records import Target
from intarsia_scheduler import WalkPrices
from intarsia_scheduler.costs.prices import SHARPNESS, Counts

__all__ = ["fitted_prices"]

# errors count relative to the time of a kernel, or to this, in microseconds, which is about what a clock tells apart
LEAST_US = 4.0
# nanoseconds below which a thing has no price
FREE = 1e-9
# what kernels of one thread never do; its price stays what the peaks say
OF_THREADS = "wake"


def fitted_prices(samples: Sequence[tuple[Counts, float]], machine: str, target: Target) -> WalkPrices:
    """Return prices by which measured kernels take as long as they did: least squares of relative errors.

    Args:
        samples: What is counted of a kernel, and its microseconds.
        machine: What was measured, for people.
        target: What for.

    Raises:
        ValueError: There are no samples.
    """
    if not samples:
        raise ValueError("no kernel was measured")
    start = WalkPrices.of(target)
    seen = [name for group in start.groups for name in group if any(counts.get(name) for counts, _ in samples)]
    counted = torch.tensor([[counts.get(n, 0.0) for n in seen] for counts, _ in samples], dtype=torch.float64)
    ns = torch.tensor([1e3 * us for _, us in samples], dtype=torch.float64)
    weight = ns.clamp_min(1e3 * LEAST_US)
    known = dict(start.ns)
    # the logarithm keeps prices positive
    logs = torch.tensor([known.get(n, 1.0) for n in seen], dtype=torch.float64).log().requires_grad_()
    masks = [torch.tensor([n in group for n in seen], dtype=torch.float64) for group in start.groups]

    def error() -> torch.Tensor:
        parts = counted * logs.exp()
        *overlapping, rest = [parts @ mask for mask in masks]
        powers = sum(((t + 1e-3) ** SHARPNESS for t in overlapping), torch.zeros_like(ns))
        return (((rest + powers ** (1 / SHARPNESS) - ns) / weight) ** 2).sum()

    _descend(error, logs)
    found = dict(zip(seen, logs.exp().tolist(), strict=True))
    if OF_THREADS in known:
        found.setdefault(OF_THREADS, known[OF_THREADS])
    ns_found = [(n, float(f"{p:.5g}") if p > FREE else 0.0) for n, p in found.items()]
    return WalkPrices(machine, start.groups, tuple(ns_found))


def _descend(error: Any, logs: torch.Tensor) -> None:
    """Move logarithms of prices to where an error is least."""
    with torch.enable_grad():
        descent = torch.optim.LBFGS([logs], max_iter=400, line_search_fn="strong_wolfe")

        def step() -> torch.Tensor:
            descent.zero_grad()
            found: torch.Tensor = error()
            found.backward()  # type: ignore[no-untyped-call]
            return found

        descent.step(step)  # type: ignore[no-untyped-call]
    logs.requires_grad_(False)
