"""Random generators of the program's own, and seeding torch's: what is drawn is drawn before the graph runs, in order.

A generator of the program's own has its own stream of numbers, and what is drawn from it without looking at a tensor
depends on nothing that the graph computes. So the replacement code draws, and the graph takes the tensor as an input.
Torch's generators are seeded before the graph runs, where it hasn't drawn anything by then. Where the graph raises,
the states are put back.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from threading import local
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import AliasingGuard, ConstantGuard, IdentityGuard, TypeGuard
from intarsia_ir.records import Role
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.draws import Draw, Step
from intarsia_pyeval.values.numbers import OpenNumber
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_pyeval.values.signatures import arity, named
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue, recording_of, tensors_of
from intarsia_tensorcapture.watching import generators, put_back

if TYPE_CHECKING:
    from intarsia_ir.records import Source
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS", "DrawnTensor", "GeneratorValue", "drawn", "existing_generator"]

#: What seeds torch's own generators; torch's compiler, once it is imported, wraps some.
_SEEDING: tuple[Any, ...] = (torch.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all)
#: What makes a tensor of sizes and numbers alone.
_FACTORIES = frozenset({torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal})
#: What fills a tensor, whatever it holds.
_FILLING = frozenset(
    {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_"}
)


class GeneratorValue(Value):
    """A random generator: an existing one, or one that the replacement code makes."""

    __slots__ = ("device", "noted", "real")

    def __init__(self, device: torch.device, real: Any = None, source: Source | None = None) -> None:
        self.source = source
        self.device = device
        self.real = real
        self.noted = real is None  # whether its state is put back where the graph raises

    def type(self) -> Any:
        """Return the class of generators."""
        return torch.Generator

    def identity(self) -> object | None:
        """Return the existing generator."""
        found: object | None = self.real
        return found


class DrawnTensor(TensorValue):
    """A tensor that the replacement code draws before the graph runs."""

    __slots__ = ()
    role = Role.NUMBER

    def __init__(self, plugin: Recording, fake: Any) -> None:
        super().__init__(plugin, None, None)
        plugin.add_input(self, None, fake)

    @property
    def recorded(self) -> bool:
        """Tell that the graph takes it."""
        return False


class _Noting(local):
    """Notes the state of a generator before draws, for where the graph raises."""

    def __init__(self) -> None:
        self._generator: Any = None
        self._state: Any = None

    def note(self, generator: torch.Generator) -> None:
        """Note it."""
        self._generator, self._state = weakref.ref(generator), generator.get_state()

    def undo(self) -> None:
        """Go back to it."""
        generator = self._generator()
        if generator is not None:
            generator.set_state(self._state)


class _Seeding(local):
    """Seeds torch's generators by one of its functions; notes what their states were."""

    def __init__(self, function: Callable[[int], Any]) -> None:
        self._function = function
        self._states: Any = None

    def seed(self, number: int) -> None:
        """Seed them."""
        self._states = generators()
        self._function(number)

    def undo(self) -> None:
        """Go back."""
        put_back(self._states)


def _nothing() -> None:
    """Nobody else sees a new generator, or what is drawn from a noted one."""


def existing_generator(plugin: Recording, tx: Tracer, value: Any, source: Source | None) -> Value | None:
    """Model a generator that was made before the call; relies on that it isn't torch's own."""
    if type(value) is not torch.Generator:
        return None
    if source is not None:
        tx.guards.add(TypeGuard, source, torch.Generator)
        tx.guards.add(ConstantGuard, tx.sources.attribute(source, "device"), value.device)
        if value is torch.default_generator or value.device.type != "cpu":
            tx.guards.add(IdentityGuard, source, value)
        else:
            default = tx.sources.attribute(tx.sources.module("torch"), "default_generator")
            tx.guards.add(AliasingGuard, source, default, False)
    return GeneratorValue(value.device, value, source)


@do.get_attribute.rule(GeneratorValue)
def get_attribute(tx: Tracer, generator: GeneratorValue, name: str) -> Value:
    """Read its device, or bind a method."""
    if name == "device":
        return Const(generator.device)
    if callable(getattr(torch.Generator, name, None)):
        return BoundBuiltin(generator, name)
    return do.get_attribute.default(tx, generator, name)


@do.call_method.rule(GeneratorValue)
def call_method(tx: Tracer, generator: GeneratorValue, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Seed it; its other methods break."""
    if name != "manual_seed":
        raise Break("tracer.call", f"{name} of a random generator isn't modelled")
    seed = named(name, args, keywords, ("seed",), 1)["seed"]
    _check(tx, generator, "manual_seed")
    _go(tx, generator, _seeded, [generator, _known_before(seed, "a generator is seeded")])
    return generator


def _seeded(generator: torch.Generator, seed: int) -> None:
    generator.manual_seed(seed)


def _is_torchs(generator: Any) -> bool:
    """Tell whether a generator is one that torch's functions draw from where they are given none."""
    return generator is torch.default_generator or any(generator is other for other in torch.cuda.default_generators)


def _check(tx: Tracer, generator: GeneratorValue, what: str) -> None:
    """Break where what is done with a generator can't be done before the graph."""
    if generator.real is not None and (_is_torchs(generator.real) or generator.source is None):
        raise Break("tracer.call", f"{what} is called with a generator that torch itself draws from")
    if tx.checks.step() is None or recording_of(tx).scopes.open:
        raise Break("tracer.call", f"{what} is called with a generator where nothing may be drawn ahead")


def _go(
    tx: Tracer, generator: GeneratorValue, function: Any, args: Sequence[Value], gives: Value | None = None
) -> None:
    """Let the replacement code do something with a generator before the graph."""
    if not generator.noted:
        noting = _Noting()
        tx.effects.draw(Step(noting.note, [generator], noting.undo))
        generator.noted = True
    tx.effects.draw(Step(function, args, _nothing, gives))


def _known_before(value: Value, what: str) -> Value:
    """Return a number, or nested numbers, that are known before the graph runs.

    Raises:
        Break: They aren't.
    """
    if isinstance(value, Items) and value.type() in (tuple, list, torch.Size):
        return Tuple([_known_before(item, what) for item in value.items])
    known = isinstance(value, (Const, Draw)) or (isinstance(value, OpenNumber) and value.source is not None)
    if isinstance(value, SymbolicNumber):
        known = value.type() is not bool and value.number.node.hint is not None
    if not known:
        raise Break("tracer.call", f"{what} by {value.describe()}, which isn't known before the graph runs")
    return value


# ---- drawing ---------------------------------------------------------------------------------------------------


def drawn(
    plugin: Recording, tx: Tracer, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Draw from a generator of the program's own; None where none is given.

    Before: torch.randn(2, 3, generator=g), after: the same, before the graph, which has its result for an input; or
    x.normal_(generator=g), after: x.copy_(torch.empty(x.shape).normal_(generator=g)).
    """
    given = keywords.get("generator")
    if given is not None and is_none(given) and target in _FACTORIES:  # the overload with one takes no symbolic sizes
        return plugin.record(tx, kind, target, args, {key: v for key, v in keywords.items() if key != "generator"})
    if not isinstance(given, GeneratorValue):
        if any(isinstance(a, GeneratorValue) for a in args):
            raise Break("tracer.tensor_op", f"{getattr(target, '__name__', target)} is given a generator by position")
        return None
    name = getattr(target, "__name__", str(target))
    _check(tx, given, name)
    rest = {key: value for key, value in keywords.items() if key != "generator"}
    if kind == "call_method" and target in _FILLING and isinstance(args[0], TensorValue):
        return _filled(plugin, tx, given, target, args[0], args[1:], rest)
    if target not in _FACTORIES or any(not is_none(rest.get(key, NONE)) for key in ("out", "requires_grad")):
        raise Break("tracer.tensor_op", f"{name} draws from a generator what isn't known before the graph runs")
    return _made(plugin, tx, given, target, args, rest)


def _made(
    plugin: Recording, tx: Tracer, generator: GeneratorValue, target: Any, args: Sequence[Value], keywords: Keywords
) -> DrawnTensor:
    """Draw a tensor before the graph."""
    name = target.__name__
    if any(True for _ in tensors_of([*args, *keywords.values()])) or plugin.state.inference:
        raise Break("tracer.tensor_op", f"{name} draws from a generator by what a tensor holds, or in inference mode")
    what = f"{name} draws"
    args = [_known_before(arg, what) for arg in args]
    keywords = {key: _known_before(value, what) for key, value in keywords.items()}
    fakes = [plugin.argument(arg, True) for arg in args]
    before = plugin.sizes.mode.draws
    fake = plugin.propagate("call_function", target, fakes, {k: plugin.argument(v, True) for k, v in keywords.items()})
    plugin.sizes.mode.draws = before
    keywords = {**keywords, "dtype": Const(fake.dtype), "device": Const(fake.device)}
    result = DrawnTensor(plugin, fake)
    draw = functools.partial(_draw, target, tuple(keywords))
    _go(tx, generator, draw, [generator, *keywords.values(), *args], result)
    return result


def _draw(function: Any, names: tuple[str, ...], generator: torch.Generator, *args: Any) -> Any:
    """Draw: first come arguments by name, then those by position."""
    keywords = dict(zip(names, args, strict=False))
    return function(*args[len(names) :], generator=generator, **keywords)


def _filled(
    plugin: Recording,
    tx: Tracer,
    generator: GeneratorValue,
    name: str,
    tensor: TensorValue,
    args: Sequence[Value],
    keywords: Keywords,
) -> Value:
    """Fill a tensor with what is drawn before the graph into a new one like it."""
    if not tensor.fake.is_contiguous():  # the order in which numbers go to elements is that of memory
        raise Break(
            "tracer.tensor_op", f"{name} of {tensor.describe()} draws from a generator, and it isn't contiguous"
        )
    size = Tuple([plugin.sizes.model(size) for size in tensor.fake.shape])
    fill = functools.partial(_new_filled, name, tensor.fake.dtype, tensor.fake.device)
    fill.__name__ = name  # type: ignore[attr-defined]
    what = f"{name} draws"
    args = [_known_before(arg, what) for arg in (size, *args)]
    keywords = {key: _known_before(value, what) for key, value in keywords.items()}
    with torch.no_grad():
        fake = plugin.propagate("call_function", torch.empty_like, [tensor.fake], {})
    result = DrawnTensor(plugin, fake)
    draw = functools.partial(_draw, fill, tuple(keywords))
    _go(tx, generator, draw, [generator, *keywords.values(), *args], result)
    return plugin.record(tx, "call_method", "copy_", [tensor, result], {})


def _new_filled(
    name: str, dtype: torch.dtype, device: torch.device, size: Sequence[int], *args: Any, **keywords: Any
) -> Any:
    return getattr(torch.empty(size, dtype=dtype, device=device), name)(*args, **keywords)


# ---- functions -------------------------------------------------------------------------------------------------


def _generator(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Make a generator."""
    device = named("Generator", args, keywords, ("device",)).get("device", NONE)
    if not isinstance(device, Const) or tx.checks.step() is None or plugin.scopes.open:
        raise Break("tracer.call", "a random generator is made where nothing may be drawn ahead")
    made = GeneratorValue(torch.device("cpu") if device.value is None else torch.device(device.value))
    tx.effects.draw(Step(torch.Generator, [Const(made.device)], _nothing, made))
    return made


def _seed(function: Any) -> Callable[[Recording, Tracer, Sequence[Value], Keywords], Value]:
    """Return the handler of a function that seeds torch's generators."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        name = function.__name__
        (seed,) = arity(name, [*args, *keywords.values()], {}, 1) if keywords.keys() <= {"seed"} else (NONE,)
        if plugin.sizes.mode.draws or plugin.scopes.open or tx.checks.step() is None:
            raise Break("tracer.call", f"{name} is called after random numbers were drawn")
        if seed.type() is not int:
            raise Break("tracer.call", f"{name} is called with {seed.describe()}")
        seeding = _Seeding(function)
        tx.effects.draw(Step(seeding.seed, [_known_before(seed, f"{name} seeds")], seeding.undo))
        if name != "manual_seed" or "cuda" in function.__module__:
            return NONE
        place = tx.sources.attribute(tx.sources.module("torch"), "default_generator")
        return tx.live.wrap(torch.default_generator, place)

    return handler


#: How each is called.
HANDLERS: dict[Any, Any] = {
    torch.Generator: _generator,
    **{f: _seed(f) for f in map(inspect.unwrap, _SEEDING)},
}
