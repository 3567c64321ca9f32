"""A function of numpy by its capture gives what numpy gives: value, element type, class, shape, memory, warnings."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import torch
from tensor_executor import Executor

__all__ = ["as_numpy", "same", "sharing"]


def same(found: Any, expected: Any, exact: bool = False) -> None:
    """Assert that two results are alike."""
    assert type(found) is type(expected), (type(found), type(expected))
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other, exact)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert found.dtype == expected.dtype and found.shape == expected.shape, (found, expected)
        wide = expected.dtype.kind == "f" and not exact
        tolerance = {2: 2e-3, 4: 2e-6, 8: 1e-13}[expected.dtype.itemsize] if wide else 0
        scale = float(np.max(np.abs(expected), initial=1, where=np.isfinite(expected))) if wide else 1
        np.testing.assert_allclose(found, expected, rtol=10 * tolerance, atol=tolerance * scale)
        if isinstance(expected, np.ndarray):
            assert found.flags.writeable == expected.flags.writeable
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, equal_nan=True)
    else:
        assert found == expected or (found != found and expected != expected)


def sharing(results: Any, given: Any) -> list[bool]:
    """Return which arrays and tensors among results share memory with which that were given, and with each other."""
    everything = [*_arrays(given), *_arrays(results)]
    return [np.may_share_memory(a, b) for i, a in enumerate(everything) for b in everything[:i]]


def _arrays(values: Any) -> list[Any]:
    if isinstance(values, torch.Tensor):
        return [values.detach().numpy()]
    if isinstance(values, np.ndarray):
        return [values]
    return [a for value in values for a in _arrays(value)] if isinstance(values, (tuple, list)) else []


def as_numpy(f: Any, *args: Any, memory: bool = True) -> bool:
    """Assert that `f` by its capture does what it does; return whether all of it was captured.

    A check of the graph may fail where numpy warns, or where something isn't finite: then numpy would run.
    """
    natively, captured = copy.deepcopy(args), copy.deepcopy(args)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        expected = _outcome(lambda: f(*natively))
    executor = Executor()
    with warnings.catch_warnings(record=True) as told_captured:
        warnings.simplefilter("always")
        found = _outcome(lambda: executor.call(f, *captured))
    if isinstance(found, RuntimeError) and "numpy warns" in str(found):
        assert told or not _finite([expected, *args]), f"a check failed for {args}, of which numpy doesn't warn"
        return True
    if isinstance(found, RuntimeError) and "equal elements" in str(found):
        assert any(np.unique(a).size < a.size or (a != a).any() for a in args), f"no elements of {args} are equal"
        return True
    whole = not any(capture.breaks for capture in executor.captures)
    if isinstance(expected, Exception):
        assert type(found) is type(expected) and str(found) == str(expected), (found, expected)
        return whole
    assert not isinstance(found, Exception), found
    same(found, expected)
    same(captured, natively)
    shown = [str(w.message) for w in told_captured if "copy keyword" not in str(w.message)]
    assert shown == [str(w.message) for w in told if "copy keyword" not in str(w.message)]
    if memory:
        assert sharing(found, captured) == sharing(expected, natively)
    return whole


def _outcome(run: Any) -> Any:
    try:
        return run()
    except Exception as error:
        return error


def _finite(values: Any) -> bool:
    if isinstance(values, (tuple, list)):
        return all(map(_finite, values))
    if isinstance(values, (np.ndarray, np.generic, float)):
        return bool(np.all(np.isfinite(values)))
    return not isinstance(values, torch.Tensor) or bool(torch.isfinite(values).all())
