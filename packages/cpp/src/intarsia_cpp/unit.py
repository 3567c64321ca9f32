"""Launches, or tiles -> C++ text: all launches of a program in one translation unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from intarsia_cpp._context import Context, Parameters, size_name
from intarsia_cpp._ops import element
from intarsia_cpp._text import block, indented
from intarsia_cpp.columns import emit_columns
from intarsia_cpp.pointwise import emit_pointwise
from intarsia_cpp.prelude import prelude
from intarsia_cpp.rows import emit_rows
from intarsia_cpp.scatter import emit_points
from intarsia_ir.choices import instance_of
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import KernelSource, Launch, Target
from intarsia_loops.launches import Launches, LaunchPlan
from intarsia_loops.program import Buffer
from intarsia_loops.rewrites import postorder
from intarsia_loops.tiles import Launch as TileLaunch
from intarsia_loops.tiles import Tiles
from intarsia_loops.vectors.walks import Maps, Part, Points, VectorWalk

__all__ = ["emit_unit"]

# -fno-delete-null-pointer-checks: GCC 12 writes some addresses as a sum without a base, takes that for a null pointer,
# and deletes calls of the functions that store there.
FLAGS = (
    "-O1 -fcaller-saves -std=c++17 -fopenmp -fPIC -shared -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv "
    "-fno-strict-aliasing -fno-semantic-interposition -fno-delete-null-pointer-checks -Wno-psabi"
)
# Parameters of one C entry at most: ctypes takes 1024 arguments.
MOST_BUFFERS = 512
ARCHITECTURES = {"avx512": "-march=native", "avx2": "-march=haswell"}


@dataclass(frozen=True, slots=True)
class _Function:
    """A C++ function for one canonical kernel.

    Args:
        text: Definition, under the name it was asked for.
        params: The buffers that it takes, by their names in the walk, in order.
        types: Their C types.
        sizes: Size symbols that it takes after them.
    """

    text: str
    params: tuple[str, ...]
    types: tuple[str, ...]
    sizes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the function `name`; `buffers` are the program's, in the order of its parameters."""

    name: str
    function: _Function
    buffers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Walked:
    """A launch: how its points are walked, its buffers' layouts and real names, which items of the program it is."""

    walk: VectorWalk
    layouts: Mapping[str, Buffer]
    names: Mapping[str, str]
    items: tuple[int, int]

    @property
    def key(self) -> object:
        """Equal for launches that are one function."""
        used = sorted(set().union(*self.walk.touched()))
        layouts = [self.layouts[b] for b in used]
        return self.walk, tuple((n, b.shape, b.strides, b.dtype) for n, b in zip(used, layouts, strict=True))


def emit_unit(program: Launches | Tiles) -> KernelSource:
    """Return the C++ of all launches of a program; equal ones become one function.

    Each run of launches between extern calls is one C entry.

    Args:
        program: What is launched, and how its points are walked: `Launches`, or the tiles that say what these mean. Of
            both, C++ prints the same walks, and the text is the same.

    Raises:
        UnsupportedError: C++ hasn't a type or an op.
        InvalidArgumentError: `cpp.walk`: nobody said how a launch walks its points in vectors.
    """
    instance_of("what is printed (`intarsia_scheduler.scheduled(kernels, target).launches`)", program, Launches, Tiles)
    target, launches = program.target, _walked(program)
    functions: dict[object, tuple[str, _Function]] = {}
    entries: list[str] = []
    made: list[Launch] = []
    for run in _runs(launches):
        calls = [_call(plan, functions) for plan in run]
        for low, high in _pieces(calls):
            items = (run[low].items[0], run[high - 1].items[1])
            launch = _launch(f"seg{len(made)}", calls[low:high], items)
            made.append(launch)
            entries.append(_entry(launch.entry, launch.buffers, launch.sizes, calls[low:high]))
    bodies = "\n".join(f.text for _, f in functions.values())
    text = prelude(bodies, target.isa) + "\n" + bodies + "\n" + "\n".join(entries)
    n_kernels = program.n_kernels if isinstance(program, Launches) else len(launches)
    n_unique = len(functions)
    return KernelSource(text, "cpp", "", (), tuple(made), n_kernels, n_unique, _options(text, target))


def _walked(program: Launches | Tiles) -> list[_Walked]:
    """The launches of a program; on a CPU each is one item of it, and so is what they mean."""
    if isinstance(program, Launches):
        return [_of_plan(plan) for plan in program.launches]
    items = enumerate(program.items)
    return [_of_tiles(item, program, k) for k, item in items if isinstance(item, TileLaunch)]


def _of_plan(plan: LaunchPlan) -> _Walked:
    (names,) = plan.sets
    walk = plan.walk if isinstance(plan.walk, VectorWalk) else _nobody_said(names)
    return _Walked(walk, plan.layouts, {f"b{k}": n for k, n in enumerate(names)}, plan.items)


def _of_tiles(launch: TileLaunch, tiles: Tiles, position: int) -> _Walked:
    (names,) = launch.sets
    (walk,) = launch.body if len(launch.body) == 1 else (None,)
    if not isinstance(walk, VectorWalk):
        walk = _nobody_said(names)
    layouts = {p: tiles.buffers[n] for p, n in zip(launch.params, names, strict=True)}
    return _Walked(walk, layouts, dict(zip(launch.params, names, strict=True)), (position, position + 1))


def _nobody_said(names: Sequence[str]) -> NoReturn:
    raise InvalidArgumentError(
        f"nobody said how the launch over {', '.join(names)} walks its points in vectors", code="cpp.walk",
        hints=("schedule for a target whose machine is a CPU",),
    )  # fmt: skip


def _call(plan: _Walked, functions: dict[object, tuple[str, _Function]]) -> _Call:
    """A call of the function for this launch, which is emitted unless an equal one was."""
    key = plan.key
    if key not in functions:
        name = f"kernel{len(functions)}"
        functions[key] = (name, _function(plan, name))
    name, function = functions[key]
    return _Call(name, function, tuple(plan.names[b] for b in function.params))


def _pieces(calls: list[_Call]) -> list[tuple[int, int]]:
    """Half-open ranges of calls, each with few enough buffers for one C entry."""
    pieces, start, used = [], 0, set[str]()
    for k, call in enumerate(calls):
        if used and len(used.union(call.buffers)) > MOST_BUFFERS:
            pieces.append((start, k))
            start, used = k, set()
        used.update(call.buffers)
    return [*pieces, (start, len(calls))]


def _runs(launches: Sequence[_Walked]) -> list[list[_Walked]]:
    """The launches, in runs of such as have no call between them."""
    runs: list[list[_Walked]] = []
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


def _function(plan: _Walked, name: str) -> _Function:
    """The function of a launch."""
    walk, layouts = plan.walk, plan.layouts
    for v in (v for s in walk.steps() for v in postorder(s.body)):
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
    return _Function(text, tuple(taken.buffers), tuple(types), taken.sizes)


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
