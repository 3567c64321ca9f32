"""Builds units of many small kernels with g++ and runs them through ctypes, beside the interpreter."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

import intarsia_cpp
from intarsia_ir.dtypes import dtype_from_name, dtype_name
from intarsia_ir.records import KernelSource, Target
from intarsia_loops import kernels, to_fx
from intarsia_loops.index import IndexExpr, lift
from intarsia_loops.program import Buffer, Kernel, Program, TensorRef, scatter_of
from intarsia_loops.rewrites import rename_buffers
from intarsia_loops.vectors.walks import Maps, Points, Rows
from intarsia_scheduler import SchedulePlan, SchedulePolicy, arrange, schedule, scheduled


def emit_unit(program: Program, target: Target, policy: SchedulePolicy | None = None) -> KernelSource:
    """Return the source of a program, from a plan that went through JSON; it is what the plan itself gives."""
    plan = schedule(program, target, policy, check=False)
    again = SchedulePlan.from_json(plan.to_json())
    assert again == plan
    source = intarsia_cpp.emit_unit(arrange(program, again))
    assert source == intarsia_cpp.emit_unit(arrange(program, plan))
    return source


def emit(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> KernelSource:
    """Return the source of one kernel."""
    return emit_unit(Program(dict(buffers), (), (kernel,), ()), target)


def kernel_shape(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> str:
    """Return how a kernel is walked: `pointwise`, `tiled`, `rows`, `columns` or `scatter`; `empty` if it isn't."""
    (launch,) = scheduled(Program(dict(buffers), (), (kernel,), ()), target, check=False).launches.launches
    parts = launch.walk.parts
    match parts[-1] if parts else None:
        case None:
            return "empty"
        case Maps(tiling=None):
            return "pointwise" if scatter_of(kernel.steps[-1]) is None else "scatter"
        case Maps():
            return "tiled"
        case Points():
            return "scatter"
        case Rows(block=block):
            return "rows" if block is None else "columns"


def _isas() -> list[str]:
    """The instruction sets that this machine runs, the best one first."""
    path = Path("/proc/cpuinfo")
    flags = set(path.read_text().split()) if path.exists() else set()
    avx512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags
    return ["avx512"] * avx512 + ["avx2"] * ({"avx2", "fma", "f16c"} <= flags) + ["scalar"]


ISAS = _isas()
TARGET = Target(isa=ISAS[0], threads=2)


def layout(tensor: torch.Tensor) -> Buffer:
    """The buffer that describes a tensor."""
    return Buffer(tuple(map(lift, tensor.shape)), tuple(map(lift, tensor.stride())), dtype_name(tensor.dtype))


@dataclass(frozen=True)
class Case:
    """One kernel with its inputs.

    Args:
        name: For messages.
        kernel: What to run.
        inputs: Buffer -> tensor.
        outputs: Buffer -> layout of what it writes; a contiguous one is derived for names that are missing.
        sizes: Size symbol -> value.
    """

    name: str
    kernel: Kernel
    inputs: Mapping[str, torch.Tensor]
    outputs: Mapping[str, Buffer] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


def program_of(cases: Sequence[Case]) -> tuple[Program, list[object], list[list[str]]]:
    """All cases as one program with buffers `<case>_<buffer>`, its inputs, and the outputs of each case."""
    buffers: dict[str, Buffer] = {}
    values: dict[str, object] = {}
    items, outputs = [], []
    for k, case in enumerate(cases):
        rename = {}
        for step in case.kernel.steps:
            for b in (*step.reads(), step.out):
                rename[b] = f"c{k}_{b}"
        for b, tensor in case.inputs.items():
            buffers[f"c{k}_{b}"] = layout(tensor)
            values[f"c{k}_{b}"] = tensor
        for step in case.kernel.steps:
            shape = tuple(a.extent for a in step.axes)
            buffers[f"c{k}_{step.out}"] = case.outputs.get(step.out) or contiguous(shape, step.dtype)
        values |= case.sizes
        steps = tuple(rename_buffers(s, rename) for s in case.kernel.steps)
        items.append(Kernel(case.kernel.rows, steps, frozenset(rename[b] for b in case.kernel.local)))
        outputs.append([rename[b] for b in case.kernel.writes()])
    refs = tuple(TensorRef(b, buffers[b].shape, buffers[b].strides, lift(0)) for names in outputs for b in names)
    return Program(buffers, tuple(values), tuple(items), refs), list(values.values()), outputs


def contiguous(shape: tuple[IndexExpr, ...], dtype: str) -> Buffer:
    """A row-major buffer."""
    strides, n = [], lift(1)
    for extent in reversed(shape):
        strides.append(n)
        n = n * extent
    return Buffer(shape, tuple(reversed(strides)), dtype)


def compile_text(source: KernelSource, directory: Path) -> ctypes.CDLL:
    """Build a unit and load it, each text under a name of its own: a library that is loaded must not be overwritten."""
    path = directory / f"{hashlib.sha256(source.text.encode()).hexdigest()[:16]}.cpp"
    path.write_text(source.text)
    options = dict(source.options)
    command = [
        "g++",
        *options["flags"].split(),
        str(path),
        "-o",
        str(path.with_suffix(".so")),
        *options["libraries"].split(),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(path.with_suffix(".so")))


def run_unit(
    program: Program, source: KernelSource, library: ctypes.CDLL, args: Sequence[object]
) -> dict[str, torch.Tensor]:
    """Run every entry of a unit without extern calls; returns all buffers in memory. Gaps are filled with a pattern."""
    env = dict(zip(program.inputs, args, strict=True))
    sizes = {k: v for k, v in env.items() if isinstance(v, int)}
    memory = {k: v for k, v in env.items() if isinstance(v, torch.Tensor)}
    for launch in source.launches:
        for name in launch.buffers:
            if name not in memory:
                memory[name] = allocate(program.buffers[name], sizes)
        call = getattr(library, launch.entry)
        pointers = [ctypes.c_void_p(memory[b].data_ptr()) for b in launch.buffers]
        call(*pointers, *(ctypes.c_int64(sizes[s]) for s in launch.sizes))
    return memory


def allocate(buffer: Buffer, sizes: Mapping[str, int]) -> torch.Tensor:
    """A tensor of this layout in memory full of a pattern, with guard bytes around it."""
    env = {a: sizes[a.key] for e in (*buffer.shape, *buffer.strides) for a in e.atoms() if a.kind == "sym"}
    shape = [e.value(env) for e in buffer.shape]
    strides = [e.value(env) for e in buffer.strides]
    dtype = dtype_from_name(buffer.dtype)
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if all(shape) else 0
    raw = torch.full((span * dtype.itemsize + 256,), 0xA5, dtype=torch.uint8)
    start = 128 // dtype.itemsize
    return raw.view(dtype).as_strided(shape, strides, start)


def guards_intact(tensor: torch.Tensor) -> bool:
    """Whether nothing was written outside the elements of a tensor made by `allocate`."""
    raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    touched = torch.zeros(raw.numel() // tensor.element_size(), dtype=torch.bool)
    if tensor.numel():
        touched.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
    outside = ~touched.repeat_interleave(tensor.element_size())
    return bool((raw[: outside.numel()][outside] == 0xA5).all())


def expected(program: Program, args: Sequence[object]) -> tuple[torch.Tensor, ...]:
    """What the interpreter of the kernels dialect computes."""
    return kernels.interpret(to_fx(program), *args)


def results(
    cases: Sequence[Case], directory: Path, target: Target = TARGET
) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """For each case, (generated code's result, interpreter's result) for each buffer it writes."""
    program, args, outputs = program_of(cases)
    source = emit_unit(program, target)
    memory = run_unit(program, source, compile_text(source, directory), args)
    want = iter(expected(program, args))
    for names in outputs:
        for b in names:
            assert guards_intact(memory[b]), f"{b}: wrote outside its elements"
    return [[(memory[b], next(want)) for b in names] for names in outputs]


def first_difference(got: torch.Tensor, want: torch.Tensor) -> str:
    """A sentence about the first element that differs, for messages."""
    differs = ~((got == want) | ((got != got) & (want != want)))
    if not differs.any():
        return ""
    at = tuple(differs.nonzero()[0].tolist())
    return f"{int(differs.sum())} differ, first at {at}: {got[at]} instead of {want[at]}"
