"""Kernels in Triton; on a CPU they are interpreted, which is asked for before Triton is imported."""

from __future__ import annotations

import importlib

import torch

from integration.extend.programs.record import both, equal, equal_gradients


def library():
    """Return the module with the kernels."""
    return importlib.import_module("integration.extend.kernels")


def launched(name):
    def run(compile_):
        function, sizes, *_ = library().PROGRAMS[name]
        equal(compile_(function), function, *[torch.randn(size) for size in sizes])

    return run


@both("kernel", "in an autograd.Function, trained")
def trained(compile_):
    layer = library().Scale
    function = lambda x: (layer.apply(x.sin(), 3.0) + 1).square().sum()
    equal_gradients(compile_(function), function, torch.randn(40))


EXTENSIONS = [
    both("kernel", "a grid that is a function")(launched("grid of a function")),
    both("kernel", "autotuned")(launched("tuned")),
    both("kernel", "with heuristics")(launched("heuristics")),
    trained,
    both("kernel", "launched by an operator")(launched("in an operator")),
]
