"""A captured call, taken apart: where inputs of its graph come from, what its results become, what it relied on.

The tracer answers a call with a graph and bytecode around it, which fetches the inputs, calls the graph and builds what
the function returns. That code is run here once, with a stand-in for the graph: what the stand-in is given are the
inputs, and what comes out, with its results in it, says how the call's result is made of them. Sizes that vary are
symbols while it runs, so that a number computed from them comes out as an expression.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, MethodType
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree

from intarsia_export.contents import Parameter, literal_text
from intarsia_export.trees import Node, tree_of
from intarsia_export.weights import Weights
from intarsia_guards.frame import Frame, fetch
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.guards import (
    AliasingGuard,
    DeterministicGuard,
    DistinctGuard,
    NotIdentityGuard,
    OverlapGuard,
    TensorGuard,
    TorchModesGuard,
    TypeGuard,
)
from intarsia_ir.records import (
    ArgumentSource,
    Capture,
    GuardRecord,
    LinkableCode,
    Origin,
    Role,
    Signature,
    Source,
)
from intarsia_shapes import python_text

__all__ = ["Capturing", "Function", "Parts", "function_of", "parameters_of", "path_text", "relied_on", "variant_parts"]


@dataclass(frozen=True, slots=True)
class Capturing:
    """What captures calls.

    Args:
        capture: `(function, args, kwargs, fullgraph=...) -> Capture`.
        link: `(code, holes) -> code object`.
    """

    capture: Callable[..., Capture]
    link: Callable[[LinkableCode, Mapping[str, object]], Any]


# ---- the function -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Function:
    """What is called.

    Args:
        bound: A function or a bound method.
        plain: Its function.
        own: What it is bound to, before the arguments; empty for a function.
        name: For messages.
    """

    bound: Any
    plain: FunctionType
    own: tuple[Any, ...]
    name: str

    @property
    def own_name(self) -> str | None:
        """The parameter that `own` is bound to."""
        return self.plain.__code__.co_varnames[0] if self.own else None

    def origin(self) -> Origin:
        """Return the line that it begins at."""
        code = inspect.unwrap(self.plain).__code__
        return Origin(code.co_filename, code.co_firstlineno, self.name)

    def signature(self) -> inspect.Signature:
        """Return the parameters without the bound one."""
        return inspect.signature(self.bound, follow_wrapped=False)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameter name -> value, defaults too.

        Raises:
            InvalidArgumentError: `export.arguments`: they don't fit.
        """
        try:
            bound = self.signature().bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgumentError(
                f"the arguments don't fit {self.name}: {error}",
                code="export.arguments",
                hints=(f"it takes {self.signature()}: give export an example of each, in a tuple",),
            ) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def nested_shapes(self, given: Any, arguments: Mapping[str, Any]) -> Any:
        """Return `dynamic_shapes` nested as `arguments`, for a function that hands `*args` and `**kwargs` on.

        Names, and an order, are those of the function that it wraps.
        """
        kinds = {p.kind: name for name, p in self.signature().parameters.items()}
        rest, named = kinds.get(inspect.Parameter.VAR_POSITIONAL), kinds.get(inspect.Parameter.VAR_KEYWORD)
        wrapped = list(inspect.signature(self.bound).parameters)
        if isinstance(given, (tuple, list)) and wrapped != list(arguments):
            given = dict(zip(wrapped, given, strict=False)) if len(given) <= len(wrapped) else given
        if not isinstance(given, Mapping):
            return given
        specs = {name: spec for name, spec in given.items() if name in arguments}
        for name, spec in given.items():
            place = wrapped.index(name) if name in wrapped else -1
            if name in arguments:
                continue
            if named is not None and name in arguments.get(named, {}):
                specs.setdefault(named, {})[name] = spec
            elif rest is not None and 0 <= place < len(arguments.get(rest, ())):
                specs.setdefault(rest, [None] * len(arguments[rest]))[place] = spec
            elif spec is not None:
                specs[name] = spec  # no argument: whoever looks for it tells
        return specs

    def call_with(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments that give parameters these values."""
        bound = inspect.BoundArguments(self.signature(), dict(arguments))  # type: ignore[arg-type]
        return bound.args, bound.kwargs


def function_of(fn: Any) -> Function:
    """Return what a call of `fn` calls: of a module without hooks its `forward`.

    Raises:
        InvalidArgumentError: `export.function`: it is no function of Python's.
    """
    called = fn
    if isinstance(fn, torch.nn.Module):
        called = type(fn).__call__.__get__(fn) if _has_hooks(fn) else fn.forward
    elif not isinstance(fn, (FunctionType, MethodType)) and callable(fn):
        called = getattr(fn, "__call__", fn)  # noqa: B004  (the bound method itself)
    plain = called.__func__ if isinstance(called, MethodType) else called
    if not isinstance(plain, FunctionType):
        raise InvalidArgumentError(
            f"a function, a bound method or a module is exported, not {fn!r}", code="export.function"
        )
    receiver = (called.__self__,) if isinstance(called, MethodType) else ()
    name = type(fn).__qualname__ if isinstance(fn, torch.nn.Module) else plain.__qualname__
    return Function(called, plain, receiver, name)


def _has_hooks(module: torch.nn.Module) -> bool:
    shared = torch.nn.modules.module
    names = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    hooks = [vars(module)[f"_{name}"] for name in names]
    return any(hooks) or any(getattr(shared, f"_global_{name}") for name in names)


def parameters_of(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Return the parameters of what was exported with these arguments."""
    signature = function.signature()
    given = signature.bind(*args, **kwargs).arguments
    parameters = []
    for p in signature.parameters.values():
        default = None if p.default is inspect.Parameter.empty else literal_text(p.default)
        has_default = p.default is not inspect.Parameter.empty
        parameters.append(Parameter(p.name, p.kind.name, default, has_default and p.name not in given))
    return tuple(parameters)


# ---- one captured call ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parts:
    """A captured call.

    Args:
        graph_module: FX(torch), or a graph of another front end.
        inputs_at_capture: Its example inputs.
        signature: What is known of its inputs.
        inputs: Where they come from: a weight by name, or a place among the arguments.
        result: What the call returns.
        names: Of the parameters.
        checks: How many of the first results must be true.
        records: What capture relied on.
        renamed: What inputs are called in guards of later stages -> where they are.
    """

    graph_module: Any
    inputs_at_capture: tuple[Any, ...]
    signature: Signature
    inputs: tuple[str | Source, ...]
    result: Node
    names: frozenset[str]
    checks: int = 0
    records: tuple[GuardRecord, ...] = ()
    renamed: Mapping[Source, Source] = field(default_factory=dict)

    def relied_on(
        self, further: Sequence[GuardRecord]
    ) -> tuple[tuple[GuardRecord, ...], tuple[tuple[Source, str], ...]]:
        """Return what must hold of arguments, and the names of their classes; see `relied_on`."""
        return relied_on((*self.records, *[_renamed(record, self.renamed) for record in further]), self.names)


def _renamed(record: GuardRecord, names: Mapping[Source, Source]) -> GuardRecord:
    if not isinstance(record, OverlapGuard) or not names:
        return record
    others = tuple(names.get(other, other) for other in record.others)
    return replace(record, source=names.get(record.source, record.source), others=others)


def variant_parts(function: Function, arguments: Mapping[str, Any], weights: Weights, capturing: Capturing) -> Parts:
    """Capture a call, whole.

    Args:
        function: What is called.
        arguments: Parameter name -> value.
        weights: Gives names to tensors that aren't among the arguments.
        capturing: See there.

    Raises:
        UnsupportedError: It isn't one graph, or does what an artefact can't.
    """
    args, kwargs = function.call_with(arguments)
    captured = capturing.capture(function.bound, args, kwargs, fullgraph=True)
    _refuse(captured, function)
    stand_in = _StandIn(captured.graph_module)
    run = _Replay(function, arguments, captured, stand_in, capturing.link)
    returned = run.returned()
    names = frozenset(arguments)
    frame = Frame(arguments)
    inputs = tuple(
        _place(spec, value, names, weights)
        for spec, value in zip(captured.signature.inputs, stand_in.given, strict=True)
    )
    leaf = _Leaves(frame, run, stand_in, inputs, weights)
    try:
        result = tree_of(returned, leaf)
    except UnsupportedError as error:
        error.where = error.where or (function.origin(),)
        raise
    return Parts(
        captured.graph_module,
        captured.example_inputs,
        captured.signature,
        inputs,
        result,
        names,
        stand_in.asked(),
        captured.guards,
    )


def _refuse(captured: Capture, function: Function) -> None:
    """Raise for a call whose effects an artefact can't have."""
    where = function.origin()
    if captured.graph_module is None or captured.breaks:
        broken = captured.breaks[0] if captured.breaks else None
        raise UnsupportedError(
            broken.reason if broken else f"{function.name} computes nothing with tensors",
            code=broken.code if broken else "export.nothing",
            where=(broken.origin if broken and broken.origin else where,),
            hints=(broken.remedy,) if broken and broken.remedy else (),
        )
    if captured.code.changes:
        text, line = captured.code.changes[0]
        raise UnsupportedError(
            f"{text} is another after the call, and an artefact changes only tensors, in place",
            code="export.effect",
            where=(line or where,),
            hints=("write into a buffer (self.count.add_(1)), or return the new value",),
        )
    if captured.code.undo is not None:
        raise UnsupportedError(
            "the call draws from Python's random numbers, or asks a tensor to require grad, which an artefact doesn't",
            code="export.effect",
            where=(where,),
            hints=("draw with torch or pass the numbers as arguments; ask before the call",),
        )


class _Result:
    """Stands for one result of the graph."""

    def __init__(self, number: int) -> None:
        self.number, self.asked = number, False

    def __bool__(self) -> bool:
        self.asked = True
        return True


class _StandIn:
    """Stands for a graph: keeps what it is given, and gives a stand-in for each result."""

    def __init__(self, graph_module: Any) -> None:
        (output,) = graph_module.graph.find_nodes(op="output")
        self.results = [_Result(n) for n in range(len(output.args[0]))]
        self.given: tuple[Any, ...] = ()

    def __call__(self, *inputs: Any) -> list[_Result]:
        self.given = inputs
        return self.results

    def asked(self) -> int:
        """Return how many of the first results were asked whether they are true."""
        return sum(result.asked for result in self.results)


class _Sized:
    """Stands for a tensor of sizes that vary: they are symbols."""

    def __init__(self, tensor: torch.Tensor, numbers: Mapping[tuple[str, int], Any]) -> None:
        self.tensor, self._numbers = tensor, numbers

    def size(self, dim: int | None = None) -> Any:
        if dim is None:
            return torch.Size([self.size(d) for d in range(self.tensor.dim())])
        return self._numbers.get(("size", dim), self.tensor.size(dim))

    def stride(self, dim: int) -> Any:
        return self._numbers.get(("stride", dim), self.tensor.stride(dim))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


def _as_int(value: Any) -> Any:
    return value if isinstance(value, torch.SymInt) else int(value)


@dataclass(slots=True)
class _Replay:
    """Runs the code around a graph once, over arguments whose sizes are symbols."""

    function: Function
    arguments: Mapping[str, Any]
    captured: Capture
    stand_in: _StandIn
    link: Callable[[LinkableCode, Mapping[str, object]], Any]
    stands_for: dict[int, torch.Tensor] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)

    def returned(self) -> Any:
        """Return what the call would, of stand-ins."""
        (hole,) = self.captured.code.holes
        code = self.link(self.captured.code, {hole: self.stand_in})
        # int() would make a number of a symbol
        code = code.replace(co_consts=tuple(_as_int if value is int else value for value in code.co_consts))
        plain = self.function.plain
        run = FunctionType(code, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__)
        run.__kwdefaults__ = plain.__kwdefaults__
        args, kwargs = self.function.call_with(self._sized())
        env = self._env()
        n_guards = len(env.guards) if env is not None else 0
        before = torch.is_grad_enabled()
        try:
            returned = run(*self.function.own, *args, **kwargs)
            if torch.is_grad_enabled() is not before or (env is not None and len(env.guards) != n_guards):
                raise TypeError("it sets a mode of torch, or decides by a size")
        except (TypeError, AttributeError) as error:  # of a stand-in
            raise UnsupportedError(
                f"what {self.function.name} returns isn't made of results of its graph alone: {error}",
                code="export.result",
                where=(self.function.origin(),),
                hints=("return tensors, numbers of sizes and constants, in containers",),
            ) from error
        finally:
            torch._C._set_grad_enabled(before)
        return returned

    def _env(self) -> Any:
        values = self.captured.example_inputs
        modes = [value.fake_mode for value in values if hasattr(value, "fake_mode")]
        return next((mode.shape_env for mode in modes if mode.shape_env is not None), None)

    def _sized(self) -> Mapping[str, Any]:
        """Return the arguments with stand-ins for the tensors whose sizes vary."""
        env, numbers = self._env(), dict[str, Any]()
        if env is not None:
            hints = self.captured.facts.hints
            for name, text in self.captured.facts.symbols.items():
                symbol = next((s for s in env.sources if s.name == name.partition("_")[0]), None)
                if symbol is not None and name in hints:
                    numbers[text] = torch.SymInt(env.node(symbol, int, hints[name]))
                elif symbol is not None:
                    numbers[text] = torch.SymInt(env.node(symbol, int, hints[symbol.name]))
        if not numbers:
            return self.arguments
        sized: dict[str, Any] = {}
        for name, value in self.arguments.items():
            leaves, spec = pytree.tree_flatten_with_path(value)
            new = [self._stand_in(leaf, name + path_text(path), numbers) for path, leaf in leaves]
            sized[name] = pytree.tree_unflatten(new, spec)
        return sized

    def _stand_in(self, leaf: Any, path: str, numbers: Mapping[str, Any]) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        sizes = {
            (kind, dim): number
            for kind in ("size", "stride")
            for dim in range(leaf.dim())
            if (number := numbers.get(f"{path}.{kind}({dim})")) is not None
        }
        if not sizes:
            return leaf
        sized = _Sized(leaf, sizes)
        self.stands_for[id(sized)] = leaf
        self.kept.append(sized)
        return sized


def path_text(path: Sequence[Any]) -> str:
    """Return the text of a way through nested containers, as it is written in Python."""
    parts = []
    for key in path:
        match key:
            case pytree.SequenceKey(idx=index):
                parts.append(f"[{index}]")
            case pytree.MappingKey(key=name):
                parts.append(f"[{name!r}]")
            case pytree.GetAttrKey(name=name):
                parts.append(f".{name}")
    return "".join(parts)


def _place(spec: Any, value: Any, names: frozenset[str], weights: Weights) -> str | Source:
    """Return where an input of a graph comes from."""
    value = value.tensor if isinstance(value, _Sized) else value
    source: Source | None = spec.source
    if source is not None and _root(source) in names and spec.role is not Role.NUMBER:
        return source
    if spec.role is Role.LEAF:
        raise UnsupportedError(
            "the call makes a tensor that requires grad, and an artefact has no gradients",
            code="export.input",
            hints=("make it before the call, or call under torch.no_grad()",),
        )
    if isinstance(value, torch.Tensor) and spec.role is not Role.NUMBER:
        return weights.name(value, _weight_name(source, spec.name))
    raise UnsupportedError(
        f"the graph takes {source or spec.name}, a number that isn't a constant of the program",
        code="export.input",
        hints=("pass it as an argument of the exported function, or as a tensor",),
    )


def _weight_name(source: Source | None, name: str) -> str:
    if source is None:
        return name
    keys = [getattr(s, "key", getattr(s, "name", None)) for s in _way(source)[1:]]
    words = [str(key) for key in keys if key not in ("_modules", "_parameters", "_buffers")]
    return ".".join(words) or name


def _way(source: Source | None) -> list[Any]:
    """Return what a source is fetched from, outermost object first, and itself."""
    steps: list[Any] = []
    while source is not None:
        steps.append(source)
        source = getattr(source, "base", None)
    return steps[::-1]


def _root(source: Source | None) -> str | None:
    """Return the parameter that a source begins at; None: another place."""
    first = _way(source)[0] if source is not None else None
    return first.name if isinstance(first, ArgumentSource) else None


class _Leaves:
    """Says what leaves of a result are."""

    def __init__(
        self, frame: Frame, run: _Replay, stand_in: _StandIn, inputs: Sequence[str | Source], weights: Weights
    ) -> None:
        self.frame, self.run, self.weights = frame, run, weights
        self.places: dict[int, str] = {}
        for name, value in frame.arguments.items():
            self.places.setdefault(id(value), name)
            for path, leaf in pytree.tree_flatten_with_path(value)[0]:
                self.places.setdefault(id(leaf), name + path_text(path))
        for place in inputs:
            if not isinstance(place, str):
                self.places.setdefault(id(fetch(place, frame)), str(place))

    def __call__(self, value: Any, path: str) -> Node:
        """Return what a leaf is."""
        value = self.run.stands_for.get(id(value), value)
        if isinstance(value, _Result):
            return {"result": value.number}
        if isinstance(value, torch.SymInt):
            return {"size": python_text(sympy.sympify(value.node.expr))}
        if isinstance(value, torch.Tensor):
            if id(value) in self.places:
                return {"argument": self.places[id(value)]}
            return {"weight": self.weights.name(value, path.replace("the result", "result"))}
        text = literal_text(value)
        if text is not None:
            return {"value": text}
        if id(value) in self.places:
            return {"argument": self.places[id(value)]}
        raise UnsupportedError(
            f"{path} is a {type(value).__qualname__}, which an artefact can't hold",
            code="export.result",
            hints=("return tensors, numbers, text, and tuples, lists and dictionaries of them",),
        )


# ---- what was relied on -----------------------------------------------------------------------------------------


def relied_on(
    records: Sequence[GuardRecord], names: frozenset[str]
) -> tuple[tuple[GuardRecord, ...], tuple[tuple[Source, str], ...]]:
    """Return what of a capture's guards depends on the arguments of a call, and the names of their classes.

    What speaks of the program itself, its modules, globals and settings, holds for good: the artefact is the program as
    it was. Autocast, the default type and the grad mode are those of the export.

    Raises:
        UnsupportedError: `export.guard`: it can't be checked in another process.
    """
    kept: list[GuardRecord] = []
    types: dict[Source, str] = {}
    for record in records:
        if record.source is None:
            kept += [record] if isinstance(record, DeterministicGuard | TorchModesGuard) and _text(record) else []
        elif _root(record.source) in names:
            if isinstance(record, TypeGuard):
                types[record.source] = f"{record.cls.__module__}.{record.cls.__qualname__}"
                continue
            kept += list(_of_arguments(record, names))
    return tuple(dict.fromkeys(kept)), tuple(types.items())


def _of_arguments(record: GuardRecord, names: frozenset[str]) -> Iterator[GuardRecord]:
    """Yield a guard as far as it speaks of arguments."""
    if isinstance(record, TensorGuard):  # bits of the dispatcher differ between processes; those that matter are asked
        yield replace(record, facts=replace(record.facts, dispatch_keys=None))
    elif isinstance(record, AliasingGuard):
        if _root(record.other) in names:
            yield record
    elif isinstance(record, DistinctGuard | OverlapGuard):
        mine = tuple(other for other in record.others if _root(other) in names)
        if mine:
            yield replace(record, others=mine)
    elif _text(record):
        yield record
    elif not isinstance(record, NotIdentityGuard):
        raise UnsupportedError(
            f"the program relies on {record.source} being one object of this process ({record.kind.value})",
            code="export.guard",
            where=(record.origin,) if record.origin else (),
            hints=("pass tensors, numbers, text, and tuples, lists and dictionaries of them",),
        )


def _text(record: GuardRecord) -> bool:
    return literal_text(record) is not None
