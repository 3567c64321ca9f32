"""`torch.func`: transforms of functions, and calls of what they give.

A call is evaluated by torch itself: its transform is called, on fake tensors, with a function that evaluates the user's
code on whatever fake tensors it is given. So inside, `x.shape`, `x.requires_grad` and what raises are eager's, however
transforms are stacked. The nodes that come of it are the graph of a `Transform`, which the call is one node of.

A pullback, the function that `vjp` gives, is a node that does all of it again and keeps the other half: the compiler
finds what both have in common. So what it is of may only compute, and must be as it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
import torch.func
import torch.utils._pytree as pytree

from intarsia_ir import meta
from intarsia_ir.torch import TRANSFORMS, Transform, over_points
from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.stores import cell_store, function_store
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import Function
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_pyeval.values.signatures import named
from intarsia_tensorcapture.ambient import autocast_state
from intarsia_tensorcapture.described import version_of
from intarsia_tensorcapture.pytrees import Opaque, modelled, real_structure, tensor_leaves
from intarsia_tensorcapture.scopes import Scope, writes_of
from intarsia_tensorcapture.tensor import TensorValue, recording_of

if TYPE_CHECKING:
    import torch.fx

    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS", "Pullback", "Transformed", "call_wrapper"]


Options = dict[str, Value]
#: Transforms that give a function: name -> the names of their parameters; `func` is what is transformed.
_PARAMETERS: dict[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(getattr(torch.func, name)).parameters)
    for name in ("vmap", "grad", "grad_and_value", "jacrev", "jacfwd")
}
#: The code of the functions that they give -> the name of the transform.
_WRAPPERS: dict[CodeType, str] = {
    code: name
    for name in _PARAMETERS
    for code in getattr(torch.func, name).__code__.co_consts
    if isinstance(code, CodeType) and "func" in code.co_freevars and "wrap" in code.co_name
}


class Transformed(Value):
    """What a transform gives for a function.

    Args:
        name: Name of the transform.
        options: Its arguments by name, the function among them.
    """

    __slots__ = ("name", "options")

    def __init__(self, name: str, options: Options) -> None:
        self.source = None
        self.name = name
        self.options = options

    def type(self) -> Any:
        """Return the function type."""
        return type(torch.func.vmap)

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"a function transformed by {self.name}"


class Pullback(Value):
    """The function that `vjp` gives.

    Args:
        call: The call of `vjp`.
        real: What torch's `vjp` gave on fake tensors.
    """

    __slots__ = ("call", "real")

    def __init__(self, call: _Call, real: Any) -> None:
        self.source = None
        self.call = call
        self.real = real

    def type(self) -> Any:
        """Return the function type."""
        return type(torch.func.vmap)

    def describe(self) -> str:
        """Return a few words for messages."""
        return "the function that vjp gives"


@do.truth.rule(Transformed)
@do.truth.rule(Pullback)
def truth(tx: Tracer, function: Transformed | Pullback) -> bool:
    """Functions are true."""
    return True


@do.call.rule(Transformed)
def call(tx: Tracer, function: Transformed, args: Sequence[Value], keywords: Keywords) -> Value:
    """Apply the transform."""
    return _apply(tx, function.name, function.options, args, keywords)


@codegen.reconstruct.rule(Transformed)
def reconstruct(out: Builder, function: Transformed) -> None:
    """Transform the function."""
    rest = {name: value for name, value in function.options.items() if name != "func"}
    maker = over_points if function.name == over_points.__name__ else getattr(torch.func, function.name)
    out.call_with_keywords(maker, [function.options["func"]], rest)


@do.call.rule(Pullback)
def call_pullback(tx: Tracer, function: Pullback, args: Sequence[Value], keywords: Keywords) -> Value:
    """Go back: the whole of `vjp`, as a node."""
    if keywords or len(args) != 1:
        raise Break("tracer.call", "the function that vjp gives is called with options")
    return function.call.pulled_back(function.real, args)


def call_wrapper(tx: Tracer, function: Function, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Call what a transform gave before the capture began, or `over_points`; None when `function` isn't that."""
    if function.value is over_points:
        return Transformed(over_points.__name__, named(over_points.__name__, args, keywords, ("func",), 1))
    name = _WRAPPERS.get(function.code)
    if name is None:
        return None
    function.guard_code(tx.guards)
    held = dict(zip(function.code.co_freevars, function_store.cells(tx, function), strict=True))
    options = {key: cell_store.content_of(tx, held[key], key, free=True) for key in _PARAMETERS[name] if key in held}
    return _apply(tx, name, options, args, keywords)


# ---- handlers of torch's functions -----------------------------------------------------------------------------


def _transform(name: str) -> Callable[[Recording, Tracer, Sequence[Value], Keywords], Value]:
    """Return the handler of a transform that gives a function."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        return Transformed(name, named(name, args, keywords, _PARAMETERS[name], 1))

    return handler


def _hessian(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Forward over reverse, as torch has it."""
    given = named("hessian", args, keywords, ("func", "argnums"), 1)
    rest = {"argnums": given.get("argnums", Const(0))}
    return Transformed("jacfwd", {"func": Transformed("jacrev", {"func": given["func"], **rest}), **rest})


def _jvp(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    given = named("jvp", args, keywords, ("func", "primals", "tangents", "strict", "has_aux"), 3)
    options = {name: value for name, value in given.items() if name in ("func", "strict", "has_aux")}
    return _apply(tx, "jvp", options, [given["primals"], given["tangents"]], {})


def _vjp(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the function once for its result; what goes back is a node of its own for each call."""
    if not args or not keywords.keys() <= {"has_aux"}:
        raise Break("tracer.exception", f"vjp is called with {len(args)} arguments and {sorted(keywords)}")
    return _Call(tx, "vjp", {"func": args[0], **keywords}, args[1:], {}).with_pullback()


HANDLERS: dict[Any, Any] = {
    **{getattr(torch.func, name): _transform(name) for name in _PARAMETERS},
    torch.func.hessian: _hessian,
    torch.func.jvp: _jvp,
    torch.func.vjp: _vjp,
}


# ---- one call --------------------------------------------------------------------------------------------------


def _apply(tx: Tracer, name: str, options: Options, args: Sequence[Value], keywords: Keywords) -> Value:
    made = _Call(tx, name, options, args, keywords)
    return made.node_of(made.name, made.run(), made.leaves)


class _Call:
    """One call of a transformed function.

    Args:
        tx: The capture.
        name: Key of `TRANSFORMS`.
        options: What is transformed, and how.
        args: Positional arguments.
        keywords: The others.
    """

    def __init__(self, tx: Tracer, name: str, options: Options, args: Sequence[Value], keywords: Keywords) -> None:
        self.tx, self.name = tx, name
        self.plugin = recording_of(tx)
        self.function = options["func"]
        self.options = {k: v.as_python() for k, v in options.items() if k != "func"}
        self.args = [real_structure(tx, a) for a in args]
        self.kwargs = {k: real_structure(tx, v) for k, v in keywords.items()}
        self.leaves = self._tensors_of([*args, *keywords.values()])
        self.outside = {id(value.fake): value for value in self.leaves}
        self.scope: Scope | None = None
        self.program: Any = None
        self.returned: tuple[tuple[int | None, ...], Any] = ((), None)
        self.failed: BaseException | None = None
        self.is_pure = False  # as far as objects go

    def run(self) -> Any:
        """Return what the transform gives on fake tensors."""
        return self._running(lambda: TRANSFORMS[self.name](self._body, self.options, self.args, self.kwargs))

    def _running(self, transformed: Callable[[], Any]) -> Any:
        """Let torch transform; what the user's code does comes out as it is, what torch refuses breaks."""
        tx, plugin = self.tx, self.plugin
        if plugin.modes_active:
            raise Break("tracer.tensor_op", "a mode changes what torch functions do")
        try:
            with plugin.sizes.mode, torch.autograd.set_multithreading_enabled(False):
                return plugin.sizes.run(transformed, (), {})
        except Exception as error:
            failed, self.failed = self.failed, None
            try:
                if failed is not None:
                    raise failed from None
                if isinstance(error, RecursionError):
                    raise
                what = f"{self.name} raised {type(error).__name__} while tracing: {error}"
                raise Break("tracer.operation_raised", what, tx.frames.origin()) from None
            finally:
                del failed  # its traceback holds this frame

    def _body(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate the user's function on what the transform gives it."""
        try:
            return self._evaluated(args, kwargs)
        except Raised as raised:
            what = f"{raised.value.type().__name__} is raised in a function that {self.name} transforms"
            self.failed = Break("tracer.operation_raised", what)
        except BaseException as error:
            self.failed = error
        raise self.failed

    def _evaluated(self, args: Any, kwargs: Any) -> Any:
        tx, plugin = self.tx, self.plugin
        if self.scope is not None:
            return self._again(args, kwargs)
        before = torch.is_grad_enabled(), autocast_state(), plugin.state.depth()
        with plugin.scopes.scope(tx) as scope:
            self.scope, scope.at_points = scope, self.name == over_points.__name__
            values = [modelled(tx, arg, self._argument) for arg in args]
            named_values = {name: modelled(tx, arg, self._argument) for name, arg in kwargs.items()}
            drawn = len(tx.effects.draws)
            with tx.effects.apart():
                result = do.call(tx, self.function, values, named_values)
                self.is_pure = not tx.effects.dirty and drawn == len(tx.effects.draws)
            real = real_structure(tx, result)
            nodes = tuple([plugin.scopes.here(value.node) for value in self._tensors_of([result])])
            self.program = scope.program(nodes)
        if before != (torch.is_grad_enabled(), autocast_state(), plugin.state.depth()):
            raise Break("tracer.call", f"a function that {self.name} transforms leaves a setting changed")
        leaves, structure = pytree.tree_flatten(real)
        self.returned = _numbered(leaves), structure
        return real

    def _again(self, args: Any, kwargs: Any) -> Any:
        """Do what the function did on its first chunk of the arguments to another one."""
        if self.program is None or not self.is_pure:
            raise Break("tracer.mutation", f"a function that {self.name} calls several times changes something")
        assert self.scope is not None
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        made = self.program(*given, *map(meta.value, self.scope.free))
        numbers, structure = self.returned
        return pytree.tree_unflatten([None if n is None else made[n] for n in numbers], structure)

    def _argument(self, leaf: Any) -> Value:
        """Model a leaf of what the function is called with; each tensor is an input of its graph."""
        if not isinstance(leaf, torch.Tensor):
            return leaf.value if isinstance(leaf, Opaque) else self.tx.live.from_python(leaf)
        assert self.scope is not None
        node = self.scope.add_input("arg")
        self.plugin.describe(node, leaf)
        known = self.outside.get(id(leaf))  # what isn't transformed is the very tensor from outside
        return known if known is not None else TensorValue(self.plugin, node, leaf)

    def node_of(self, name: str, result: Any, operands: Sequence[TensorValue], args: Any = None) -> Value:
        """Record a node for a result, and return its model."""
        tx, plugin = self.tx, self.plugin
        leaves, structure = pytree.tree_flatten(result)
        if self.scope is None or not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise Break("tracer.call", f"{name} gives something else than tensors")
        given, given_structure = pytree.tree_flatten((self.args if args is None else args, self.kwargs))
        target = Transform(name, self.program, self.options, _numbered(given), given_structure, *self.returned)
        nodes = [plugin.scopes.here(value.node) for value in operands]
        free = [plugin.scopes.here(node) for node in self.scope.free]
        node = plugin.scopes.graph.call_function(target, (*nodes, *free))
        plugin.count()
        plugin.describe(node, tuple(leaves))
        made = plugin.result(tx, node, tuple(leaves), operands)
        assert isinstance(made, Tuple)
        return modelled(tx, pytree.tree_unflatten(made.items, structure), lambda leaf: leaf)

    # -- vjp -----------------------------------------------------------------------------------------------------

    def with_pullback(self) -> Value:
        """Return the result of `vjp`."""
        mode = self.plugin.sizes.mode
        drew, mode.draws = mode.draws, False
        before = [version_of(value.fake) for value in self.leaves]
        result, real, *aux = self._running(lambda: torch.func.vjp(self._body, *self.args, **self.options))
        draws, mode.draws = mode.draws, drew or mode.draws
        assert self.scope is not None
        self.settings, self.versions = autocast_state(), self._versions()
        if draws or self.versions != [*before, *self.scope.seen.values()]:
            raise Break(
                "tracer.tensor_op", "a function that vjp calls draws random numbers, or writes what isn't its own"
            )
        made = self.node_of("vjp", (result, *aux), self.leaves)
        assert isinstance(made, Items)
        return Tuple([made.items[0], Pullback(self, real), *made.items[1:]])

    def pulled_back(self, real: Any, cotangents: Sequence[Value]) -> Value:
        """Record a call of the function that `vjp` gave."""
        if (self.settings, self.versions) != (autocast_state(), self._versions()):
            raise Break("tracer.tensor_op", "what vjp was called with has been written, or autocast changed, since")
        given = [real_structure(self.tx, value) for value in cotangents]
        result = self._running(lambda: real(*given))
        operands = [*self.leaves, *self._tensors_of(cotangents)]
        return self.node_of("pullback", result, operands, (tuple(self.args), *given))

    def _versions(self) -> list[Any]:
        """Return how often the arguments, and what is read from outside, were written."""
        assert self.scope is not None
        return [*[version_of(value.fake) for value in self.leaves], *map(writes_of, self.scope.free)]

    def _tensors_of(self, values: Sequence[Value]) -> list[TensorValue]:
        """Return the tensors in structures, in torch's order."""
        return [leaf for value in values for leaf in tensor_leaves(self.tx, value)]


def _numbered(leaves: Sequence[Any]) -> tuple[int | None, ...]:
    """Number the tensors among leaves."""
    numbers = iter(range(len(leaves)))
    return tuple([next(numbers) if isinstance(leaf, torch.Tensor) else None for leaf in leaves])
