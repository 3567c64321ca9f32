"""Users' Triton kernels as operators: one for each way in which a kernel is called, registered when it is seen first.

    kernel[(n // 64,)](x, y, out, n, BLOCK=64)
    intarsia_kernels::kernel_1a2b3c4d(Tensor x, Tensor y, Tensor(a!) out, SymInt n, SymInt BLOCK, SymInt[] grid) -> ()

Tensors, numbers and texts are parameters; what else a kernel is given, such as a dtype of Triton's, belongs to the
operator. A grid that is computed from the parameters of a launch is given for each configuration of the kernel, one
after the other.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch._ops import OpOverload

from intarsia_ir.errors import UnsupportedError
from intarsia_shapes import plain_size
from intarsia_tensorcapture.kernel_writes import written_parameters

__all__ = ["Fixed", "Launch", "configurations", "kernel_operator", "kinds_of", "layers", "parameter_names"]

NAMESPACE = "intarsia_kernels"
_DIMENSIONS = 3


@dataclass(frozen=True, slots=True)
class Fixed:
    """An argument that belongs to the operator.

    Args:
        value: What the kernel is given.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class Same:
    """An argument that is the same tensor as another: the operator takes it once, so that a copy is one as well.

    Args:
        place: The place of the other among all arguments, those by name after the others.
    """

    place: int


Kind = str | Fixed | Same
"""What an argument is: its type in a schema where the operator takes it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A way in which a kernel is called.

    Args:
        kinds: What each argument is, those by name after the others.
        names: The names of those that are given by name.
        is_computed: Whether the grid is computed from the parameters of a launch, for each configuration.
    """

    kinds: tuple[Kind, ...]
    names: tuple[str, ...]
    is_computed: bool

    @property
    def n_positional(self) -> int:
        """The number of arguments that aren't given by name."""
        return len(self.kinds) - len(self.names)

    def taken(self, values: Sequence[Any]) -> list[Any]:
        """Return the arguments that the operator takes."""
        return [value for value, kind in zip(values, self.kinds, strict=True) if isinstance(kind, str)]


def kinds_of(values: Sequence[Any], kind: Callable[[Any], str | Fixed], tensor: Callable[[Any], Any]) -> list[Kind]:
    """Return what each argument of a launch is.

    Args:
        values: The arguments.
        kind: Tells the type of an argument in a schema, or its value.
        tensor: Returns the tensor that an argument is.
    """
    kinds: list[Kind] = []
    for value in values:
        found: Kind = kind(value)
        if found == "Tensor":
            earlier = [n for n, k in enumerate(kinds) if k == "Tensor" and _is_same(tensor(values[n]), tensor(value))]
            found = Same(earlier[0]) if earlier else found
        kinds.append(found)
    return kinds


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether two tensors show the same elements in the same way."""
    if a is b:
        return True
    if a.dtype != b.dtype or a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    # as they are written: to compare numbers would be to find out more about open sizes
    one, other = ([*map(plain_size, (x.storage_offset(), *x.shape, *x.stride()))] for x in (a, b))
    return one == other


def layers(kernel: Any) -> list[Any]:
    """Return a kernel and what it wraps: tuners and heuristics, outermost first, then what `triton.jit` made."""
    found = [kernel]
    while not isinstance(found[-1].fn, FunctionType):
        found.append(found[-1].fn)
    return found


def parameter_names(kernel: Any) -> list[str]:
    """Return the names of a kernel's parameters."""
    return list(layers(kernel)[-1].arg_names)


def configurations(kernel: Any) -> list[dict[str, Any]]:
    """Return the parameters that a kernel's tuner sets in each of its configurations; one of none without a tuner."""
    tuned = [layer.configs for layer in layers(kernel) if hasattr(layer, "configs")]
    return [dict(config.kwargs) for config in tuned[0]] if tuned else [{}]


_OPERATORS: dict[tuple[int, Launch], tuple[Any, OpOverload, torch.library.Library]] = {}
_LOCK = threading.Lock()


def kernel_operator(kernel: Any, launch: Launch) -> OpOverload:
    """Return the operator that launches a kernel. Its last parameter is the grid.

    Raises:
        Unreadable: Nothing tells what the kernel writes.
        TypeError: A fixed argument can't be told from others, as it has no hash.
    """
    key = id(kernel), launch
    with _LOCK:
        if key not in _OPERATORS:
            _OPERATORS[key] = kernel, *_registered(kernel, launch)
        return _OPERATORS[key][1]


def _name(kernel: Any, launch: Launch) -> str:
    """Return a name that is the same in every process, unless a kernel of the same name is defined anew."""
    function = layers(kernel)[-1].fn
    digest = hashlib.sha256(f"{function.__module__}.{function.__qualname__} {launch}".encode()).hexdigest()
    name = f"{function.__name__}_{digest[:8]}"
    taken = sum(op._schema.name.partition("::")[2].startswith(name) for _, op, _ in _OPERATORS.values())
    return f"{name}_{taken}" if taken else name


def _registered(kernel: Any, launch: Launch) -> tuple[OpOverload, torch.library.Library]:
    name = _name(kernel, launch)
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define(f"{name}({', '.join(_parameters(kernel, launch))}) -> ()")
    library.impl(name, functools.partial(_launch, kernel, launch), "CompositeExplicitAutograd")
    library.impl(name, torch.library.fallthrough_kernel, "Autograd")  # as a launch does, it leaves gradients alone
    library._register_fake(name, _nothing)
    return getattr(getattr(torch.ops, NAMESPACE), name).default, library


def _parameters(kernel: Any, launch: Launch) -> list[str]:
    """Return the parameters of an operator as a schema writes them."""
    names = [*parameter_names(kernel)[: launch.n_positional], *launch.names]
    written = _written(kernel)
    places = {kind.place if isinstance(kind, Same) else n for n, kind in enumerate(launch.kinds) if names[n] in written}
    found = []
    for place, (name, kind) in enumerate(zip(names, launch.kinds, strict=True)):
        if kind == "Tensor" and place in places:
            found.append(f"Tensor(a{place}!) {name}")
        elif isinstance(kind, str):
            found.append(f"{kind} {name}")
    return [*found, "SymInt[] grid"]


def _written(kernel: Any) -> frozenset[str]:
    """Return the parameters that a launch may write: all of them where a hook of the user's runs before or after."""
    found = layers(kernel)
    everything = frozenset(parameter_names(kernel))
    if any(_has_hooks(layer) for layer in found):
        return everything
    written = written_parameters(found[-1])
    return written.union(*(getattr(layer, "reset_to_zero", ()) for layer in found))


def _has_hooks(layer: Any) -> bool:
    own = ("pre_run_hooks", "user_defined_pre_hook", "user_defined_post_hook")
    return any(getattr(layer, name, None) for name in own) or any(
        getattr(config, "pre_hook", None) for config in getattr(layer, "configs", ())
    )


def _launch(kernel: Any, launch: Launch, *given: Any) -> None:
    """Launch a kernel with the arguments of its operator."""
    taken, values = iter(given[:-1]), []
    for kind in launch.kinds:
        if isinstance(kind, Fixed):
            values.append(kind.value)
        else:
            values.append(values[kind.place] if isinstance(kind, Same) else next(taken))
    args, named = values[: launch.n_positional], values[launch.n_positional :]
    grid = tuple(given[-1])
    chosen = _chosen(configurations(kernel), grid) if launch.is_computed else grid
    kernel[chosen](*args, **dict(zip(launch.names, named, strict=True)))


def _chosen(configs: Sequence[Mapping[str, Any]], grids: tuple[int, ...]) -> Any:
    """Return the grid of the configuration that a launch has: at once where there is one, else as a function of it."""
    parts = [grids[n : n + _DIMENSIONS] for n in range(0, len(grids), _DIMENSIONS)]
    if len(parts) == 1:
        return parts[0]

    def grid(parameters: Mapping[str, Any]) -> tuple[int, ...]:
        for config, part in zip(configs, parts, strict=True):
            if all(parameters[name] == value for name, value in config.items()):
                return part
        raise UnsupportedError(
            f"a kernel is launched in a configuration that isn't among its own: {dict(parameters)}",
            code="kernels.configuration",
            hints=("list every configuration where the kernel is tuned, and prune none into another",),
        )

    return grid


def _nothing(*given: Any) -> None:
    """What a launch returns."""
