"""The main job: eight models compiled, checked against eager, and timed beside torch.compile."""

from __future__ import annotations

import torch

import intarsia
from integration.models import PLAIN, make

__all__ = ["run_own"]


def run_own() -> int:
    """Compile the plain models with our own front end alone, and compare with eager; no other compiler is touched.

    Returns:
        0, or 1 when a result differs, a frame breaks, or something falls back.
    """
    failures = 0
    for spec in PLAIN:
        model, inputs = make(spec.name)
        intarsia.reset()
        with torch.no_grad():
            expected = model(*inputs)
            actual = intarsia.compile(model, fullgraph=True, options={"on_error": "raise"})(*inputs)
        torch.testing.assert_close(actual, expected)
        stats = intarsia.stats()
        good = stats.graphs == 1 and stats.fallbacks == 0 and stats.kernels_generated >= 1
        failures += not good
        print(
            f"own {spec.name}: {stats.kernels_generated} kernels, {stats.extern_calls} extern calls"
            f"{'' if good else '  FAILED: ' + str(stats)}"
        )
    return 1 if failures else 0
