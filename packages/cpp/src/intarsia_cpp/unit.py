"""Launches -> C++ text: all launches of a program in one translation unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from intarsia_cpp._context import Context, Parameters, size_name
from intarsia_cpp._ops import element
from intarsia_cpp._text import block, indented
from intarsia_cpp.columns import emit_columns
from intarsia_cpp.pointwise import emit_pointwise
from intarsia_cpp.prelude import prelude
from intarsia_cpp.rows import emit_rows
from intarsia_cpp.scatter import emit_points
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import KernelSource, Launch, Target
from intarsia_loops.launches import Launches, LaunchPlan
from intarsia_loops.rewrites import postorder
from intarsia_loops.vectors.walks import Maps, Part, Points, VectorWalk

__all__ = ["emit_unit"]

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


def emit_unit(launches: Launches) -> KernelSource:
    """Return the C++ of all launches of a program; equal ones become one function.

    Each run of launches between extern calls is one C entry.

    Args:
        launches: What is launched, and how its points are walked.

    Raises:
        UnsupportedError: C++ hasn't a type or an op.
        InvalidArgumentError: `cpp.walk`: nobody said how a launch walks its points.
    """
    target = launches.target
    functions: dict[object, tuple[str, _Function]] = {}
    entries: list[str] = []
    made: list[Launch] = []
    for run in _runs(launches.launches):
        calls = [_call(plan, functions) for plan in run]
        for low, high in _pieces(calls):
            items = (run[low].items[0], run[high - 1].items[1])
            launch = _launch(f"seg{len(made)}", calls[low:high], items)
            made.append(launch)
            entries.append(_entry(launch.entry, launch.buffers, launch.sizes, calls[low:high]))
    bodies = "\n".join(f.text for _, f in functions.values())
    text = prelude(bodies, target.isa) + "\n" + bodies + "\n" + "\n".join(entries)
    n_unique = len(functions)
    return KernelSource(text, "cpp", "", (), tuple(made), launches.n_kernels, n_unique, _options(text, target))


def _call(plan: LaunchPlan, functions: dict[object, tuple[str, _Function]]) -> _Call:
    """A call of the function for this launch, which is emitted unless an equal one was."""
    if plan.key not in functions:
        name = f"kernel{len(functions)}"
        functions[plan.key] = (name, _function(plan, name))
    name, function = functions[plan.key]
    (names,) = plan.sets
    return _Call(name, function, tuple(names[k] for k in function.params))


def _pieces(calls: list[_Call]) -> list[tuple[int, int]]:
    """Half-open ranges of calls, each with few enough buffers for one C entry."""
    pieces, start, used = [], 0, set[str]()
    for k, call in enumerate(calls):
        if used and len(used.union(call.buffers)) > MOST_BUFFERS:
            pieces.append((start, k))
            start, used = k, set()
        used.update(call.buffers)
    return [*pieces, (start, len(calls))]


def _runs(launches: Sequence[LaunchPlan]) -> list[list[LaunchPlan]]:
    """The launches, in runs of such as have no call between them."""
    runs: list[list[LaunchPlan]] = []
    for plan in launches:
        if runs and runs[-1][-1].items[1] == plan.items[0]:
            runs[-1].append(plan)
        else:
            runs.append([plan])
    return runs


def _launch(entry: str, calls: list[_Call], items: tuple[int, int]) -> Launch:
    buffers = tuple(dict.fromkeys(b for call in calls for b in call.buffers))
    sizes = tuple(sorted({s for call in calls for s in call.function.sizes}))
    return Launch(entry, buffers, sizes, items)


def _function(plan: LaunchPlan, name: str) -> _Function:
    """The function of a launch."""
    walk, layouts = plan.walk, plan.layouts
    if not isinstance(walk, VectorWalk):
        raise InvalidArgumentError(
            f"nobody said how the launch over {', '.join(plan.sets[0])} walks its points in vectors", code="cpp.walk",
            hints=("schedule for a target whose machine is a CPU",),
        )  # fmt: skip
    for v in (v for s in plan.kernel.steps for v in postorder(s.body)):
        element(v.dtype)  # which refuses a type that C++ hasn't
    taken = Parameters()
    texts = [_part(Context(part, taken), part) for part in walk.parts]
    lines = texts[0] if len(texts) == 1 else [line for text in texts for line in block("", text)]
    for out in walk.outs:  # also those that have no element
        taken.pointer(out)
    types, params = [], []
    for buffer, parameter in taken.buffers.items():
        star = f"{element(layouts[buffer].dtype)} *"
        types.append(star if buffer in walk.outs else f"const {star}")
        params.append(f"{types[-1]}__restrict {parameter}")
    params += [f"const i64 {size_name(s)}" for s in taken.sizes]
    head = f"static __attribute__((noinline)) void {name}({', '.join(params)}) {{"
    text = indented([head, *lines, "}"])
    order = tuple(int(b[1:]) for b in taken.buffers)
    return _Function(text, order, tuple(types), taken.sizes)


def _part(context: Context, part: Part) -> list[str]:
    if isinstance(part, Maps):
        return emit_pointwise(context, part)
    if isinstance(part, Points):
        return emit_points(context, part)
    return emit_rows(context, part) if part.block is None else emit_columns(context, part, part.block)


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
