"""What a compiled call and a capture cost besides the work: guards, the call itself, tracing; beside torch.compile.

`python benchmarks/overhead.py` prints these lines of the scorecard alone. All sides run in one process, in turns; a
figure is the median of rounds, with their range.
"""

from __future__ import annotations

import functools
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import torch

__all__ = ["calls", "capture", "guards"]

Line = tuple[str, float | str, str]


def guards(quick: bool) -> Iterator[Line]:
    """Nanoseconds of guards: of a small function, and of each Linear layer, as the slope over 1 to 100 layers."""
    import intarsia_guards
    import intarsia_tensorcapture

    def checks(function: Callable[..., object], *arguments: object) -> Iterator[Callable[[], bool]]:
        captured = intarsia_tensorcapture.capture(function, arguments)
        values = (function.__self__, *arguments) if hasattr(function, "__self__") else arguments
        for native in (True, False):
            made = intarsia_guards.build_guards(captured.guards, captured.facts, native=native)
            check, wants_globals = made.frame_check(function.__code__)
            given = (*values, function.__globals__) if wants_globals else values
            assert check(*given)
            yield functools.partial(check, *given)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    x = torch.randn(8)
    native, python = checks(f, x, torch.randn(8))
    yield "guards.two_tensors.ns", 1e9 * per_call(native), f"in Python {1e9 * per_call(python):.0f}"
    with torch.no_grad():
        layers = {n: next(checks(linears(n).forward, x)) for n in DEPTHS}
        slopes = [1e9 * slopes_of(layers)[0] for _ in range(5)]
    yield "guards.linear.ns", statistics.median(slopes), f"<= 300 (100: goal) {spread(slopes)}"


def calls(quick: bool) -> Iterator[Line]:
    """Microseconds of `x + 1` on 8 floats, and a call's slope over Linear layers: eager, ours, torch.compile's."""
    import intarsia

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    x = torch.randn(8)
    ours = intarsia.compile(f, options={"on_error": "raise"})
    theirs = torch.compile(lambda x: x + 1)
    before = intarsia.stats()
    torch.testing.assert_close(ours(x), f(x))
    torch.testing.assert_close(theirs(x), f(x))
    after = intarsia.stats()
    assert after.kernels_generated > before.kernels_generated and after.fallbacks == before.fallbacks
    rounds = [tuple(1e6 * per_call(lambda c=c: c(x)) for c in (f, ours, theirs)) for _ in range(7)]
    for i, name in enumerate(("eager", "compiled", "torch_compile")):
        yield f"call.{name}.us", statistics.median(row[i] for row in rounds), ""
    names = (("ratio_to_eager", "<= 3 (1.2: goal)"), ("torch_compile.ratio_to_eager", ""))
    for i, (name, target) in enumerate(names, 1):
        ratios = [row[i] / row[0] for row in rounds]
        yield f"call.{name}", statistics.median(ratios), f"{target} {spread(ratios)}".strip()
    yield from calls_of_linears(x)


def calls_of_linears(x: torch.Tensor) -> Iterator[Line]:
    """What a layer adds to a call when its graph takes no time: guards, and fetching its parameters."""
    import intarsia

    def no_work(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., tuple[torch.Tensor]]:
        result = (torch.zeros(8),)
        return lambda *args: result

    with torch.no_grad():
        models = {n: linears(n) for n in DEPTHS}
        own = {n: intarsia.compile(m, backend=no_work, options={"on_error": "raise"}) for n, m in models.items()}
        ours = {n: functools.partial(fast, x) for n, fast in own.items()}
        theirs = {n: functools.partial(torch.compile(m, backend=no_work), x) for n, m in models.items()}
        for n in DEPTHS:
            assert torch.equal(ours[n](), theirs[n]())
        rounds = [[1e9 * seconds for seconds in slopes_of(ours, theirs)] for _ in range(5)]
    ratios = [row[0] / row[1] for row in rounds]
    yield "call.linear.ns", statistics.median(row[0] for row in rounds), f"{spread([row[0] for row in rounds])}"
    yield "call.linear.torch_compile.ns", statistics.median(row[1] for row in rounds), ""
    yield "call.linear.ratio", statistics.median(ratios), f"<= 1 (goal) {spread(ratios)}"


DEPTHS = (1, 25, 50, 75, 100)


def linears(n: int) -> torch.nn.Module:
    """Return a model of `n` small Linear layers."""
    return torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(n)))


def slopes_of(*sides: dict[int, Callable[[], object]]) -> list[float]:
    """Return the seconds that one more layer takes, for each side; sides take turns at each depth."""
    fastest = [dict.fromkeys(DEPTHS, math.inf) for _ in sides]
    for _ in range(6):
        for n in DEPTHS:
            for times, calls in zip(fastest, sides):
                times[n] = min(times[n], per_call(calls[n]))
    return [statistics.linear_regression(list(times), list(times.values())).slope for times in fastest]


def spread(values: list[float]) -> str:
    """Return the range of some values."""
    return f"({min(values):.2f}-{max(values):.2f})"


def capture(quick: bool) -> Iterator[Line]:
    """CPU seconds to capture GPT-2 with 12 layers over those of `torch.compile(backend="eager")`, in fresh processes.

    Each process compiles a small function first, so that neither side pays for imports.
    """
    rounds = []
    for _ in range(1 if quick else 5):
        pair = []
        for who in ("own", "torch"):
            done = subprocess.run([sys.executable, __file__, "--capture", who], capture_output=True, text=True)
            if done.returncode:
                yield "capture.gpt2.cpu.ratio", "failed", done.stderr.strip().rpartition("\n")[2]
                return
            pair.append(float(done.stdout.split()[-1]))
        rounds.append(pair)
    ratios = [ours / theirs for ours, theirs in rounds]
    yield "capture.gpt2.cpu.s", statistics.median(r[0] for r in rounds), "ours"
    yield "capture.gpt2.torch_compile.cpu.s", statistics.median(r[1] for r in rounds), ""
    yield "capture.gpt2.cpu.ratio", statistics.median(ratios), f"<= 0.5 (0.25: goal) {spread(ratios)}"


def capture_one(who: str) -> None:
    """Print the CPU seconds of the first call of GPT-2 with 12 layers, compiled without a compiler behind it."""
    from transformers import GPT2Config, GPT2Model

    import intarsia

    def compiled(target: Callable[..., object]) -> Callable[..., object]:
        if who == "torch":
            return torch.compile(target, backend="eager")
        return intarsia.compile(target, backend="eager", fullgraph=True, options={"on_error": "raise"})

    sizes = {"n_layer": 12, "n_embd": 64, "n_head": 4, "vocab_size": 1000, "bos_token_id": 1, "eos_token_id": 1}
    model = GPT2Model(GPT2Config(**sizes, use_cache=False)).eval()
    ids = torch.randint(0, 1000, (2, 16))
    with torch.no_grad():
        compiled(lambda x: x.sin() + 1)(torch.ones(3))
        expected = model(ids)[0]
        fast = compiled(model)
        start = time.process_time()
        got = fast(ids)[0]
        seconds = time.process_time() - start
    torch.testing.assert_close(got, expected)
    print(seconds)


def per_call(call: Callable[[], object], stretches: int = 100) -> float:
    """Return seconds a call: of the fastest of many stretches of half a millisecond.

    Other processes only ever make a stretch slower, and one of them is short enough to run without any.
    """
    count, fastest = 1, math.inf
    for _ in range(stretches):
        start = time.perf_counter()
        for _ in range(count):
            call()
        fastest = min(fastest, (time.perf_counter() - start) / count)
        count = max(1, int(5e-4 / fastest))
    return fastest


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--capture"]:
        capture_one(arguments[1])
        return 0
    for section in (guards, calls, capture):
        for name, value, target in section("--quick" in arguments):
            shown = value if isinstance(value, str) else f"{value:.3f}"
            print(f"{name:<44} {shown:>10}   {target}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
