"""Check the packages on a machine with an NVIDIA GPU, from the source tree: `python tools/gpu_check.py --part N`.

Needs a C++ compiler, torch with CUDA, triton, and the `bytecode` package. Each part ends in a few minutes and appends
one JSON object a case to `$OUT/gpu_part<N>.json`, so a run that is stopped keeps what it measured.

Parts:
  1  demo models in float32 inference: equal to eager, kernels, extern calls, microseconds
  2  the kernels of benchmarks/kernels.py beside the bandwidth floor, without torch.compile
  3  demo models in training: loss and gradients equal to eager's, one graph, microseconds of a step
  4  torch's operator samples in float32 and bfloat16, a stride of them, on the GPU
  5  the tests of packages whose code runs on this machine's Python: frame hook, tracer, guards, Triton, runtime
  6  whole models in bfloat16 beside eager, without torch.compile

Parts 4 and 5 need `expecttest`, `hypothesis` and pytest; 6 needs transformers and timm.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(p) for p in ROOT.glob("packages/*/src"))]

import torch  # noqa: E402  (after the source tree)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, required=True, choices=sorted(PARTS))
    parser.add_argument("names", nargs="*", help="only these cases")
    options = parser.parse_args(arguments)
    for extension in ("intarsia_framehook", "intarsia_guards"):
        subprocess.run([sys.executable, "-m", f"{extension}.build"], check=True, env=environment())
    out = Path(os.environ.get("OUT", ".")) / f"gpu_part{options.part}.json"
    failed = 0
    with out.open("a", encoding="utf-8") as file:
        for row in PARTS[options.part](options.names):
            failed += "error" in row
            print(json.dumps(row), flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()
    return 1 if failed else 0


def environment() -> dict[str, str]:
    """Return the environment of a child process that must find the source tree."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def models(names: list[str]) -> Iterator[dict[str, Any]]:
    """Compile each demo model for the GPU and compare it with eager."""
    import intarsia
    from integration.models import EXTRA, MODELS, make

    for name in names or [*MODELS, *(spec.name for spec in EXTRA)]:
        model, inputs = make(name)
        model = model.cuda() if isinstance(model, torch.nn.Module) else model
        inputs = torch.utils._pytree.tree_map(lambda v: v.cuda() if isinstance(v, torch.Tensor) else v, inputs)
        intarsia.reset()
        try:
            with torch.no_grad():
                yield {"model": name, **compared(model, inputs)}
        except Exception as error:  # the other models must still run; the failure is a row and the exit status
            yield {"model": name, "error": f"{type(error).__name__}: {error}"[:2000]}


def compared(model: Callable[..., Any], inputs: tuple[Any, ...]) -> dict[str, Any]:
    """Return counts and times of one compiled model.

    Raises:
        AssertionError: It differs from eager.
    """
    import intarsia

    compiled = intarsia.compile(model, options={"on_error": "raise"})
    start = time.perf_counter()
    actual = leaves(compiled(*inputs))
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    torch.testing.assert_close(actual, leaves(model(*inputs)))
    torch.testing.assert_close(leaves(compiled(*inputs)), actual)
    stats = intarsia.stats()
    assert stats.fallbacks == 0 and stats.graphs == 1, stats
    return {
        "first_s": first,
        "kernels": stats.kernels_generated,
        "externs": stats.extern_calls,
        "eager_us": microseconds(lambda: model(*inputs)),
        "ours_us": microseconds(lambda: compiled(*inputs)),
    }


def microseconds(call: Callable[[], Any], rounds: int = 30) -> float:
    """Return the median time between events around a call."""
    for _ in range(5):
        call()
    times = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return statistics.median(times)


def leaves(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def kernels(names: list[str]) -> Iterator[dict[str, Any]]:
    """Check and time the kernels of the figures."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import gpu

    return gpu.measure(names)


def training(names: list[str]) -> Iterator[dict[str, Any]]:
    """Compile forward and backward pass of each demo model that has parameters, and compare them with eager."""
    import intarsia
    from integration.models import MODELS, make

    for name in names or MODELS:
        model, inputs = make(name)
        if not isinstance(model, torch.nn.Module):
            continue
        model = model.cuda().train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        inputs = torch.utils._pytree.tree_map(lambda v: v.cuda() if isinstance(v, torch.Tensor) else v, inputs)
        intarsia.reset()
        try:
            yield {"training": name, **trained(model, inputs)}
        except Exception as error:  # the other models must still run; the failure is a row and the exit status
            yield {"training": name, "error": f"{type(error).__name__}: {error}"[:2000]}


def trained(model: torch.nn.Module, inputs: tuple[Any, ...]) -> dict[str, Any]:
    """Return counts and times of one model's forward and backward pass.

    Raises:
        AssertionError: Loss or gradients are further from float64's than twice eager's own distance.
    """
    import intarsia

    state = {key: value.clone() for key, value in model.state_dict().items()}
    compiled = intarsia.compile(model, options={"on_error": "raise"})
    start = time.perf_counter()
    ours = step(model, compiled, inputs)
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    model.load_state_dict(state)
    theirs = step(model, model, inputs)
    model.load_state_dict(state)
    exact = step(model.double(), model, torch.utils._pytree.tree_map(widened, inputs))
    model.float().load_state_dict(state)
    for a, e, true in zip(ours, theirs, exact, strict=True):
        far, allowed = (a - true).norm(), (e - true).norm()
        assert far <= 2 * allowed + 1e-5 * true.norm(), f"{far:.3g} from float64, eager {allowed:.3g}"
    stats = intarsia.stats()
    assert stats.fallbacks == 0 and stats.graphs == 1, stats
    return {
        "first_s": first,
        "kernels": stats.kernels_generated,
        "externs": stats.extern_calls,
        "eager_us": microseconds(lambda: step(model, model, inputs), rounds=10),
        "ours_us": microseconds(lambda: step(model, compiled, inputs), rounds=10),
    }


def step(model: torch.nn.Module, call: Callable[..., Any], inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    """Return the loss and the gradients of all parameters."""
    model.zero_grad()
    loss = sum(o.square().mean() for o in leaves(call(*inputs)) if o.is_floating_point())
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def widened(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def operators(names: list[str]) -> Iterator[dict[str, Any]]:
    """Sweep a stride of torch's operators on the GPU, or the operators named."""
    ops = [word for name in names for word in ("--op", name)]
    for dtype, stride in (("float32", 6), ("bfloat16", 12)):
        command = ["-m", "integration.opinfo", "--device", "cuda", "--dtype", dtype, "--stride", str(stride)]
        yield {"operators": dtype, **child([*command, "--jobs", "6", *ops], limit_s=240)}


def tests(names: list[str]) -> Iterator[dict[str, Any]]:
    """Run the tests of the packages whose code depends on the machine, or of those named."""
    for package in names or ("framehook", "tracer", "guards", "triton", "runtime"):
        yield {
            "tests": package,
            **child(["-m", "pytest", "-q", "-x", "tests"], limit_s=300, folder=f"packages/{package}"),
        }


def child(command: list[str], *, limit_s: float, folder: str = ".") -> dict[str, Any]:
    """Run Python in a process of its own; its last lines are the result, an exit status but 0 is an error."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT / folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
    tail = done.stdout.splitlines()[-12:]
    row: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 1), "output": tail}
    if done.returncode:
        row["error"] = f"exit status {done.returncode}: {done.stderr[-1000:]}"
    return row


def whole_models(names: list[str]) -> Iterator[dict[str, Any]]:
    """Check and time whole models in bfloat16."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import gpu_models

    for name in names or gpu_models.MODELS:
        yield gpu_models.row(name)


PARTS = {1: models, 2: kernels, 3: training, 4: operators, 5: tests, 6: whole_models}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
