"""Check the packages on a machine with an NVIDIA GPU, from the source tree: `python tools/gpu_check.py --part N`.

Needs a C++ compiler, torch with CUDA, triton, and the `bytecode` package. Each part ends in less than 8 minutes and
appends one JSON object a case to `$OUT/gpu_part<N>.json`, so a run that is stopped keeps what it measured. Run again, a
part leaves out the cases that passed before, in `$OUT` or in a folder named by `--resume`, unless they are asked for by
name.

Parts:
  1  demo models in float32 inference: equal to eager, kernels, extern calls, microseconds
  2  the kernels of benchmarks/kernels.py beside the bandwidth floor, without torch.compile
  3  demo models in training: loss and gradients equal to eager's, one graph, microseconds of a step
  4  torch's operator samples in float32 and bfloat16, a stride of them, on the GPU
  5  the tests of packages whose code runs on this machine's Python: frame hook, tracer, guards, Triton, runtime
  6  whole models in bfloat16 beside eager, without torch.compile
  7  integration/gpu: what only a GPU shows, among it random programs on CUDA against the loops interpreter; what needs
     two where there are two
  8  programs over the CPU and the GPU at once, in inference and training: equal to eager on the same devices
  9  every operator with inputs of every layout on the GPU, in eight shards; rows in `$OUT/layouts_<shard>.jsonl`

Parts 4, 5, 7 and 9 need `expecttest`, `hypothesis` and pytest; 6 needs transformers and timm.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(p) for p in ROOT.glob("packages/*/src"))]

import torch  # noqa: E402  (after the source tree)

# no case is started after this
LIMIT_S = 400
STRIDES = {"float32": 6, "bfloat16": 12}
PACKAGES = ("framehook", "pyeval", "tensorcapture", "guards", "triton", "runtime")


def main(arguments: list[str]) -> int:
    folder = Path(os.environ.get("OUT", "."))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, required=True, choices=sorted(PARTS))
    parser.add_argument("names", nargs="*", help="only these cases")
    parser.add_argument("--resume", type=Path, default=folder, metavar="FOLDER", help="with more rows of earlier runs")
    options = parser.parse_args(arguments)
    for extension in ("intarsia_framehook", "intarsia_guards"):
        subprocess.run([sys.executable, "-m", f"{extension}.build"], check=True, env=environment())
    out = folder / f"gpu_part{options.part}.json"
    names, part = PARTS[options.part]
    left = options.names or remaining(names(), (options.resume / out.name, out))
    failed, start = 0, time.monotonic()
    with out.open("a", encoding="utf-8") as file:
        for number, row in enumerate(part(left) if left else (), 1):
            failed += "error" in row
            print(json.dumps(row), flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()
            if time.monotonic() - start > LIMIT_S and number < len(left):
                failed += 1
                print(f"stopped after {LIMIT_S} s: run it again for the other cases", flush=True)
                break
    return 1 if failed else 0


def remaining(names: Iterable[str], earlier: Iterable[Path]) -> list[str]:
    """Return the cases whose last row in earlier runs, the latest last, doesn't show that they passed."""
    texts = [path.read_text(encoding="utf-8") for path in earlier if path.exists()]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    last = {next(iter(row.values())): row for row in rows}
    passed = {name for name, row in last.items() if "error" not in row}
    print(f"{len(passed)} cases passed before", flush=True)
    return [name for name in names if name not in passed]


def environment() -> dict[str, str]:
    """Return the environment of a child process that must find the source tree."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def model_names() -> list[str]:
    from integration.models import EXTRA, MODELS

    return [*MODELS, *(spec.name for spec in EXTRA)]


def models(names: list[str]) -> Iterator[dict[str, Any]]:
    """Compile each demo model for the GPU and compare it with eager."""
    import intarsia
    from integration.models import make

    for name in names:
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


def kernel_names() -> list[str]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from kernels import KERNELS

    return [case.name for case in KERNELS]


def kernels(names: list[str]) -> Iterator[dict[str, Any]]:
    """Check and time the kernels of the figures."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import gpu

    return gpu.measure(names)


def training(names: list[str]) -> Iterator[dict[str, Any]]:
    """Compile forward and backward pass of each demo model that has parameters, and compare them with eager."""
    import intarsia
    from integration.models import make

    for name in names:
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
    """Sweep a stride of torch's operators on the GPU, or the operators named, in one type or both."""
    ops = [word for name in names if name not in STRIDES for word in ("--op", name)]
    for dtype, stride in STRIDES.items():
        if dtype not in names and not ops:
            continue
        command = ["-m", "integration.opinfo", "--device", "cuda", "--dtype", dtype, "--stride", str(stride)]
        yield {"operators": dtype, **child([*command, "--jobs", "6", *ops], limit_s=240)}


def tests(names: list[str]) -> Iterator[dict[str, Any]]:
    """Run the tests of the packages named, all at a time; Triton's in its interpreter, on the CPU."""
    with ThreadPoolExecutor(len(names)) as pool:
        running = {
            pool.submit(child, ["-m", "pytest", "-q", "tests"], limit_s=420, folder=f"packages/{name}"): name
            for name in names
        }
        for done in as_completed(running):
            yield {"tests": running[done], **done.result()}


def on_gpu(names: list[str]) -> Iterator[dict[str, Any]]:
    """Run the tests that need a GPU, a file at a time."""
    for name in names:
        yield {"gpu": name, **child(["-m", "pytest", "-q", f"integration/gpu/{name}.py"], limit_s=300)}


def on_gpu_names() -> list[str]:
    names = sorted(path.stem for path in (ROOT / "integration" / "gpu").glob("test_*.py"))
    return [name for name in names if name != "test_two_devices" or torch.cuda.device_count() > 1]


def child(command: list[str], *, limit_s: float, folder: str = ".") -> dict[str, Any]:
    """Run Python in a process of its own; its last lines are the result, an exit status but 0 is an error."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT / folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as expired:
        said = (expired.stdout or b"").decode(errors="replace").splitlines()
        return {"seconds": limit_s, "output": said[-12:], "error": f"not done after {limit_s} s"}
    tail = done.stdout.splitlines()[-12:]
    row: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 1), "output": tail}
    if done.returncode:
        row["error"] = f"exit status {done.returncode}: {done.stderr[-1000:]}"
    return row


def layouts(names: list[str]) -> Iterator[dict[str, Any]]:
    """Sweep a shard of the operators, named by its number, over layouts on the GPU."""
    for name in names:
        path = (Path(os.environ.get("OUT", ".")) / f"layouts_{name}.jsonl").resolve()
        command = ["-m", "integration.layouts", "--device", "cuda", "--shard", f"{name}/{LAYOUT_SHARDS}"]
        limits = ["--jobs", str(min(12, os.cpu_count() or 1)), "--seconds", "150", "--json", str(path), "--resume"]
        yield {"layouts": name, **child([*command, *limits], limit_s=240)}


LAYOUT_SHARDS = 8


def whole_model_names() -> list[str]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import gpu_models

    return [*gpu_models.MODELS]


def whole_models(names: list[str]) -> Iterator[dict[str, Any]]:
    """Check and time whole models in bfloat16."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import gpu_models

    for name in names:
        yield gpu_models.row(name)


def mixed_names() -> list[str]:
    from integration.gpu.mixed import PROGRAMS

    return [*PROGRAMS]


def mixed(names: list[str]) -> Iterator[dict[str, Any]]:
    """Compile each program over both devices and compare it with eager."""
    from integration.gpu.mixed import check

    for name in names:
        try:
            yield {"mixed": name, **check(name)}
        except Exception as error:  # the other programs must still run; the failure is a row and the exit status
            yield {"mixed": name, "error": f"{type(error).__name__}: {error}"[:2000]}


# part -> all its cases, and what runs those named
PARTS: dict[int, tuple[Callable[[], Iterable[str]], Callable[[list[str]], Iterator[dict[str, Any]]]]] = {
    1: (model_names, models),
    2: (kernel_names, kernels),
    3: (model_names, training),
    4: (lambda: STRIDES, operators),
    5: (lambda: PACKAGES, tests),
    6: (whole_model_names, whole_models),
    7: (on_gpu_names, on_gpu),
    8: (mixed_names, mixed),
    9: (lambda: map(str, range(LAYOUT_SHARDS)), layouts),
}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
