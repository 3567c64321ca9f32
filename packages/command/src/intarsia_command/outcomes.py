"""What a call does, in eager and compiled, and where they differ: results, written inputs, gradients, errors."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

__all__ = ["Outcome", "differences", "go_back", "outcome_of"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call did.

    Args:
        results: What it returned, as leaves by their path.
        inputs: Tensors of its arguments afterwards, by their path.
        gradients: Of the arguments and parameters, by their path, where they were asked for.
        raised: What it raised, as text; "" when it returned.
        error: What it raised.
    """

    results: dict[str, Any]
    inputs: dict[str, Any]
    gradients: dict[str, Any]
    raised: str = ""
    error: Exception | None = None


def outcome_of(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, train: bool = False
) -> Outcome:
    """Call a function and keep what it did.

    Args:
        function: Called once, from random numbers with a fixed seed.
        args: Positional arguments.
        kwargs: Arguments by keyword.
        train: Take gradients of the sum of its floating results; else it runs without gradients.
    """
    named = {**{f"argument {number}": value for number, value in enumerate(args)}, **kwargs}
    given = {f"{name}{path}": leaf for name, value in named.items() for path, leaf in _leaves(value).items()}
    torch.manual_seed(1)
    try:
        with torch.set_grad_enabled(train):
            returned = function(*args, **kwargs)
            results = _leaves(returned)
            if train:
                go_back(results.values())
    except Exception as error:
        return Outcome({}, given, {}, f"{type(error).__name__}: {error}", error)
    owners = {**given, **{f"parameter {n}": p for n, p in _parameters(function)}}
    grads = {
        name: x.grad for name, x in owners.items() if isinstance(x, torch.Tensor) and x.is_leaf and x.grad is not None
    }
    return Outcome(results, given, copy.copy(grads))


def go_back(results: Iterable[Any]) -> None:
    """Take gradients of the sum of results that have any."""
    sums = [v.real.float().sum() for v in results if isinstance(v, torch.Tensor) and v.requires_grad]
    if sums:
        torch.stack(sums).sum().backward()


def _parameters(function: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(function, torch.nn.Module):
        yield from ((n.removeprefix("_orig_mod."), p) for n, p in function.named_parameters())


def _leaves(tree: Any) -> dict[str, Any]:
    return {pytree.keystr(path): leaf for path, leaf in pytree.tree_flatten_with_path(tree)[0]}


def differences(expected: Outcome, actual: Outcome) -> tuple[str, ...]:
    """Say where a call did something else than expected, one sentence each; nothing where it did the same."""
    if expected.raised or actual.raised:
        same = type(expected.error) is type(actual.error)
        what = (f"it should raise {expected.raised}" if expected.raised else "it should return") if not same else ""
        return (f"{what}, but {f'raises {actual.raised}' if actual.raised else 'returns'}",) if what else ()
    found = list[str]()
    for word in ("results", "inputs", "gradients"):
        one, two = getattr(expected, word), getattr(actual, word)
        noun = {"results": "result", "inputs": "after the call,", "gradients": "gradient of"}[word]
        if one.keys() != two.keys():
            found.append(f"the {word} are {', '.join(two) or 'none'} instead of {', '.join(one) or 'none'}")
        for name in one.keys() & two.keys():
            difference = _difference(one[name], two[name])
            found += [f"{noun} {name or '(the one)'}: {difference}"] if difference else []
    return tuple(sorted(found))


def _difference(expected: Any, actual: Any) -> str:
    if type(expected) is type(actual) and _is_of_numbers(expected) and _is_of_numbers(actual):
        expected, actual = torch.from_numpy(expected.copy()), torch.from_numpy(actual.copy())
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return "" if _equal(expected, actual) else f"{actual!r} instead of {expected!r}"
    if expected.dtype != actual.dtype or expected.device != actual.device or expected.shape != actual.shape:
        of = [f"{x.dtype}{list(x.shape)} on {x.device}" for x in (actual, expected)]
        return " instead of ".join(of)
    try:
        torch.testing.assert_close(actual.detach(), expected.detach(), equal_nan=True, check_stride=True)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def _is_of_numbers(value: Any) -> bool:
    """Tell whether something is an array of numpy that torch has a type for."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and value.dtype.char in "?bBhHiIlLqQefdFD"


def _equal(expected: Any, actual: Any) -> bool:
    """Tell whether two objects are equal, or NaN; what has no truth, as other arrays, is compared as it is shown."""
    if type(expected) is not type(actual):
        return False
    try:
        return bool(expected == actual or expected != expected)
    except (ValueError, RuntimeError):
        return repr(expected) == repr(actual)
