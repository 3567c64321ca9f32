"""Transforms of functions as nodes of the torch dialect: `torch.func.vmap(f)(x)` and the like.

A call of a transformed function is one node. Its target is a `Transform`: the graph of `f`, what transforms it, and the
structure of the arguments; its operands are the tensors among the arguments, then what `f` reads from outside. Calling
the target calls torch's own transform on a function that runs the graph. So a transform means what it means to eager,
and whoever runs the node under a mode sees the ATen ops that come out below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.func
import torch.fx as fx
import torch.utils._pytree as pytree

__all__ = ["TRANSFORMS", "Transform", "over_points"]


Body = Callable[..., Any]
Run = Callable[[fx.GraphModule, Sequence[Any]], Sequence[Any]]


def _called(name: str) -> Callable[..., Any]:
    """Return how a transform is applied that gives a function."""

    def apply(body: Body, options: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return getattr(torch.func, name)(body, **options)(*args, **kwargs)

    return apply


def _jvp(body: Body, options: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return torch.func.jvp(body, *args, **options)


def _vjp(body: Body, options: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give what `vjp` gives but for the function."""
    result, _, *aux = torch.func.vjp(body, *args, **options)
    return (result, *aux)


def _pullback(body: Body, options: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give what the function gives that `vjp` gives: arguments are the primals, in a tuple, and its own."""
    primals, *cotangents = args
    return torch.func.vjp(body, *primals, **options)[1](*cotangents)


def over_points(func: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that calls `func` at every point of four dimensions: four times `vmap`, the last one innermost.

    Args:
        func: A function of four numbers in tensors of no dimension, the place of a point; or of something there, and
            its place.

    Returns:
        A function of four vectors, i64[B], i64[H], i64[M] and i64[N], or of something of [B, H, M, N] and those. It
        gives a tensor of [B, H, M, N].

    Example:
        >>> over_points(lambda score, b, h, i, j: score + (i - j))(
        ...     torch.zeros(1, 1, 2, 2), *map(torch.arange, (1, 1, 2, 2))
        ... )
        tensor([[[[ 0., -1.],
                  [ 1.,  0.]]]])
    """

    def apply(*args: Any) -> torch.Tensor:
        first = (0,) * (len(args) - 4)
        mapped: Any = func
        for dimension in (3, 2, 1, 0):
            place = tuple([0 if dimension == axis else None for axis in range(4)])
            mapped = torch.func.vmap(mapped, in_dims=(*first, *place))
        values: torch.Tensor = mapped(*args)
        return values

    return apply


def _over_points(body: Body, options: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return over_points(body, **options)(*args, **kwargs)


TRANSFORMS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{name: _called(name) for name in ("vmap", "grad", "grad_and_value", "jacrev", "jacfwd")},
        "jvp": _jvp,
        "vjp": _vjp,
        "pullback": _pullback,
        "over_points": _over_points,
    }
)
"""What a node may do with a function: name -> how it is applied to a body, options and arguments."""


_PRIMALS_FIRST = frozenset({"jvp", "pullback"})


class Transform:
    """What the node of a transformed call calls.

    Args:
        name: Key of `TRANSFORMS`.
        program: FX(torch) of the function: from the tensors among its arguments, and what it reads from outside, to
            the tensors of its result.
        options: Keywords of torch's function, such as `in_dims`.
        arguments: The leaves of (args, kwargs): the number of an operand, or None for what is no tensor.
        structure: How they are put together.
        results: The leaves of what the function returns, likewise: numbers of the graph's results.
        result_structure: How those are put together.

    Attributes:
        n_arguments: How many operands are arguments; the others are read from outside.
        n_passed: How many inputs of the graph are what the transform passes on; the others are those from outside.

    Example:
        >>> square = fx.symbolic_trace(lambda x: (x * x,))
        >>> structure = pytree.tree_structure(((0,), {}))
        >>> Transform("grad", square, {}, (0,), structure, (0,), pytree.tree_structure(0))(torch.tensor(3.0))
        (tensor(6.),)
    """

    def __init__(
        self,
        name: str,
        program: fx.GraphModule,
        options: Mapping[str, Any],
        arguments: Sequence[int | None],
        structure: pytree.TreeSpec,
        results: Sequence[int | None],
        result_structure: pytree.TreeSpec,
    ) -> None:
        self.name = name
        self.program = program
        self.options = MappingProxyType(dict(options))
        self.arguments = tuple(arguments)
        self.structure = structure
        self.results = tuple(results)
        self.result_structure = result_structure
        self.n_arguments = _count(self.arguments)
        args, kwargs = pytree.tree_unflatten(self.arguments, structure)
        self.n_passed = _count(pytree.tree_leaves(args[0] if name in _PRIMALS_FIRST else (args, kwargs)))
        self.__name__ = f"{name}_of_graph"
        self.__qualname__ = f"<{name}>"  # two of a graph are two, so this is no name to find one by
        self.__module__ = __name__

    def __call__(self, *operands: Any) -> tuple[torch.Tensor, ...]:
        """Return the tensors of the result, in order."""
        return self.apply(lambda program, inputs: program(*inputs), operands)

    def apply(self, run: Run, operands: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Do as a call does; `run` runs the graph, under the transform, on its inputs."""
        given, free = operands[: self.n_arguments], operands[self.n_arguments :]

        def body(*args: Any, **kwargs: Any) -> Any:
            leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            results = run(self.program, [*leaves, *free])
            return pytree.tree_unflatten(
                [None if number is None else results[number] for number in self.results], self.result_structure
            )

        args, kwargs = pytree.tree_unflatten(
            [None if number is None else given[number] for number in self.arguments], self.structure
        )
        return tuple(pytree.tree_leaves(TRANSFORMS[self.name](body, self.options, args, kwargs)))


def _count(numbers: Sequence[int | None]) -> int:
    return sum(number is not None for number in numbers)
