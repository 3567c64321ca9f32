"""Kernels -> C++ text: one kernel to read, or all kernels of a program in one translation unit."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from intarsia_cpp._context import size_name
from intarsia_cpp._ops import element
from intarsia_cpp._shape import emit_lines
from intarsia_cpp._text import indented
from intarsia_cpp.prelude import prelude
from intarsia_ir.records import KernelSource, Launch, Target
from intarsia_loops.launches import Launches
from intarsia_loops.program import Buffer, Extern, Kernel, Nest, Program, scatter_of
from intarsia_loops.rewrites import canonical

__all__ = ["emit", "emit_unit"]

FLAGS = (
    "-O1 -fcaller-saves -std=c++17 -fopenmp -fPIC -shared -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv "
    "-fno-strict-aliasing -fno-semantic-interposition -Wno-psabi"
)
# Parameters of one C entry at most: ctypes takes 1024 arguments.
MOST_BUFFERS = 512
ARCHITECTURES = {"avx512": "-march=native", "avx2": "-march=haswell"}


@dataclass(frozen=True, slots=True)
class _Function:
    """A C++ function for one canonical kernel.

    Args:
        text: Definition, under the name it was asked for.
        params: Positions of the canonical buffers that it takes, in order.
        types: Their C types.
        sizes: Size symbols that it takes after them.
    """

    text: str
    params: tuple[int, ...]
    types: tuple[str, ...]
    sizes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the function `name`; `buffers` are the program's, in the order of its parameters."""

    name: str
    function: _Function
    buffers: tuple[str, ...]


def emit(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> KernelSource:
    """Return the C++ of one kernel, behind the C entry `kernel`.

    Args:
        kernel: What to compute.
        buffers: Layout of every buffer that it reads or writes.
        target: Instruction set and number of threads.

    Returns:
        Text, entry, C parameter types; the launch names the buffers in the order of the parameters.
    """
    form, names = canonical(kernel)
    function = _function(form, names, buffers, target, "kernel0")
    taken = tuple(names[k] for k in function.params)
    entry = _entry("kernel", taken, function.sizes, [_Call("kernel0", function, taken)])
    text = prelude(function.text, target.isa) + "\n" + function.text + "\n" + entry
    signature = (*function.types, *("i64" for _ in function.sizes))
    launch = Launch("kernel", taken, function.sizes, (0, 1))
    return KernelSource(text, "cpp", "kernel", signature, (launch,), 1, 1, _options(text, target))


def emit_unit(launches: Launches) -> KernelSource:
    """Return the C++ of all kernels of a program.

    Equal kernels become one function. Each run of kernels between extern calls is one C entry.

    Args:
        launches: A launch for each kernel of the program.
    """
    program, target = launches.program, launches.target
    functions: dict[object, tuple[str, _Function]] = {}
    entries: list[str] = []
    made: list[Launch] = []
    for first, last in _runs(program):
        calls = [_call(item, program, target, functions) for item in program.items[first:last]]
        for low, high in _pieces(calls):
            launch = _launch(f"seg{len(made)}", calls[low:high], (first + low, first + high))
            made.append(launch)
            entries.append(_entry(launch.entry, launch.buffers, launch.sizes, calls[low:high]))
    bodies = "\n".join(f.text for _, f in functions.values())
    text = prelude(bodies, target.isa) + "\n" + bodies + "\n" + "\n".join(entries)
    n_kernels = sum(high - low for low, high in (launch.items for launch in made))
    return KernelSource(text, "cpp", "", (), tuple(made), n_kernels, len(functions), _options(text, target))


def _call(item: object, program: Program, target: Target, functions: dict[object, tuple[str, _Function]]) -> _Call:
    """A call of the function for this kernel, which is emitted unless an equal one was."""
    kernel = item if isinstance(item, Kernel) else _alone(item)
    form, names = canonical(kernel)
    key = (form, tuple(_layout(program.buffers[b]) for b in names))
    if key not in functions:
        name = f"kernel{len(functions)}"
        functions[key] = (name, _function(form, names, program.buffers, target, name))
    name, function = functions[key]
    return _Call(name, function, tuple(names[k] for k in function.params))


def _alone(item: object) -> Kernel:
    """A nest outside any kernel, as a kernel of its own."""
    assert isinstance(item, Nest)
    rows = () if scatter_of(item) else tuple(itertools.takewhile(lambda a: a not in item.red, item.axes))
    return Kernel(rows, (item,))


def _pieces(calls: list[_Call]) -> list[tuple[int, int]]:
    """Half-open ranges of calls, each with few enough buffers for one C entry."""
    pieces, start, used = [], 0, set[str]()
    for k, call in enumerate(calls):
        if used and len(used.union(call.buffers)) > MOST_BUFFERS:
            pieces.append((start, k))
            start, used = k, set()
        used.update(call.buffers)
    return [*pieces, (start, len(calls))]


def _runs(program: Program) -> list[tuple[int, int]]:
    """Half-open ranges of consecutive kernels."""
    runs: list[tuple[int, int]] = []
    start = None
    for k, item in enumerate((*program.items, None)):
        inside = item is not None and not isinstance(item, Extern)
        if inside and start is None:
            start = k
        elif not inside and start is not None:
            runs.append((start, k))
            start = None
    return runs


def _layout(buffer: Buffer) -> tuple[object, ...]:
    return buffer.shape, buffer.strides, buffer.dtype


def _launch(entry: str, calls: list[_Call], items: tuple[int, int]) -> Launch:
    buffers = tuple(dict.fromkeys(b for call in calls for b in call.buffers))
    sizes = tuple(sorted({s for call in calls for s in call.function.sizes}))
    return Launch(entry, buffers, sizes, items)


def _function(
    form: Kernel, names: tuple[str, ...], buffers: Mapping[str, Buffer], target: Target, name: str
) -> _Function:
    """Emit the canonical form of a kernel."""
    layouts = {f"b{k}": buffers[b] for k, b in enumerate(names) if b in buffers}
    context, lines = emit_lines(form, layouts, target)
    written = {s.out for s in context.steps}
    for step in context.steps:  # also those that have no element
        if step.in_memory:
            context.pointer(step.out)
    types, params = [], []
    for buffer, parameter in context.params.items():
        star = f"{element(layouts[buffer].dtype)} *"
        types.append(star if buffer in written else f"const {star}")
        params.append(f"{types[-1]}__restrict {parameter}")
    params += [f"const i64 {size_name(s)}" for s in context.sizes]
    head = f"static __attribute__((noinline)) void {name}({', '.join(params)}) {{"
    text = indented([head, *lines, "}"])
    order = tuple(int(b[1:]) for b in context.params)
    return _Function(text, order, tuple(types), context.sizes)


def _entry(name: str, buffers: tuple[str, ...], sizes: tuple[str, ...], calls: list[_Call]) -> str:
    """A C function that calls kernels in order; buffers get positional names."""
    place = {b: f"p{k}" for k, b in enumerate(buffers)}
    types = {b: t.removeprefix("const ") for c in calls for b, t in zip(c.buffers, c.function.types, strict=True)}
    params = [f"{types[b]}{place[b]}" for b in buffers] + [f"i64 {size_name(s)}" for s in sizes]
    lines = [
        f"{c.name}({', '.join([*map(place.__getitem__, c.buffers), *map(size_name, c.function.sizes)])});"
        for c in calls
    ]
    return indented([f'extern "C" void {name}({", ".join(params)}) {{', *lines, "}"])


def _options(text: str, target: Target) -> tuple[tuple[str, str], ...]:
    flags = f"{FLAGS} {ARCHITECTURES.get(target.isa, '')}".strip()
    libraries = "-lmvec -lm" if "_ZGV" in text else "-lm"
    return (("flags", flags), ("libraries", libraries))
