"""A second process with a filled cache runs no pass and builds no kernel, and its results are the same bit for bit.

What a process does is in `main`: it compiles random programs and prints, as JSON, what became of each.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

N_PROGRAMS = int(os.environ.get("INTARSIA_WARM_PROGRAMS", "4"))
DEVICE = os.environ.get("INTARSIA_WARM_DEVICE", "cpu")

UNARY = [
    torch.sin,
    F.gelu,
    lambda x: x.softmax(-1),
    lambda x: x - x.mean(0, keepdim=True),
    lambda x: x.t(),
    lambda x: torch.cat([x[:, 1:], x[:, :1]], 1),
    lambda x: x.reshape(-1)[: x.shape[0]].sum() + x,
    lambda x: x.clone().mul_(2.0).add_(1.0),
    lambda x: F.dropout(x, 0.25),
    lambda x: F.layer_norm(x, (x.shape[-1],)),
    lambda x: x.max(0).values + x,
    lambda x: x.to(torch.float64).mul(0.5).to(torch.float32),
    lambda x: x + torch.tensor([0.5, -1.0, 2.0, 0.25], device=x.device),
    lambda x: x[torch.arange(3, -1, -1)],
    lambda x: x * x.shape[0],
]
BINARY = [
    torch.add,
    lambda x, y: x @ y.t() @ y,
    lambda x, y: torch.where(x > 0, x, y),
    lambda x, y: x.clone().copy_(y) * x,
]


def program_of(seed):
    """Return a function of some tensors of (n, n), and how many it takes; it may write its last one."""
    draw = random.Random(seed)
    n_inputs, n_steps, writes = draw.randint(1, 3), draw.randint(1, 6), draw.random() < 0.4
    steps = [
        (draw.choice(UNARY + BINARY), draw.randrange(n_inputs + k), draw.randrange(n_inputs + k))
        for k in range(n_steps)
    ]
    outputs = [draw.randrange(n_inputs + n_steps) for _ in range(draw.randint(0, 2))]

    def program(*inputs):
        values = list(inputs)
        for step, first, second in steps:
            values.append(step(values[first], values[second]) if step in BINARY else step(values[first]))
        if writes:
            inputs[-1].detach().add_(values[-1].detach().mean())
        return (*[values[o] for o in outputs], values[-1].sum())

    return program, n_inputs


def digest(values):
    """Return a hash of the bits of tensors."""
    hashed = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            hashed.update(f"{value.dtype} {tuple(value.shape)} {value.stride()}".encode())
            hashed.update(value.detach().cpu().contiguous().numpy().tobytes())
        else:
            hashed.update(repr(value).encode())
    return hashed.hexdigest()


def outcome(seed, *, train, dynamic):
    """Compile and run one program; return what it gave, and what became of its graphs."""
    import intarsia

    program, n_inputs = program_of(seed)
    torch.manual_seed(seed)
    leaves = [torch.randn(4, 4, requires_grad=train, device=DEVICE) for _ in range(n_inputs)]
    inputs = [x * 1 for x in leaves]
    with torch.set_grad_enabled(train):
        explained = intarsia.explain(program, dynamic=dynamic, options={"on_error": "raise"})(*inputs)
    results = [*explained.result, *inputs]
    if train and (loss := explained.result[-1]).requires_grad:
        try:
            loss.backward()
        except RuntimeError as error:  # a program may write what autograd needs, which eager refuses as well
            results.append(str(error))
        results += [leaf.grad for leaf in leaves]
    return {
        "results": digest(results),
        "warm": [graph.warm for graph in explained.graphs],
        "stages": sorted({stage for graph in explained.graphs for stage in graph.seconds}),
        "kernels": [len(graph.kernels) for graph in explained.graphs],
        "calls": [graph.extern_calls for graph in explained.graphs],
        "plans": [[plan.to_json() for plan in (*graph.plans, *graph.schedules)] for graph in explained.graphs],
        "facts": [repr(graph.facts) for graph in explained.graphs],
    }


def main(train, dynamic, n_programs):
    """Print what became of the first programs, and how often the compiler ran."""
    import intarsia_runtime

    building = sys.modules[intarsia_runtime.build.__module__]
    built, compiled = [], building.compile_shared_object

    def counted(*args, **kwargs):
        built.append(1)
        return compiled(*args, **kwargs)

    building.compile_shared_object = counted
    outcomes = [outcome(seed, train=train == "1", dynamic=dynamic == "1") for seed in range(int(n_programs))]
    print(json.dumps({"outcomes": outcomes, "n_built": len(built)}))


def in_process(folder, train, dynamic, n_programs=N_PROGRAMS, **variables):
    """Return what a process with its cache in `folder` prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "INTARSIA_CACHE_DIR": str(folder), **variables}
    if "INTARSIA_WARM_START" not in variables:
        environment.pop("INTARSIA_WARM_START", None)
    arguments = [str(int(value)) for value in (train, dynamic, n_programs)]
    command = [sys.executable, "-W", "error::RuntimeWarning", __file__, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_a_second_process_runs_no_pass(tmp_path, train, dynamic):
    check_second_process(tmp_path, train, dynamic)


def check_second_process(folder, train, dynamic, **variables):
    """Raise an AssertionError unless the second of two processes finds what the first one compiled."""
    cold, warm = (in_process(folder, train, dynamic, **variables) for _ in range(2))
    assert cold["n_built"] and not warm["n_built"]
    for before, after in zip(cold["outcomes"], warm["outcomes"], strict=True):
        assert before["warm"] and set(before["warm"]) == {"kept"} and set(after["warm"]) == {"found"}
        assert "lower" in before["stages"] and after["stages"] == ["warm start"]
        for same in ("results", "kernels", "calls", "plans", "facts"):
            assert before[same] == after[same], same


def test_it_is_switched_off_by_the_environment(tmp_path):
    for _ in range(2):
        done = in_process(tmp_path, False, False, 1, INTARSIA_WARM_START="0")
        assert all(set(outcome["warm"]) == {""} and "lower" in outcome["stages"] for outcome in done["outcomes"])


if __name__ == "__main__":
    main(*sys.argv[1:])
