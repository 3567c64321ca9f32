"""Calls with subgraphs: what a node calls that is given functions, in the torch and aten dialects and below them.

    %1: (f32[3],) = cond[
      graph(%x: f32[3]) {
        ...
      }
      graph(%x: f32[3]) {
        ...
      }
    ](%p, %x)

A higher-order op is a target like any other: it is called with tensors and numbers, and gives a tuple of tensors in
memory of their own. The functions are its graphs, of the same dialect as the graph that its node is in. They read
nothing but their inputs: what a function of the user reads from outside is an operand. Each graph gives tensors that
share no memory with its inputs, nor with each other, and writes none of its inputs.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir._fx import attribute, copy_graph, placeholders, wrap
from intarsia_ir._names import name_of
from intarsia_ir.dialects import dialect_of
from intarsia_ir.effects import Effects
from intarsia_ir.errors import InvalidArgumentError

__all__ = [
    "HIGHER_ORDER",
    "HigherOrderOp",
    "HigherOrderRow",
    "Layout",
    "effects_of",
    "n_inputs",
    "n_results",
    "with_makers",
    "without_values",
]

Body = Callable[..., Sequence[Any]]
Maker = Callable[[], Body]
Options = Mapping[str, int]


class Layout(NamedTuple):
    """What a result looks like.

    Args:
        shape: Sizes in elements, numbers or symbols.
        strides: In elements.
        dtype: Element type.
        device: Where it is.
    """

    shape: Sequence[Any]
    strides: Sequence[Any]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """Return that of a tensor."""
        return cls(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


def _as_graphs_give(options: Options, operands: Sequence[Any], results: Sequence[Any]) -> Sequence[Layout]:
    return [Layout.of(x) for x in results]


@dataclass(frozen=True, slots=True)
class HigherOrderRow:
    """One higher-order op.

    Args:
        name: As in the text.
        graphs: What each of its graphs is.
        options: Names of its whole numbers.
        n_inputs: `(options, number of operands)` -> the number of inputs of each graph.
        n_results: `(options, number of results of each graph)` -> how many the op gives; None where they don't fit.
        alike: Numbers of the graphs whose results tell what the op's look like.
        run: `(bodies, options, operands)` -> the results: what it means.
        doc: One line.
        layouts: `(options, operands, results of one of the graphs that are alike)` -> what the op's results look like.
    """

    name: str
    graphs: tuple[str, ...]
    options: tuple[str, ...]
    n_inputs: Callable[[Options, int], tuple[int, ...]]
    n_results: Callable[[Options, Sequence[int]], int | None]
    alike: tuple[int, ...]
    run: Callable[[Sequence[Body], Options, Sequence[Any]], Sequence[Any]]
    doc: str
    layouts: Callable[[Options, Sequence[Any], Sequence[Any]], Sequence[Layout]] = _as_graphs_give


def _cond(bodies: Sequence[Body], options: Options, operands: Sequence[Any]) -> Sequence[Any]:
    predicate, *given = operands
    return bodies[0 if predicate else 1](*given)


def _while_loop(bodies: Sequence[Body], options: Options, operands: Sequence[Any]) -> Sequence[Any]:
    condition, body = bodies
    given, others = operands[: options["carried"]], operands[options["carried"] :]
    carried = given
    while condition(*carried, *others)[0]:
        carried = tuple(body(*carried, *others))
    # what no iteration has changed is the operands, whose memory isn't the results' own
    return [x.clone() for x in given] if carried is given else carried


def _unwind(bodies: Sequence[Body], options: Options, operands: Sequence[Any]) -> Sequence[Any]:
    condition, body, gradient = bodies
    n_carried, n_back = options["carried"], options["back"]
    carried, tangents = tuple(operands[:n_carried]), tuple(operands[n_carried : n_carried + n_back])
    rest = operands[n_carried:]
    iterations = []
    while condition(*carried, *rest)[0]:
        iterations.append(carried)
        carried = tuple(body(*carried, *rest))
    others, results = rest[n_back:], tangents
    for given in reversed(iterations):
        results = tuple(gradient(*given, *results, *others))
    return results if iterations else [x.clone() for x in tangents]


def _scan(bodies: Sequence[Body], options: Options, operands: Sequence[Any]) -> Sequence[Any]:
    n_carried, n_rows = options["carried"], options["scanned"]
    carried, scanned = tuple(operands[:n_carried]), operands[n_carried : n_carried + n_rows]
    others = operands[n_carried + n_rows :]
    rows = []
    for number in range(len(scanned[0])):
        # a row in memory of its own: the body was recorded for one that is all of its memory
        results = bodies[0](*carried, *[x[number].clone() for x in scanned], *others)
        carried = tuple(results[:n_carried])
        rows.append(results[n_carried:])
    if not rows:
        raise InvalidArgumentError("a scan of no rows: nothing tells what it would give", code="ir.no_rows")
    return (*carried, *[torch.stack(values) for values in zip(*rows, strict=True)])


def _scan_layouts(options: Options, operands: Sequence[Any], results: Sequence[Any]) -> Sequence[Layout]:
    n_carried = options["carried"]
    n_rows = operands[n_carried].shape[0]
    stacked = [
        Layout((n_rows, *y.shape), _row_by_row((n_rows, *y.shape)), y.dtype, y.device) for y in results[n_carried:]
    ]
    return [*map(Layout.of, results[:n_carried]), *stacked]


def _row_by_row(shape: Sequence[Any]) -> Sequence[Any]:
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step = step * size
    return strides


HIGHER_ORDER: Mapping[str, HigherOrderRow] = MappingProxyType(
    {
        row.name: row
        for row in (
            HigherOrderRow(
                "cond",
                ("true", "false"),
                (),
                lambda options, n: (n - 1, n - 1),
                lambda options, found: found[0] if found[0] == found[1] else None,
                (0, 1),
                _cond,
                "cond[true, false](predicate, *operands): what one of the graphs gives for the operands",
            ),
            HigherOrderRow(
                "while_loop",
                ("condition", "body"),
                ("carried",),
                lambda options, n: (n, n),
                lambda options, found: found[1] if list(found) == [1, options["carried"]] else None,
                (1,),
                _while_loop,
                "while_loop[condition, body, carried](*carried, *others): the body, as long as the condition is true",
            ),
            HigherOrderRow(
                "unwind",
                ("condition", "body", "gradient"),
                ("carried", "back"),
                lambda options, n: (n, n, n),
                lambda options, found: found[2] if list(found) == [1, options["carried"], options["back"]] else None,
                (2,),
                _unwind,
                "unwind[condition, body, gradient, carried, back](*carried, *back, *others): the loop once more, then "
                "the gradient of the body for each iteration from the last one on, given what the one behind it gave",
            ),
            HigherOrderRow(
                "scan",
                ("body",),
                ("carried", "scanned"),
                lambda options, n: (n,),
                lambda options, found: found[0] if found[0] >= options["carried"] else None,
                (0,),
                _scan,
                "scan[body, carried, scanned](*carried, *scanned, *others): the body for each row of what is scanned, "
                "given what the row before left to carry; what the last one left, and what else each gave, stacked",
                _scan_layouts,
            ),
        )
    }
)
"""The table of higher-order ops, by name."""


class HigherOrderOp:
    """What the node of a call with subgraphs calls.

    Args:
        name: Key of `HIGHER_ORDER`.
        programs: Its graphs, in the order of the row.
        options: Its whole numbers, by name.
        makers: For each graph what makes the function that runs in its place in a compiled program, or None: the
            graph itself does. None given: all graphs do.

    Raises:
        InvalidArgumentError: `ir.higher_order`: the row has another number of graphs, or other options.

    Example:
        >>> sine, cosine = fx.symbolic_trace(lambda x: (x.sin(),)), fx.symbolic_trace(lambda x: (x.cos(),))
        >>> HigherOrderOp("cond", (sine, cosine))(torch.tensor(False), torch.tensor(0.0))
        (tensor(1.),)
    """

    #: Its results are a list of any length; the operands follow from its graphs.
    _schema: Any = torch._C.parse_schema("intarsia_higher_order::call(Tensor[] operands) -> Tensor[]")

    def __init__(
        self,
        name: str,
        programs: Sequence[fx.GraphModule],
        options: Options = MappingProxyType({}),
        makers: Sequence[Maker | None] = (),
    ) -> None:
        row = HIGHER_ORDER.get(name)
        if row is None or len(programs) != len(row.graphs) or sorted(options) != sorted(row.options):
            raise InvalidArgumentError(
                f"{name} of {len(programs)} graphs with the options {sorted(options)} is no higher-order op",
                code="ir.higher_order",
                hints=tuple(f"{r.name} takes the graphs {r.graphs} and the options {r.options}" for r in _rows()),
            )
        self.name = name
        self.row = row
        self.programs = tuple(programs)
        self.makers = tuple(makers) or (None,) * len(self.programs)
        self.options = MappingProxyType({key: options[key] for key in row.options})
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        """Return the results for these operands."""
        return tuple(self.row.run(self.programs, self.options, operands))

    def launcher(self) -> Callable[..., tuple[Any, ...]]:
        """Return what a compiled program calls: a function of the operands that runs those which the makers make."""
        bodies = [make() if make else program for make, program in zip(self.makers, self.programs, strict=True)]
        run, options = self.row.run, self.options
        return lambda *operands: tuple(run(bodies, options, operands))

    def with_programs(self, programs: Sequence[fx.GraphModule]) -> HigherOrderOp:
        """Return the same op of other graphs, without makers."""
        return HigherOrderOp(self.name, programs, self.options)

    @property
    def dialect(self) -> str:
        """The dialect of its graphs, for `intarsia_ir.dialects`: "torch", or "" for one of overloads."""
        return "torch" if any(dialect_of(program) == "torch" for program in self.programs) else ""

    @functools.cached_property
    def digest(self) -> str:
        """A short text that is equal for ops of equal graphs in any process; the tensors that they hold don't count."""
        whole = hashlib.blake2b(digest_size=6)
        for part in (self.name, dict(self.options), *map(_lines, self.programs)):
            whole.update(repr(part).encode() + b"\x1e")
        return whole.hexdigest()

    def __str__(self) -> str:
        return f"higher_order.{self.name}.{self.digest}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HigherOrderOp):
            return NotImplemented
        return self is other or (self._key() == other._key() and self._held() == other._held())

    def __hash__(self) -> int:
        return hash(self._key())

    def __deepcopy__(self, memo: Any) -> HigherOrderOp:
        return self

    def _key(self) -> Any:
        return self.name, self.digest

    def _held(self) -> list[int]:
        """Identities of the tensors in the graphs."""
        return [
            id(attribute(program, str(node.target)))
            for program in self.programs
            for node in program.graph.find_nodes(op="get_attr")
        ]


def effects_of(op: HigherOrderOp, node_effects: Callable[[fx.Node], Effects]) -> Effects:
    """Return what a call does besides computing: it draws and raises as its graphs do; what they write is their own."""
    effects = [node_effects(node) for program in op.programs for node in program.graph.nodes]
    return Effects(
        random=any(e.random for e in effects),
        may_raise=any(e.may_raise or e.checks for e in effects),
        opaque=any(e.opaque for e in effects),
        communicates=any(e.communicates for e in effects),
    )


def n_results(program: fx.GraphModule) -> int:
    """Return how many results a graph gives."""
    (output,) = program.graph.find_nodes(op="output")
    return len(output.args[0])


def n_inputs(program: fx.GraphModule) -> int:
    """Return how many inputs a graph has."""
    return len(placeholders(program.graph))


def without_values(op: HigherOrderOp) -> HigherOrderOp:
    """Return an op whose graphs are the same without values, which belong to a fake mode."""
    return HigherOrderOp(op.name, [_bare(program) for program in op.programs], op.options, op.makers)


def with_makers(gm: fx.GraphModule, maker_of: Callable[[fx.GraphModule], Maker | None]) -> fx.GraphModule:
    """Return a graph whose higher-order ops have makers; `gm` itself where it calls none.

    Args:
        gm: FX(aten).
        maker_of: One of their graphs -> its maker, or None.
    """
    if not any(isinstance(node.target, HigherOrderOp) for node in gm.graph.nodes):
        return gm
    graph, _ = copy_graph(gm.graph)
    for node in graph.nodes:
        op = node.target
        if isinstance(op, HigherOrderOp):
            node.target = HigherOrderOp(op.name, op.programs, op.options, [maker_of(p) for p in op.programs])
    return wrap(gm, graph)


def _bare(program: fx.GraphModule) -> fx.GraphModule:
    graph, _ = copy_graph(program.graph)
    for node in graph.nodes:
        meta.drop_value(node)
        if isinstance(node.target, HigherOrderOp):
            node.target = without_values(node.target)
    return wrap(program, graph)


def _rows() -> Sequence[HigherOrderRow]:
    return tuple(HIGHER_ORDER.values())


def _lines(program: fx.GraphModule) -> list[str]:
    """Return a text of a graph in which nodes are numbers."""
    numbers = {node: position for position, node in enumerate(program.graph.nodes)}

    def shown(node: fx.Node) -> str:
        return f"%{numbers[node]}"

    return [
        repr((node.op, _target(node), fx.node.map_arg(node.args, shown), fx.node.map_arg(node.kwargs, shown)))
        for node in program.graph.nodes
    ]


def _target(node: fx.Node) -> str:
    return "" if node.op == "placeholder" else name_of(node.target) or str(node.target)
