"""Times generated C++ kernels beside eager, interleaved, in one process: `python benchmarks/cpp_kernels.py [--peer]`.

Kernels are built by hand, as the fuser would leave them, so that the figures are about how they run. `--peer` adds
torch.compile. Prints microseconds (medians), the ratio to eager (and to the peer), and the fraction of the copy
bandwidth floor: bytes read and written once over the bandwidth of a large copy measured in the same run.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from intarsia_cpp import emit_unit
from intarsia_ir.dtypes import dtype_name
from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift
from intarsia_loops.program import Buffer, Kernel, Nest, Program, Val, cast, const, load, val
from intarsia_scheduler import scheduled

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Bench:
    """One kernel, its tensors (outputs have names starting with `o`), and the same in torch."""

    name: str
    kernel: Kernel
    tensors: Tensors
    eager: Callable[..., object]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--peer", action="store_true", help="time torch.compile too")
    options.add_argument("--isa", default="avx512")
    options.add_argument("--only", default="", help="cases whose name contains this")
    options.add_argument("--seconds", type=float, default=1.0, help="time per case")
    options.add_argument("--best", action="store_true", help="least times instead of medians, for a busy machine")
    args = options.parse_args()
    target = Target(isa=args.isa, threads=torch.get_num_threads())
    bandwidth = copy_bandwidth()
    print(f"{target.isa}, {target.threads} threads, copy {bandwidth / 1e9:.1f} GB/s")
    heads = f"{'ours us':>9} {'eager us':>9} {'ratio':>6} {'peer us':>9} {'ratio':>6} {'floor':>6} {'g++ s':>6}  error"
    print(f"{'case':28} {heads}")
    with torch.no_grad():
        for bench in benches():
            if args.only in bench.name:
                row(bench, target, bandwidth, args)


def row(bench: Bench, target: Target, bandwidth: float, args: argparse.Namespace) -> None:
    """Time one case and print its line."""
    inputs = [t for n, t in bench.tensors.items() if not n.startswith("o")]
    outputs = [t for n, t in bench.tensors.items() if n.startswith("o")]
    run, build_seconds = build(bench.kernel, bench.tensors, target)
    runs = [run, lambda: bench.eager(*inputs)]
    peer = args.peer
    if peer:
        torch._dynamo.reset()
        compiled = torch.compile(bench.eager)
        runs.append(lambda: compiled(*inputs))
    times = interleaved(runs, args.seconds, min if args.best else statistics.median)
    run()
    error = max_error(outputs, bench.eager(*inputs))
    moved = sum(t.numel() * t.element_size() for t in bench.tensors.values())
    floor = moved / bandwidth * 1e6 / times[0]
    other = f"{times[2]:9.0f} {times[2] / times[0]:6.2f}" if peer else f"{'':9} {'':6}"
    ours = f"{times[0]:9.0f} {times[1]:9.0f} {times[1] / times[0]:6.2f}"
    print(f"{bench.name:28} {ours} {other} {floor:6.2f} {build_seconds:6.2f}  {error:.1e}")


def interleaved(
    runs: list[Callable[[], object]], seconds: float, statistic: Callable[[list[float]], float] = min
) -> list[float]:
    """Return the microseconds of each function; they take turns."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for run, found in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    return [statistic(t) * 1e6 for t in times]


def copy_bandwidth() -> float:
    """Return bytes a second of a copy past the caches, read and written bytes both counted."""
    a, b = torch.ones(1 << 25), torch.ones(1 << 25)
    return 2 * a.numel() * 4 / (interleaved([lambda: b.copy_(a)], 0.5)[0] * 1e-6)


def max_error(outputs: list[torch.Tensor], want: object) -> float:
    """Return the largest difference to eager, relative to the largest value."""
    wanted = want if isinstance(want, (tuple, list)) else [want]
    return max(
        float((o.double() - w.double()).abs().max() / w.double().abs().max().clamp_min(1e-30))
        for o, w in zip(outputs, wanted, strict=True)
    )


def build(kernel: Kernel, tensors: Tensors, target: Target) -> tuple[Callable[[], object], float]:
    """Compile one kernel; returns a call on these tensors, and the seconds of g++."""
    layouts = {
        n: Buffer(tuple(map(lift, t.shape)), tuple(map(lift, t.stride())), dtype_name(t.dtype))
        for n, t in tensors.items()
    }
    source = emit_unit(scheduled(Program(layouts, (), (kernel,), ()), target).launches)
    path = Path(tempfile.mkdtemp()) / "kernel.cpp"
    path.write_text(source.text)
    options = dict(source.options)
    start = time.perf_counter()
    subprocess.run(
        [
            "g++",
            *options["flags"].split(),
            str(path),
            "-o",
            str(path.with_suffix(".so")),
            *options["libraries"].split(),
        ],
        check=True,
    )
    seconds = time.perf_counter() - start
    function = ctypes.CDLL(str(path.with_suffix(".so"))).seg0
    pointers = [ctypes.c_void_p(tensors[b].data_ptr()) for b in source.launches[0].buffers]
    return lambda: function(*pointers), seconds


# ---- the kernels -------------------------------------------------------------------------------------------------


def f32(op: str, *args: Val) -> Val:
    """A scalar op on f32."""
    return val(op, *args, dtype="f32")


def number(x: float) -> Val:
    """A constant."""
    return const(x, "f32")


def at(buffer: str, *index: object, dtype: str = "f32") -> Val:
    """A load, as f32."""
    return cast(load(buffer, tuple(map(lift, index)), dtype), "f32")


def benches() -> list[Bench]:
    """Return every case."""
    torch.manual_seed(0)
    small = [chain(256, 256, torch.float32), chain(256, 256, torch.bfloat16), gelu(64, 1024), gelu_tanh(256, 1536)]
    cases = [
        chain(2048, 2048, torch.float32),
        chain(2048, 2048, torch.bfloat16),
        softmax(512, 1024),
        softmax(16384, 32),
    ]
    cases += [softmax(64, 50000), layer_norm(512, 768), layer_norm(65536, 16), layer_norm(2048, 513), gelu(512, 3072)]
    cases += [
        sum_rows(2048, 1024),
        sum_columns(2048, 1024),
        sum_columns(1 << 20, 8),
        sum_all(4096, 1024),
        argmax(512, 8192),
        cumsum(512, 1024),
    ]
    cases += [transpose(1024, 1024), softmax_middle(8, 256, 1024), batch_norm(8, 64, 56 * 56), causal(64, 128)]
    return small + cases


def chain(m: int, n: int, dtype: torch.dtype) -> Bench:
    """x+1, *2, relu, -0.5, sigmoid."""
    i, j = axis("i0", m), axis("i1", n)
    name = dtype_name(dtype)
    v = f32(
        "sub",
        f32("max", f32("mul", f32("add", at("x", i, j, dtype=name), number(1.0)), number(2.0)), number(0.0)),
        number(0.5),
    )
    v = f32("div", number(1.0), f32("add", number(1.0), f32("exp", f32("neg", v))))
    kernel = Kernel((i, j), (Nest("o", (i, j), (), "map", cast(v, name), name),))
    x = torch.randn(m, n).to(dtype)
    return Bench(
        f"chain {name} {m}x{n}",
        kernel,
        {"x": x, "o": torch.empty_like(x)},
        lambda x: torch.sigmoid(torch.relu((x + 1) * 2) - 0.5),
    )


def softmax(m: int, n: int) -> Bench:
    """softmax(x*2 + sin(y)) over the last dimension."""
    i, j, r = axis("i0", m), axis("i1", n), axis("r0", n)
    z = f32("add", f32("mul", at("x", i, j), number(2.0)), f32("sin", at("y", i, j)))
    steps = (
        Nest("z", (i, j), (), "map", z, "f32"),
        Nest("m", (i,), (r,), "max", at("z", i, r), "f32"),
        Nest("e", (i, j), (), "map", f32("exp", f32("sub", at("z", i, j), at("m", i))), "f32"),
        Nest("s", (i,), (r,), "sum", at("e", i, r), "f32"),
        Nest("o", (i, j), (), "map", f32("div", at("e", i, j), at("s", i)), "f32"),
    )
    tensors = {"x": torch.randn(m, n), "y": torch.randn(m, n), "o": torch.empty(m, n)}
    return Bench(
        f"softmax {m}x{n}",
        Kernel((i,), steps, frozenset("zmes")),
        tensors,
        lambda x, y: torch.softmax(x * 2 + torch.sin(y), 1),
    )


def layer_norm(m: int, n: int) -> Bench:
    """layer_norm(x + y)."""
    i, j, r = axis("i0", m), axis("i1", n), axis("r0", n)
    d = f32("sub", at("z", i, r), at("u", i))
    scale = f32("rsqrt", f32("add", f32("mul", at("v", i), number(1 / n)), number(1e-5)))
    out = f32("add", f32("mul", f32("mul", f32("sub", at("z", i, j), at("u", i)), scale), at("w", j)), at("b", j))
    steps = (
        Nest("z", (i, j), (), "map", f32("add", at("x", i, j), at("y", i, j)), "f32"),
        Nest("t", (i,), (r,), "sum", at("z", i, r), "f32"),
        Nest("u", (i,), (), "map", f32("mul", at("t", i), number(1 / n)), "f32"),
        Nest("v", (i,), (r,), "sum", f32("mul", d, d), "f32"),
        Nest("o", (i, j), (), "map", out, "f32"),
    )
    tensors = {
        "x": torch.randn(m, n),
        "y": torch.randn(m, n),
        "w": torch.randn(n),
        "b": torch.randn(n),
        "o": torch.empty(m, n),
    }
    return Bench(
        f"residual + layer_norm {m}x{n}", Kernel((i,), steps, frozenset("ztuv")), tensors,
        lambda x, y, w, b: torch.nn.functional.layer_norm(x + y, (n,), w, b),
    )  # fmt: skip


def gelu(m: int, n: int) -> Bench:
    """gelu(x + b)."""
    i, j = axis("i0", m), axis("i1", n)
    a = f32("add", at("x", i, j), at("b", j))
    v = f32(
        "mul",
        f32("mul", a, number(0.5)),
        f32("add", number(1.0), f32("erf", f32("mul", a, number(0.7071067811865476)))),
    )
    tensors = {"x": torch.randn(m, n), "b": torch.randn(n), "o": torch.empty(m, n)}
    return Bench(
        f"gelu(x+b) {m}x{n}",
        Kernel((i, j), (Nest("o", (i, j), (), "map", v, "f32"),)),
        tensors,
        lambda x, b: torch.nn.functional.gelu(x + b),
    )


def gelu_tanh(m: int, n: int) -> Bench:
    """gelu(x, approximate="tanh")."""
    i, j = axis("i0", m), axis("i1", n)
    x = at("x", i, j)
    inner = f32("mul", f32("add", x, f32("mul", f32("mul", f32("mul", x, x), x), number(0.044715))), number(0.79788456))
    v = f32("mul", f32("mul", x, number(0.5)), f32("add", f32("tanh", inner), number(1.0)))
    tensors = {"x": torch.randn(m, n), "o": torch.empty(m, n)}
    kernel = Kernel((i, j), (Nest("o", (i, j), (), "map", v, "f32"),))
    return Bench(f"gelu tanh {m}x{n}", kernel, tensors, lambda x: torch.nn.functional.gelu(x, approximate="tanh"))


def sum_rows(m: int, n: int) -> Bench:
    """x.sum(1)."""
    i, r = axis("i0", m), axis("r0", n)
    kernel = Kernel((i,), (Nest("o", (i,), (r,), "sum", at("x", i, r), "f32"),))
    return Bench(f"sum rows {m}x{n}", kernel, {"x": torch.randn(m, n), "o": torch.empty(m)}, lambda x: x.sum(1))


def sum_columns(m: int, n: int) -> Bench:
    """x.sum(0)."""
    i, r = axis("i0", n), axis("r0", m)
    kernel = Kernel((i,), (Nest("o", (i,), (r,), "sum", at("x", r, i), "f32"),))
    return Bench(f"sum columns {m}x{n}", kernel, {"x": torch.randn(m, n), "o": torch.empty(n)}, lambda x: x.sum(0))


def sum_all(m: int, n: int) -> Bench:
    """x.sum()."""
    q, r = axis("r0", m), axis("r1", n)
    kernel = Kernel((), (Nest("o", (), (q, r), "sum", at("x", q, r), "f32"),))
    return Bench(f"sum all {m}x{n}", kernel, {"x": torch.randn(m, n), "o": torch.empty(())}, lambda x: x.sum())


def argmax(m: int, n: int) -> Bench:
    """x.argmax(1)."""
    i, r = axis("i0", m), axis("r0", n)
    kernel = Kernel((i,), (Nest("o", (i,), (r,), "argmax", at("x", i, r), "i64"),))
    return Bench(
        f"argmax {m}x{n}",
        kernel,
        {"x": torch.randn(m, n), "o": torch.empty(m, dtype=torch.int64)},
        lambda x: x.argmax(1),
    )


def cumsum(m: int, n: int) -> Bench:
    """x.cumsum(1)."""
    i, j = axis("i0", m), axis("i1", n)
    kernel = Kernel((i,), (Nest("o", (i, j), (j,), "cumsum", at("x", i, j), "f32"),))
    return Bench(f"cumsum {m}x{n}", kernel, {"x": torch.randn(m, n), "o": torch.empty(m, n)}, lambda x: x.cumsum(1))


def transpose(m: int, n: int) -> Bench:
    """x.t() + y."""
    i, j = axis("i0", m), axis("i1", n)
    kernel = Kernel((i, j), (Nest("o", (i, j), (), "map", f32("add", at("x", j, i), at("y", i, j)), "f32"),))
    return Bench(
        f"transpose {m}x{n}",
        kernel,
        {"x": torch.randn(n, m), "y": torch.randn(m, n), "o": torch.empty(m, n)},
        lambda x, y: x.t() + y,
    )


def softmax_middle(b: int, c: int, n: int) -> Bench:
    """softmax over the middle dimension."""
    h, i, j, r = axis("i0", b), axis("i1", n), axis("i2", c), axis("r0", c)
    steps = (
        Nest("m", (h, i), (r,), "max", at("x", h, r, i), "f32"),
        Nest("e", (h, i, j), (), "map", f32("exp", f32("sub", at("x", h, j, i), at("m", h, i))), "f32"),
        Nest("s", (h, i), (r,), "sum", at("e", h, i, r), "f32"),
        Nest("o", (h, i, j), (), "map", f32("div", at("e", h, i, j), at("s", h, i)), "f32"),
    )
    tensors = {"x": torch.randn(b, c, n), "o": torch.empty(b, c, n).transpose(1, 2)}
    return Bench(
        f"softmax dim 1 {b}x{c}x{n}",
        Kernel((h, i), steps, frozenset("mes")),
        tensors,
        lambda x: torch.softmax(x, 1).transpose(1, 2),
    )


def batch_norm(b: int, c: int, n: int) -> Bench:
    """Statistics and normalisation over batch and space."""
    i, p, q, r, t = axis("i0", c), axis("i1", b), axis("i2", n), axis("r0", b), axis("r1", n)
    scale = 1 / (b * n)
    d = f32("sub", at("x", r, i, t), at("u", i))
    norm = f32("rsqrt", f32("add", f32("mul", at("v", i), number(scale)), number(1e-5)))
    out = f32("add", f32("mul", f32("mul", f32("sub", at("x", p, i, q), at("u", i)), norm), at("w", i)), at("b", i))
    steps = (
        Nest("t", (i,), (r, t), "sum", at("x", r, i, t), "f32"),
        Nest("u", (i,), (), "map", f32("mul", at("t", i), number(scale)), "f32"),
        Nest("v", (i,), (r, t), "sum", f32("mul", d, d), "f32"),
        Nest("o", (i, p, q), (), "map", out, "f32"),
    )
    tensors = {
        "x": torch.randn(b, c, n),
        "w": torch.randn(c),
        "b": torch.randn(c),
        "o": torch.empty(b, c, n).transpose(0, 1),
    }
    return Bench(
        f"batch norm {b}x{c}x{n}", Kernel((i,), steps, frozenset("tuv")), tensors,
        lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, True).transpose(0, 1),
    )  # fmt: skip


def causal(h: int, n: int) -> Bench:
    """softmax of scores under a causal mask made from indices."""
    from intarsia_loops.program import index_value

    a, i, j, r = axis("i0", h), axis("i1", n), axis("i2", n), axis("r0", n)
    seen = val("le", index_value(lift(j)), index_value(lift(i)), dtype="b8")
    z = val("where", seen, at("x", a, i, j), number(float("-inf")), dtype="f32")
    steps = (
        Nest("z", (a, i, j), (), "map", z, "f32"),
        Nest("m", (a, i), (r,), "max", at("z", a, i, r), "f32"),
        Nest("e", (a, i, j), (), "map", f32("exp", f32("sub", at("z", a, i, j), at("m", a, i))), "f32"),
        Nest("s", (a, i), (r,), "sum", at("e", a, i, r), "f32"),
        Nest("o", (a, i, j), (), "map", f32("div", at("e", a, i, j), at("s", a, i)), "f32"),
    )
    tensors = {"x": torch.randn(h, n, n), "o": torch.empty(h, n, n)}
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    return Bench(
        f"causal softmax {h}x{n}x{n}", Kernel((a, i), steps, frozenset("zmes")), tensors,
        lambda x: torch.softmax(x.masked_fill(~mask, float("-inf")), -1),
    )  # fmt: skip


if __name__ == "__main__":
    main()
