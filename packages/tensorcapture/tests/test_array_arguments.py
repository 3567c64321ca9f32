"""What numpy's functions take, refuse and give at the edges of their arguments: each program as numpy runs it."""

import numpy as np
import pytest
from array_check import as_numpy

VECTOR = np.array([1.5, -2.0, 3.25])
MATRIX = np.arange(6.0).reshape(2, 3)
SINGLE = np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(0.1)
INTS = np.array([3, 1, 2])
EMPTY = np.zeros((0, 3))


def write(view, array):
    view[0] = 99
    return view, array


def put(array, key, value):
    array[key] = value
    return array


def fill(array, value):
    array.fill(value)
    return array


#: Programs that are captured whole, with their arguments.
CAPTURED = {
    "dtype= of sums": (lambda a: np.add(a, a, dtype=np.float32), MATRIX),
    "dtype= beside a number": (lambda a: np.multiply(a, 0.1, dtype=np.float32), INTS),
    "dtype= of comparisons": (lambda a: np.equal(a, a, dtype=bool), MATRIX),
    "sum into out=": (lambda a, out: np.sum(a, axis=0, out=out), MATRIX, np.zeros(3)),
    "ufunc broadcast into out=": (lambda a, out: np.add(a, 1, out=out), VECTOR, np.zeros((2, 3))),
    "transposed scalar": (lambda a: (np.transpose(a.sum()), a.sum().transpose(), a.sum().T), MATRIX),
    "squeezed scalar": (lambda a: (np.squeeze(a.sum()), a.sum().squeeze()), MATRIX),
    "scalar of no axes": (lambda a: (a.sum().reshape(()), np.reshape(a.sum(), ()), a.sum().reshape(1)), MATRIX),
    "ravel of every other": (lambda a: write(a[::2].ravel(), a), VECTOR),
    "ravel of a column": (lambda a: write(np.ravel(a[:, :1]), a), MATRIX),
    "ravel of all": (lambda a: write(a.ravel(), a), MATRIX),
    "reshape of every other": (lambda a: write(a[::2].reshape(-1), a), VECTOR),
    "axes in a list": (lambda a: np.expand_dims(a, [-1, 0]), VECTOR),
    "linspace of singles": (lambda a: (np.linspace(np.float32(0), np.float32(1), 3), a + 1), VECTOR),
    "arange of truths": (lambda a: (np.arange(2, dtype=bool), a + 1), VECTOR),
    "clip by places": (lambda a: (a.clip(0), a.clip(0, 1), np.clip(a, 0, 1)), VECTOR),
    "scalar filled in": (lambda a: fill(a, a.sum()), VECTOR),
    "row of rows": (lambda a: put(a, 0, np.ones((1, 3))), MATRIX),
}
#: Programs that break: numpy raises, or does what has no torch form.
BREAKING = {
    "dtype= that inputs aren't cast to": (lambda a: np.add(a, 1.5, dtype=np.int64), MATRIX),
    "dtype= without a loop": (lambda a: np.sqrt(a, dtype=np.int64), MATRIX),
    "sum into more axes": (lambda a, out: np.sum(a, axis=0, out=out), MATRIX, np.zeros((4, 3))),
    "sum into doubles": (lambda a, out: np.sum(a, axis=0, out=out), SINGLE, np.zeros(3)),
    "concatenate into more axes": (lambda a, out: np.concatenate([a, a], out=out), MATRIX, np.zeros((3, 4, 3))),
    "dot into singles": (lambda a, out: np.dot(a, a.T, out=out), MATRIX, np.zeros((2, 2), np.float32)),
    "dot into another order": (lambda a, out: np.dot(a, a.T, out=out.T), MATRIX, np.zeros((2, 2))),
    "ufunc into another length": (lambda a, out: np.add(a, 1, out=out), VECTOR, np.zeros(4)),
    "where=None": (lambda a: np.sum(a, where=None), MATRIX),
    "initial=None": (lambda a: np.sum(a, initial=None), EMPTY),
    "filled scalar": (lambda a: a.sum().fill(3), VECTOR),
    "list times a scalar": (lambda a: ([1, 2] * a.sum(), a.sum() * [1, 2]), INTS),
    "list times a float": (lambda a: [1, 2] * a.sum(), VECTOR),
    "filled with a list": (lambda a: fill(a, [1, 2, 3.0]), VECTOR),
    "filled with an array": (lambda a, b: fill(a, b), VECTOR, np.ones(1)),
    "element of an array": (lambda a: put(a, (0, 0), np.ones(1)), MATRIX),
    "element of a list": (lambda a: put(a, (0, 0), [1]), MATRIX),
    "row of a nested list": (lambda a: put(a, 0, [[1, 2, 3]]), MATRIX),
    "two ellipses": (lambda a: a[..., 0, ...], MATRIX),
    "linspace by parts": (lambda a: (np.linspace(0, 1, 5.5), a + 1), VECTOR),
    "arange without a step": (lambda a: (np.arange(0.0, 5.0, 0.0), a + 1), VECTOR),
    "tiles by parts": (lambda a: np.tile(a, 2.5), VECTOR),
    "axis by parts": (lambda a: np.concatenate([a, a], axis=1.0), MATRIX),
    "axis twice": (lambda a: np.expand_dims(a, (0, 0)), VECTOR),
    "diagonal by parts": (lambda a: np.tril(a, -0.5), MATRIX),
    "pad by parts": (lambda a: np.pad(a, 1.5), VECTOR),
    "one limit by its place": (lambda a: np.clip(a, 0, min=1), VECTOR),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_captured(name: str) -> None:
    assert as_numpy(*CAPTURED[name])


@pytest.mark.parametrize("name", BREAKING)
def test_breaking(name: str) -> None:
    assert not as_numpy(*BREAKING[name])
