"""Functional forms of operators of users: for one that writes, or gives lists among other results, one that doesn't.

    mine::rotate(Tensor(a!) x, Tensor(b!)[] more, Tensor angle) -> Tensor
    intarsia_functional::mine__rotate(Tensor x, Tensor[] more, Tensor angle) -> Tensor[]

The form calls the operator on copies of what it writes, with the strides of the originals. It gives one flat list: the
tensors that the operator returns, in order, lists taken apart and what is None left out; then the new contents of the
tensors that it writes, in the order of its parameters. Results that the schema marks as written operands are these
contents, and aren't given twice. A form is registered when it is asked for first, by operator or by name.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload

__all__ = [
    "NAMESPACE",
    "form_named",
    "form_of",
    "functional_form",
    "given_by",
    "in_place",
    "tensors_of",
    "written_operands",
]

NAMESPACE = "intarsia_functional"
_ALIAS = re.compile(r"(Tensor\??)\([a-z0-9|!* ]+(?:->[a-z0-9|!* ]+)?\)")
_SEPARATOR = "__"


def functional_form(op: OpOverload) -> OpOverload:
    """Return the functional form of an operator.

    Args:
        op: An operator of a library of the user's; what its schema says about writes is all that it writes.

    Example:
        >>> import torch
        >>> lib = torch.library.Library("forms", "FRAGMENT")
        >>> lib.define("bump(Tensor(a!) x, float by=1.0) -> ()")
        'bump'
        >>> def bump(x, by=1.0):
        ...     x.add_(by)
        >>> lib.impl("bump", bump, "CompositeExplicitAutograd")
        >>> x = torch.zeros(2)
        >>> functional_form(torch.ops.forms.bump.default)(x, 2.0), x
        ([tensor([2., 2.])], tensor([0., 0.]))
    """
    with _LOCK:
        form = _FORMS.get(str(op))
        if form is None or form.op is not op:  # a library may define an operator anew
            if form is not None:
                form.library._destroy()
            form = _FORMS[str(op)] = _registered(op)
        return form.form


class _Form(NamedTuple):
    op: OpOverload
    form: OpOverload
    library: torch.library.Library


_FORMS: dict[str, _Form] = {}
_LOCK = threading.Lock()


def _registered(op: OpOverload) -> _Form:
    library, name = op._schema.name.split("::")
    name_of_form = f"{library}{_SEPARATOR}{name}"
    parameters = _ALIAS.sub(r"\1", str(op._schema)).partition("(")[2].rpartition(" -> ")[0]
    overload = op._overloadname
    full = name_of_form if overload == "default" else f"{name_of_form}.{overload}"
    forms = torch.library.Library(NAMESPACE, "FRAGMENT")
    forms.define(f"{full}({parameters} -> Tensor[]")
    forms.impl(full, functools.partial(_run, op), "CompositeExplicitAutograd")
    forms._register_fake(full, functools.partial(_predict, op))
    return _Form(op, getattr(getattr(getattr(torch.ops, NAMESPACE), name_of_form), overload), forms)


def form_named(name: str, overload: str) -> OpOverload:
    """Return the form of a name, which its operator's library and name make up.

    Raises:
        LookupError: There is no such operator.
    """
    parts = name.split(_SEPARATOR)
    for cut in range(1, len(parts)):
        library, own = _SEPARATOR.join(parts[:cut]), _SEPARATOR.join(parts[cut:])
        packet = getattr(getattr(torch.ops, library), own, None) if own else None
        if packet is not None and overload in packet.overloads():
            return functional_form(getattr(packet, overload))
    raise LookupError(f"{NAMESPACE}.{name}.{overload}")


def form_of(target: Any) -> OpOverload | None:
    """Return the operator of which an op is the functional form; None for others."""
    if getattr(target, "namespace", None) != NAMESPACE:
        return None
    return next((form.op for form in [*_FORMS.values()] if form.form is target), None)


def written_operands(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the operands of a call that an operator writes, in order; lists taken apart, and None left out."""
    operands: list[Any] = []
    for place, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            operands += tensors_of(args[place] if place < len(args) else kwargs.get(argument.name))
    return operands


def in_place(op: OpOverload, kept: frozenset[int]) -> Callable[..., list[torch.Tensor]]:
    """Return what does as the functional form of an operator, but writes some operands instead of copies of them.

    Args:
        op: The operator.
        kept: Positions of these operands among those that it writes. Nobody else may look at them afterwards.
    """

    def call(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        places = itertools.count()
        args, kwargs, contents = _with_copies(op, args, kwargs, lambda x: x if next(places) in kept else _copy(x))
        return [*tensors_of(given_by(op, op(*args, **kwargs))), *contents]

    return call


def given_by(op: OpOverload, result: Any) -> list[Any]:
    """Return the results of an operator that aren't operands which it writes, in order."""
    returns = op._schema.returns
    results = (result,) if len(returns) == 1 else tuple(result or ())
    return [value for value, told in zip(results, returns, strict=True) if told.alias_info is None]


def tensors_of(value: Any) -> Iterator[Any]:
    """Return what a nested list or tuple holds, without numbers and what is None."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)
    elif value is not None and not isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
        yield value


def _run(op: OpOverload, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """Call an operator on copies of what it writes; what it returns is memory of its own, as a schema promises."""
    args, kwargs, contents = _with_copies(op, args, kwargs, _copy)
    results = [*tensors_of(given_by(op, op(*args, **kwargs)))]
    return [*results, *contents]


def _predict(op: OpOverload, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """Do as `_run` on fake tensors."""
    args, kwargs, contents = _with_copies(op, args, kwargs, _like)
    return [*tensors_of(given_by(op, op(*args, **kwargs))), *contents]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy, with what lies between the elements: a kernel that is given an address may read there."""
    if tensor.numel() == 0:
        return _like(tensor)
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((reach,), (1,)).clone().as_strided(tensor.shape, tensor.stride(), 0)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _with_copies(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], copy: Any
) -> tuple[tuple[Any, ...], dict[str, Any], list[torch.Tensor]]:
    """Return the arguments of a call with copies of what it writes, and these copies in order."""
    positional, named, copies = list(args), dict(kwargs), []
    for place, argument in enumerate(op._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given: Any = positional if place < len(positional) else named
        key: Any = place if place < len(positional) else argument.name
        value = given[key] if place < len(positional) else named.get(argument.name)
        if isinstance(value, (list, tuple)):
            given[key] = [None if item is None else copy(item) for item in value]
        elif value is not None:
            given[key] = copy(value)
        copies += [*tensors_of(given[key] if value is not None else None)]
    return tuple(positional), named, copies
