"""Backends that take `(gm, example_inputs)`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from integration.extend.programs.record import Extension, both, equal, equal_gradients

sys.path.insert(0, str(Path(__file__).parents[2] / "torch_backends"))


def function(x):
    return torch.softmax(x.sin() * 2, -1).sum()


@both("backend", "a function")
def as_function(compile_):
    seen = []

    def backend(gm, inputs):
        seen.append([node.target for node in gm.graph.nodes if node.op != "output"])
        return gm.forward

    equal(compile_(function, backend=backend), function, torch.randn(3, 4))
    assert len(seen) == 1 and len(seen[0]) >= 4


class Counting:
    """An object that counts calls of what it made."""

    def __init__(self):
        self.n_graphs = self.n_calls = 0

    def __call__(self, gm, inputs):
        self.n_graphs += 1

        def run(*args):
            self.n_calls += 1
            return gm(*args)

        return run


@both("backend", "an object with state")
def as_object(compile_):
    backend = Counting()
    fast = compile_(function, backend=backend)
    for _ in range(3):
        equal(fast, function, torch.randn(3, 4))
    assert (backend.n_graphs, backend.n_calls) == (1, 3)


@both("backend", "torch.jit.trace")
def traced(compile_):
    backend = lambda gm, inputs: torch.jit.trace(gm, tuple(inputs), check_trace=False)
    equal(compile_(function, backend=backend), function, torch.randn(3, 4))


def by_name(compile_):
    equal_gradients(compile_(function, backend="aot_eager"), function, torch.randn(3, 4))


def by_name_ours(compile_):
    import intarsia_torch_backends

    intarsia_torch_backends.register()
    by_name(compile_)


@both("backend", "AOTAutograd around compilers of one's own")
def aot(compile_):
    from torch._dynamo.backends.common import aot_autograd

    seen = []

    def compiler(gm, inputs):
        seen.append(gm)

        def run(args):
            return gm(*args)

        run._boxed_call = True
        return run

    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler)
    equal_gradients(compile_(function, backend=backend), function, torch.randn(3, 4))
    assert len(seen) == 2


named = Extension("backend", "one of torch's, by its name", by_name_ours, by_name)
EXTENSIONS = [as_function, as_object, traced, named, aot]
