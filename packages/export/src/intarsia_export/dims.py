"""Which sizes of an exported program vary: what the caller says, and the examples that stand for all of them.

A compiled graph takes the sizes 0 and 1 apart from all others, since broadcasting does. A dimension whose range has
them is therefore exported once for each of them and once for the rest: a `Case` is one of these choices for every one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from intarsia_ir.choices import instance_of
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["Case", "Dim", "Places", "cases_of", "example_of", "places_of"]

APART = (0, 1)  # sizes that are compiled apart
MOST_CASES = 16


@dataclass(frozen=True, slots=True)
class Dim:
    """A size that differs from call to call; the same one wherever the same `Dim` stands.

    Args:
        name: What messages call it.
        min: Least size, inclusive.
        max: Greatest size, inclusive; None: there is none.

    Raises:
        InvalidArgumentError: `export.dimension`: there is no such size.

    Example:
        >>> Dim("batch", min=1, max=256)
        Dim(name='batch', min=1, max=256)
    """

    name: str
    min: int = 1
    max: int | None = None

    def __post_init__(self) -> None:
        instance_of("the name of a Dim", self.name, str)
        instance_of("min of a Dim", self.min, int)
        instance_of("max of a Dim", self.max, int, type(None))
        if self.min < 0 or (self.max is not None and self.max < self.min):
            raise InvalidArgumentError(
                f"no size lies in [{self.min}, {self.max}], the bounds of {self.name}", code="export.dimension"
            )


Places = Mapping[int, tuple[str, torch.Tensor, Mapping[int, Dim]]]
"""Identity of a tensor among the arguments -> how it is reached, the tensor, its dimensions that vary."""
Case = Mapping[Dim, int | None]
"""The size that a dimension has; None: any of its range that isn't compiled apart."""


def places_of(dynamic_shapes: Any, arguments: Mapping[str, Any]) -> Places:
    """Return which dimensions of which tensors vary.

    Args:
        dynamic_shapes: None: none does. Otherwise nested as `arguments`, by name or in their order; for a tensor, a
            mapping from dimensions or one entry for each: a `Dim`, one of torch.export's, None or the size itself.
        arguments: Parameter name -> value.

    Raises:
        InvalidArgumentError: `export.dynamic_shapes`: it doesn't fit the arguments.
    """
    if dynamic_shapes is None:
        return {}
    places: dict[int, tuple[str, torch.Tensor, Mapping[int, Dim]]] = {}
    given = dynamic_shapes
    if isinstance(given, (tuple, list)):
        if len(given) > len(arguments):
            raise _misfit(f"it has {len(given)} entries, and there are {len(arguments)} arguments")
        given = dict(zip(arguments, given, strict=False))
    if not isinstance(given, Mapping):
        raise _misfit(f"a mapping or a tuple is needed, not {given!r}")
    for name, spec in given.items():
        if name not in arguments:
            raise _misfit(f"there is no argument {name!r}; there are {', '.join(arguments)}")
        for path, tensor, dims in _placed(name, arguments[name], spec):
            if id(tensor) in places and places[id(tensor)][2] != dims:
                raise _misfit(f"{path} and {places[id(tensor)][0]} are one tensor, and their dimensions differ")
            places[id(tensor)] = (path, tensor, dims)
    return places


def _placed(path: str, value: Any, spec: Any) -> Iterator[tuple[str, torch.Tensor, Mapping[int, Dim]]]:
    if spec is None:
        return
    if isinstance(value, torch.Tensor):
        yield path, value, _dims(path, value, spec)
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        if strange := [key for key in spec if key not in value]:
            raise _misfit(f"{path} has no {strange[0]!r}")
        for key, inner in spec.items():
            yield from _placed(f"{path}[{key!r}]", value[key], inner)
    elif isinstance(value, (tuple, list)) and isinstance(spec, (tuple, list)):
        if len(value) != len(spec):
            raise _misfit(f"{path} has {len(value)} entries, and {len(spec)} are given")
        for number, (item, inner) in enumerate(zip(value, spec, strict=True)):
            yield from _placed(f"{path}[{number}]", item, inner)
    else:
        raise _misfit(f"{path} is a {type(value).__name__}, for which {spec!r} says nothing")


def _dims(path: str, tensor: torch.Tensor, spec: Any) -> Mapping[int, Dim]:
    if not isinstance(spec, (Mapping, tuple, list)):
        raise _misfit(f"for the tensor {path} a mapping from dimensions or a tuple is needed, not {spec!r}")
    entries = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
    if not isinstance(spec, Mapping) and len(spec) != tensor.dim():
        raise _misfit(f"{path} has {tensor.dim()} dimensions, and {len(spec)} are given")
    dims = {}
    for place, given in entries:
        if not isinstance(place, int) or not -tensor.dim() <= place < tensor.dim():
            raise _misfit(f"{path}, of rank {tensor.dim()}, has no dimension {place!r}")
        place %= tensor.dim()
        dim = _dim(path, place, tensor.shape[place], given)
        if dim is not None:
            dims[place] = dim
    return dims


def _dim(path: str, place: int, size: int, given: Any) -> Dim | None:
    """Return a dimension as ours; those of torch.export are known by their attributes."""
    if given is None or isinstance(given, Dim):
        return given
    if isinstance(given, int):
        if given != size:
            raise _misfit(f"dimension {place} of {path} has the size {size}, not {given}")
        return None
    kind = getattr(getattr(given, "type", None), "name", "")
    if kind:  # a hint: the dimension has no name
        return None if kind == "STATIC" else Dim(f"{path}.size({place})")
    if hasattr(given, "root"):
        raise _misfit(f"dimension {place} of {path} is computed from another, {given!r}, which isn't supported")
    name, low, high = getattr(given, "__name__", None), getattr(given, "min", None), getattr(given, "max", None)
    if not isinstance(name, str) or not isinstance(low, int):
        raise _misfit(f"dimension {place} of {path} is {given!r}, which is no Dim")
    # without bounds torch.export writes 0, and means any size
    return Dim(name, low or 1, high if isinstance(high, int) and high < 2**62 else None)


def _misfit(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"dynamic_shapes doesn't fit the arguments: {what}",
        code="export.dynamic_shapes",
        hints=('nest it as the arguments are: {"x": {0: Dim("batch", min=1, max=256)}}',),
    )


def cases_of(places: Places) -> tuple[Case, ...]:
    """Return the choices that together are all sizes: the one with the most freedom first.

    Raises:
        InvalidArgumentError: `export.dimension`: an example lies outside of the bounds, or there are too many choices.
    """
    dims: dict[str, Dim] = {}
    for path, tensor, by_place in places.values():
        for place, dim in by_place.items():
            if dims.setdefault(dim.name, dim) != dim:
                raise InvalidArgumentError(f"two dimensions are called {dim.name!r}", code="export.dimension")
            size = tensor.shape[place]
            if size < dim.min or (dim.max is not None and size > dim.max):
                bounds = f"[{dim.min}, {'inf' if dim.max is None else dim.max}]"
                raise InvalidArgumentError(
                    f"dimension {place} of {path} has the size {size}, outside of {bounds}, the bounds of {dim.name}",
                    code="export.dimension",
                )
    choices = [_choices(dim) for dim in dims.values()]
    cases = tuple(dict(zip(dims.values(), chosen, strict=True)) for chosen in itertools.product(*choices))
    if len(cases) > MOST_CASES:
        raise InvalidArgumentError(
            f"{len(dims)} dimensions whose sizes may be 0 or 1 are {len(cases)} programs, more than {MOST_CASES}",
            code="export.dimension",
            hints=("give those that never are 1 a Dim with min=2",),
        )
    return cases


def _choices(dim: Dim) -> Sequence[int | None]:
    open_ended: list[int | None] = [None] if dim.max is None or dim.max >= 2 else []
    return [*open_ended, *[n for n in APART if dim.min <= n and (dim.max is None or n <= dim.max)]]


def hints_of(case: Case, places: Places) -> Mapping[Dim, int]:
    """Return the size of each dimension in the example of a case: different dimensions have different ones.

    Raises:
        InvalidArgumentError: `export.dimension`: there are too few sizes to tell dimensions apart.
    """
    hints = {dim: size for dim, size in case.items() if size is not None}
    seen = {dim: t.shape[place] for _, t, dims in reversed(list(places.values())) for place, dim in dims.items()}
    for dim in [dim for dim, size in case.items() if size is None]:
        low = max(dim.min, 2)
        taken = [size for other, size in hints.items() if case[other] is None]
        tried = (n for n in (seen[dim], *range(low, low + len(case) + 1)) if n >= low and n not in taken)
        size = next((n for n in tried if dim.max is None or n <= dim.max), None)
        if size is None:
            raise InvalidArgumentError(
                f"the bounds of {dim.name} are so narrow that it can't be told from other dimensions",
                code="export.dimension",
            )
        hints[dim] = size
    return hints


def example_of(tensor: torch.Tensor, dims: Mapping[int, Dim], case: Case, hints: Mapping[Dim, int]) -> torch.Tensor:
    """Return a tensor like `tensor` with the sizes of a case, its rows repeated or left out; what varies is marked."""
    from intarsia_shapes import mark_dynamic  # with SymPy, which a process that loads artefacts has no use for

    example = tensor.detach()
    for place, dim in dims.items():
        size, has = hints[dim], tensor.shape[place]
        if size != has:
            if has == 0:
                raise InvalidArgumentError(
                    f"an example of size 0 for {dim.name} says nothing of larger ones", code="export.dimension"
                )
            example = example.index_select(place, torch.arange(size, device=example.device) % has)
    if example.shape == tensor.shape:
        example = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(
            example
        )
    for place, dim in dims.items():
        if case[dim] is None:
            mark_dynamic(example, place, min=max(dim.min, 2), max=dim.max)
    return example
