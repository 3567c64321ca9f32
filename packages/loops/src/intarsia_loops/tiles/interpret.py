"""Meaning of tile programs: executed point by point, in an order that whoever must not matter can't rely on.

Sets, programs, threads and the lanes of a tile run in a shuffled order. Held and fresh memory starts unwritten, and
reading it before it is written is a fault, as is any access outside a buffer. So is what an order would decide: two
points that run side by side, of which one writes what the other one touches. That is found by stamping each element
with the path of parallel loops that wrote it: two paths that part in the same loop belong to points side by side.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.errors import RuntimeFault
from intarsia_ir.records import Origin
from intarsia_ir.stepping import Step, Watch
from intarsia_loops._text import item_text
from intarsia_loops.evaluate import allocate
from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.ops import SCALAR_OPS
from intarsia_loops.program import Extern, Program, Val
from intarsia_loops.rewrites import postorder
from intarsia_loops.run import bind, bind_results, output_of
from intarsia_loops.tiles.monoids import MONOIDS, Rules
from intarsia_loops.tiles.program import (
    Acc,
    Bind,
    Check,
    Fold,
    For,
    GridWalk,
    Hold,
    If,
    Last,
    Launch,
    Put,
    Run,
    Statement,
    Take,
    Tiles,
    Turn,
    Update,
    VectorWalk,
    has_order,
    statements,
)
from intarsia_loops.tiles.text import launch_lines, simple_text
from intarsia_loops.tiles.walks.expand import expand

__all__ = ["interpret"]

Path = tuple[tuple[int, int], ...]
_WITH_OTHERS = (For, If, Last, VectorWalk, GridWalk)
RELATIONS: Mapping[str, Callable[[int, int], bool]] = MappingProxyType(
    {"<": int.__lt__, "<=": int.__le__, "==": int.__eq__, "!=": int.__ne__}
)


def interpret(tiles: Tiles, *args: Any, seed: int = 0, watch: Watch | None = None) -> tuple[Any, ...]:
    """Return the outputs of a tile program for these inputs.

    Args:
        tiles: The program.
        args: One tensor per input buffer and one int per size symbol, in the order of `tiles.inputs`.
        seed: Of the order in which sets, programs, threads and lanes run.
        watch: Told of each statement that holds no others, and of each launch and library call, right after it was run.

    Raises:
        RuntimeFault: An access outside a buffer (`tiles.bounds`), of what nothing wrote (`tiles.unwritten`), or of what
            another point touches at the same time (`tiles.race`); a tile that isn't full where none may be
            (`tiles.ends`); a value whose check fails (`tiles.check`).
        InvalidArgumentError: The number of arguments is wrong, or a size can't be found in them.
    """
    calls = tuple([item for item in tiles.items if isinstance(item, Extern)])
    shell = Program(
        tiles.buffers, tiles.inputs, calls, tiles.outputs, tiles.facts, constants=tiles.constants
    )  # fmt: skip
    memory: dict[str, torch.Tensor] = dict(tiles.constants)
    sizes = bind(shell, list(args), memory)
    run = _Runner(tiles, sizes, random.Random(seed), watch)
    for name, tensor in memory.items():
        run.stores[name] = _Store(tensor, True)
    for item in tiles.items:
        if isinstance(item, Extern):
            now = {name: store.tensor for name, store in run.stores.items()}
            results = bind_results(item, tiles.buffers, now, sizes)
            for name, tensor in results.items():
                run.stores[name] = _Store(tensor, True)
            run.tell(item_text(item, tiles.buffers), results, item.origins)
        else:
            run.launch(item)
    final = {name: store.tensor for name, store in run.stores.items()}
    return tuple(output_of(value, final, sizes) for value in tiles.outputs)


class _Store:
    """Memory with, for each element, who wrote it."""

    def __init__(self, tensor: torch.Tensor, written: bool) -> None:
        self.tensor = tensor
        n = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
        self.flat = tensor.as_strided((n,), (1,)) if n else tensor.reshape(-1)
        self.size, self.written = n, written
        self.writers: dict[int, tuple[Path, bool]] = {}
        self.readers: dict[int, Path] = {}

    def read(self, name: str, at: int, path: Path) -> torch.Tensor:
        if not 0 <= at < self.size:
            raise RuntimeFault(f"{name} is read at {at} of {self.size}", code="tiles.bounds")
        writer = self.writers.get(at)
        if writer is None:
            if not self.written:
                raise RuntimeFault(f"{name} is read at {at} before it is written", code="tiles.unwritten")
        elif _side_by_side(writer[0], path):
            raise RuntimeFault(f"{name} is read at {at} while another point writes it", code="tiles.race")
        self.readers[at] = path
        return self.flat[at]

    def write(self, name: str, at: int, value: torch.Tensor, path: Path, atomic: bool = False) -> None:
        if not 0 <= at < self.size:
            raise RuntimeFault(f"{name} is written at {at} of {self.size}", code="tiles.bounds")
        before, reader = self.writers.get(at), self.readers.get(at)
        together = before is not None and _side_by_side(before[0], path) and not (atomic and before[1])
        if together or (reader is not None and _side_by_side(reader, path)):
            raise RuntimeFault(f"{name} is written at {at} while another point uses it", code="tiles.race")
        self.writers[at] = (path, atomic)
        self.flat[at] = value


def _unrolled(binds: Sequence[Bind], k: int) -> tuple[int, ...]:
    """The positions of point k of a tile along what is unrolled."""
    counts: list[int] = []
    for one in reversed(binds):
        k, position = divmod(k, one.size)
        if one.kind == "unroll":
            counts.append(position)
    return tuple(reversed(counts))


def _side_by_side(a: Path, b: Path) -> bool:
    """Whether two paths part between iterations of one loop."""
    for x, y in zip(a, b, strict=False):
        if x != y:
            return x[0] == y[0]
    return False


@dataclass(slots=True)
class _Frame:
    """What is in scope at a point: loop variables, positions of binds, numbers, arrays, accumulators.

    Args:
        path: The parallel loops around it, each with the iteration.
        parent: The frame around it; names are looked up there last.
    """

    path: Path
    parent: _Frame | None = None
    axes: dict[Atom, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, torch.Tensor] = field(default_factory=dict)
    stores: dict[str, tuple[_Store, tuple[int, ...]]] = field(default_factory=dict)
    states: dict[str, _State] = field(default_factory=dict)

    def inside(self, path: Path) -> _Frame:
        return _Frame(path, self, dict(self.axes), dict(self.positions))

    def find(self, kind: str, name: str) -> Any:
        frame: _Frame | None = self
        while frame is not None:
            entry = getattr(frame, kind).get(name)
            if entry is not None:
                return entry
            frame = frame.parent
        return None


@dataclass(slots=True)
class _State:
    """The accumulators of an `Acc`, by the positions of its binds."""

    acc: Acc
    rules: Rules
    values: dict[tuple[int, ...], tuple[torch.Tensor, ...]] = field(default_factory=dict)


class _Sizes(dict[Any, int]):
    """Values of axes at a point, and of size symbols."""

    def __init__(self, axes: Mapping[Atom, int], sizes: Mapping[str, int]) -> None:
        super().__init__(axes)
        self.sizes = sizes

    def __missing__(self, atom: Atom) -> int:
        if atom.kind != "sym":
            raise RuntimeFault(f"{atom.key} has no value here", code="tiles.scope")
        return self.sizes[atom.key]


class _Runner:
    """Executes launches.

    Args:
        tiles: The program.
        sizes: Values of the size symbols.
        order: Source of every order that must not matter.
        watch: Told of each step.
    """

    def __init__(self, tiles: Tiles, sizes: Mapping[str, int], order: random.Random, watch: Watch | None) -> None:
        self.tiles, self.sizes, self.order, self._watch = tiles, sizes, order, watch
        self.stores: dict[str, _Store] = {}
        self.params: dict[str, str] = {}
        self.width = 1 << 63
        self._loops = 0
        self._orders: dict[Val, list[Val]] = {}
        self._binds: dict[str, int] = {}
        self._walks: dict[VectorWalk | GridWalk, tuple[Statement, ...]] = {}

    # ---- launches

    def launch(self, launch: Launch) -> None:
        self.width = 1 << 31 if launch.width == "i32" else 1 << 63
        number = self._loop()
        self._binds.clear()
        for k in self._shuffled(range(len(launch.sets))):
            self.params = dict(zip(launch.params, launch.sets[k], strict=True))
            self._body(launch.body, _Frame(((number, k),)))
        for s in statements(launch.body):
            if isinstance(s, Last) and bool(self._buffer(s.counter).flat.any()):
                raise RuntimeFault(f"{s.counter} isn't 0 after {launch.name}", code="tiles.counter")
        if self._watch is not None:
            used = {name: self.stores[name] for one in launch.sets for name in one if name in self.stores}
            written = {name: store.tensor for name, store in used.items() if store.writers}
            self.tell("\n".join(launch_lines(launch)), written, launch.origins)

    def tell(self, text: str, made: Mapping[str, Any], origins: tuple[Origin, ...]) -> None:
        """Tell of an item of the program."""
        if self._watch is not None:
            memory = {name: store.tensor for name, store in self.stores.items()}
            self._watch(Step(text, made, {**self.sizes, **memory}, origins))

    def _buffer(self, name: str) -> _Store:
        real = self.params.get(name, name)
        if real not in self.stores:
            tensor = allocate(self.tiles.buffers[real], self.sizes)
            counts = real in self.tiles.scratch and tensor.dtype == torch.int32
            self.stores[real] = _Store(tensor.zero_() if counts else _poisoned(tensor), counts)
        return self.stores[real]

    def _loop(self) -> int:
        self._loops += 1
        return self._loops

    def _shuffled(self, items: Sequence[int]) -> list[int]:
        shuffled = list(items)
        self.order.shuffle(shuffled)
        return shuffled

    # ---- statements

    def _body(self, body: Sequence[Statement], frame: _Frame) -> None:
        for s in body:
            getattr(self, f"_{type(s).__name__.lower()}")(s, frame)
            if self._watch is not None and not isinstance(s, _WITH_OTHERS):
                self._watch(Step(simple_text(s), self._made(s, frame), self._known(frame), depth=1))

    def _made(self, s: Statement, frame: _Frame) -> dict[str, Any]:
        """What a statement made, by its names in the launch."""
        match s:
            case Hold() if s.value is not None:
                return {s.name: frame.numbers[s.name]}
            case Run():
                return {s.name: frame.numbers[s.name]}
            case Take():
                return {name: frame.numbers[name] for name in s.names}
            case Put() if s.when is None or bool(self._value(s.when, frame)):
                index = [self._number(e, frame) for e in s.index]
                store, at = self._element(s.target, index, frame)
                return {f"{s.target}[{', '.join(map(str, index))}]": store.flat[at].clone()}
            case Fold():
                state: _State = frame.find("states", s.acc)
                return {s.acc: state.values.get(self._position(state, frame))}
        return {}

    def _known(self, frame: _Frame) -> dict[str, Any]:
        """What has a value at a point: sizes, axes, numbers, arrays, and the launch's buffers by its own names."""
        names: dict[str, Any] = {**self.sizes}
        names |= {param: self.stores[real].tensor for param, real in self.params.items() if real in self.stores}
        frames = [frame]
        while (above := frames[-1].parent) is not None:
            frames.append(above)
        for one in reversed(frames):
            names |= {name: store.flat.reshape(shape) for name, (store, shape) in one.stores.items()}
            names |= {**one.numbers, **{axis.key: at for axis, at in one.axes.items()}}
        return names

    def _for(self, s: For, frame: _Frame) -> None:
        self._binds.update((b.name, b.size) for b in s.binds)
        low, high = self._number(s.low, frame), min(self._number(e, frame) for e in s.high)
        tiles = list(self._tiles(s, low, high, frame))
        if s.back:
            tiles.reverse()
        elif s.is_parallel:
            self.order.shuffle(tiles)
        number = self._loop()
        runs = [x.acc for x in statements(s.body) if isinstance(x, Run)]
        states = {name: state.acc for name in runs if (state := frame.find("states", name)) is not None}
        in_order = has_order(s, states)
        for tile in tiles:
            path = (*frame.path, (number, tile[0])) if s.is_parallel else frame.path
            self._tile(s, tile, frame.inside(path), in_order)

    def _tiles(self, s: For, low: int, high: int, frame: _Frame) -> Iterator[range]:
        """Yield the points of each tile."""
        start = low
        if s.ends == "align" and s.start is not None:
            start = min(high, low + -self._number(s.start, frame) % s.align)
            if start > low:
                yield range(low, start)
        elif s.ends == "none" and (high - low) % s.points and high > low:
            raise RuntimeFault(f"{high - low} points of {s.axis.key} in tiles of {s.points}", code="tiles.ends")
        while start < high:
            n = s.points if s.ends != "peel" or start + s.points <= high else s.vector
            yield range(start, min(start + n, high))
            start += n

    def _tile(self, s: For, tile: range, frame: _Frame, in_order: bool) -> None:
        """Run the points of a tile: those that are unrolled in order, lanes in none unless they are scanned."""
        if not s.binds:
            for point in tile:
                frame.axes[s.axis] = point
                self._body(s.body, frame.inside(frame.path))
            return
        number = self._loop()
        points = list(enumerate(tile))
        alone = s.ends == "peel" and len(tile) < s.points  # what is unrolled has its first position
        binds = [b for b in s.binds if not (alone and b.kind == "unroll")]
        if not in_order and any(b.kind != "unroll" for b in s.binds):
            self.order.shuffle(points)
            points.sort(key=lambda p: _unrolled(binds, p[0]))
        for k, point in points:
            side = () if in_order or all(b.kind == "unroll" for b in s.binds) else ((number, k),)
            inner = frame.inside((*frame.path, *side))
            inner.axes[s.axis] = point
            inner.positions.update((b.name, 0) for b in s.binds)
            for one in reversed(binds):
                k, inner.positions[one.name] = divmod(k, one.size)
            self._body(s.body, inner)

    def _if(self, s: If, frame: _Frame) -> None:
        holds = RELATIONS[s.relation](self._number(s.left, frame), self._number(s.right, frame))
        self._body(s.then if holds else s.orelse, frame)

    def _hold(self, s: Hold, frame: _Frame) -> None:
        if s.value is not None:
            frame.numbers[s.name] = self._value(s.value, frame)
            return
        shape = tuple(self._number(n, frame) for n in s.shape)
        tensor = _poisoned(torch.empty(shape, dtype=dtype_from_name(s.dtype)))
        frame.stores[s.name] = (_Store(tensor, False), shape)

    def _put(self, s: Put, frame: _Frame) -> None:
        if s.when is not None and not bool(self._value(s.when, frame)):
            return
        index = [self._number(e, frame) for e in s.index]
        store, at = self._element(s.target, index, frame)
        store.write(s.target, at, self._value(s.value, frame), frame.path)

    def _acc(self, s: Acc, frame: _Frame) -> None:
        frame.states[s.name] = _State(s, MONOIDS[s.monoid].rules(s.dtype))

    def _fold(self, s: Fold, frame: _Frame) -> None:
        if s.when is None or bool(self._value(s.when, frame)):
            self._add(s.acc, s.values, frame)

    def _run(self, s: Run, frame: _Frame) -> None:
        self._add(s.acc, s.values, frame)
        state: _State = frame.find("states", s.acc)
        now = state.values[self._position(state, frame)]
        fields = MONOIDS[state.acc.monoid].fields
        (frame.numbers[s.name],) = self._results(state.rules.finish, dict(zip(fields, now, strict=True)))

    def _add(self, name: str, values: Sequence[Val], frame: _Frame) -> None:
        state: _State = frame.find("states", name)
        row = MONOIDS[state.acc.monoid]
        key = self._position(state, frame)
        names = dict(zip(row.fields, self._start(state, key), strict=True))
        names |= dict(zip(row.operands, [self._value(v, frame) for v in values], strict=True))
        state.values[key] = self._results(state.rules.fold, names)

    def _position(self, state: _State, frame: _Frame) -> tuple[int, ...]:
        return tuple(frame.positions[b] for b in state.acc.per)

    def _start(self, state: _State, key: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        return state.values.get(key) or self._results(state.rules.identity, {})

    def _take(self, s: Take, frame: _Frame) -> None:
        state: _State = frame.find("states", s.acc)
        row = MONOIDS[state.acc.monoid]
        if s.order in ("each", "state"):
            here = self._start(state, self._position(state, frame))
            if s.order == "each":
                here = self._results(state.rules.finish, dict(zip(row.fields, here, strict=True)))
            frame.numbers.update(zip(s.names, here, strict=True))
            return
        if s.order == "halves":
            parts = [self._halves(state)]
        else:
            parts = [state.values[key] for key in sorted(state.values)] or [self._start(state, ())]
        while len(parts) > 1:
            merged = [self._merged(state, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            if s.order == "tree":
                parts = merged + parts[len(merged) * 2 :]
            else:
                parts = [merged[0], *parts[2:]]
        results = self._results(state.rules.finish, dict(zip(row.fields, parts[0], strict=True)))
        frame.numbers.update(zip(s.names, results, strict=True))

    def _halves(self, state: _State) -> tuple[torch.Tensor, ...]:
        """All positions joined: those of the last bind first apart, then by halves."""
        *outer, last = [self._binds.get(b, 1) for b in state.acc.per] or [1]
        vectors = [
            [self._start(state, (*key, lane)) for lane in range(last)] for key in itertools.product(*map(range, outer))
        ]
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [[self._merged(state, a, b) for a, b in zip(x, y, strict=True)] for x, y in pairs]
        (parts,) = vectors
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [self._merged(state, a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
        return parts[0]

    def _merged(
        self, state: _State, a: tuple[torch.Tensor, ...], b: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, ...]:
        fields = MONOIDS[state.acc.monoid].fields
        names = dict(zip(fields, a, strict=True)) | {f"other_{f}": v for f, v in zip(fields, b, strict=True)}
        return self._results(state.rules.merge, names)

    def _results(self, rules: Sequence[Val], names: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        frame = _Frame((), numbers=dict(names))
        return tuple(self._value(v, frame) for v in rules)

    def _update(self, s: Update, frame: _Frame) -> None:
        place = s.place
        at = int(self._value(place, frame)) if isinstance(place, Val) else self._number(place, frame)
        store, at = self._element(s.buffer, [at], frame)
        row, rules = MONOIDS[s.monoid], MONOIDS[s.monoid].rules(s.value.dtype)
        atomic = s.how == "atomic"
        is_updated = atomic and at in store.writers
        before = store.flat[at].clone() if is_updated else store.read(s.buffer, at, frame.path).clone()
        names = {row.fields[0]: before, row.operands[0]: self._value(s.value, frame)}
        (value,) = self._results(rules.fold, names)
        if atomic:
            store.readers.pop(at, None)
        store.write(s.buffer, at, value, frame.path, atomic)

    def _turn(self, s: Turn, frame: _Frame) -> None:
        store, shape = frame.find("stores", s.name)
        square = store.flat.reshape(shape)
        square.copy_(square.t().clone())

    def _last(self, s: Last, frame: _Frame) -> None:
        store = self._buffer(s.counter)
        group = self._number(s.group, frame)
        if not 0 <= group < store.size:
            raise RuntimeFault(f"{s.counter} is read at {group} of {store.size}", code="tiles.bounds")
        store.flat[group] += 1
        if int(store.flat[group]) == s.arrivals:
            store.flat[group] = 0
            # what it runs comes after all that its group did
            self._body(s.body, frame.inside(((self._loop(), 0),)))

    def _vectorwalk(self, s: VectorWalk, frame: _Frame) -> None:
        for name in s.outs:  # also those that have no element
            self._buffer(name)
        self._written_out(s, frame)

    def _written_out(self, s: VectorWalk | GridWalk, frame: _Frame) -> None:
        if s not in self._walks:
            self._walks[s] = expand(s)
        self._body(self._walks[s], frame)

    def _gridwalk(self, s: GridWalk, frame: _Frame) -> None:
        for name in s.stored():  # also those that have no element
            self._buffer(name)
        self._written_out(s, frame)

    def _check(self, s: Check, frame: _Frame) -> None:
        if not bool(self._value(s.value, frame)):
            raise RuntimeFault(s.text, code="tiles.check")

    # ---- values

    def _number(self, expr: IndexExpr, frame: _Frame) -> int:
        constant = expr.const()
        number = constant if constant is not None else expr.value(_Sizes(frame.axes, self.sizes))
        if not -self.width <= number < self.width:
            raise RuntimeFault(f"{number} doesn't fit the launch's index width", code="tiles.width")
        return number

    def _element(self, name: str, index: Sequence[int], frame: _Frame) -> tuple[_Store, int]:
        held = frame.find("stores", name)
        if held is None:
            (at,) = index
            return self._buffer(name), at
        store, shape = held
        at = 0
        for i, n in zip(index, shape, strict=True):
            if not 0 <= i < n:
                raise RuntimeFault(f"{name} is used at {list(index)} of {list(shape)}", code="tiles.bounds")
            at = at * n + i
        return store, at

    def _value(self, body: Val, frame: _Frame) -> torch.Tensor:
        order = self._orders.get(body)
        if order is None:
            order = self._orders[body] = list(postorder(body))
        memo: dict[Val, torch.Tensor] = {}
        for v in order:
            memo[v] = self._one(v, memo, frame)
        return memo[body]

    def _one(self, v: Val, memo: Mapping[Val, torch.Tensor], frame: _Frame) -> torch.Tensor:
        dtype = dtype_from_name(v.dtype)
        if v.op == "const":
            return torch.full((), v.args[0], dtype=dtype)
        if v.op == "index":
            number = self._number(v.args[0], frame)
            if v.dtype == "i32":  # see `vectors.narrow`: what doesn't fit keeps its sign
                number = min(max(number, -(1 << 31)), (1 << 31) - 1)
            return torch.full((), number, dtype=dtype)
        if v.op in ("load", "gather"):
            name, entries = v.args
            held: torch.Tensor | None = None if entries else frame.find("numbers", name)
            if held is not None:
                return held
            index = [int(memo[e]) if isinstance(e, Val) else self._number(e, frame) for e in entries]
            store, at = self._element(name, index, frame)
            return store.read(name, at, frame.path).clone()
        if v.op == "cast":
            return memo[v.args[0]].to(dtype)
        reference = SCALAR_OPS[v.op].reference
        assert reference is not None, f"{v.op} has no meaning of its own"
        result: torch.Tensor = reference(*[memo[a] for a in v.args])
        return result


def _poisoned(tensor: torch.Tensor) -> torch.Tensor:
    """Fill memory with what shows when it is used: NaN, or a large number."""
    if tensor.dtype.is_floating_point:
        return tensor.fill_(float("nan"))
    return tensor.fill_(True) if tensor.dtype == torch.bool else tensor.fill_(torch.iinfo(tensor.dtype).max)
