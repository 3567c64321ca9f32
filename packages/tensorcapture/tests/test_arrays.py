"""Every row of the tables of numpy's functions gives what numpy gives, over types and shapes, and is captured."""

import operator
import os

import numpy as np
import pytest
from array_check import as_numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia_tensorcapture.arrays.calls import ROWS
from intarsia_tensorcapture.arrays.elementwise import FORMS
from intarsia_tensorcapture.arrays.methods import METHODS, OWN
from intarsia_tensorcapture.arrays.types import NAMES

SETTINGS = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=int(os.environ.get("INTARSIA_ARRAY_EXAMPLES", "4")),
    suppress_health_check=list(HealthCheck),
)
SHAPES = [(), (1,), (4,), (2, 3), (3, 1), (0,), (2, 0), (2, 3, 2)]


def array_of(name, shape, seed, special=False):
    """Return an array of small numbers; of floats, with some that are special."""
    draw = np.random.default_rng(seed)
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return np.asarray(draw.integers(0, 2, shape) > 0)
    if dtype.kind in "iu":
        return np.asarray(draw.integers(0 if dtype.kind == "u" else -9, 10, shape), dtype)
    found = np.asarray(draw.normal(0, 2, shape), dtype)
    if special and found.size:
        found.reshape(-1)[0] = draw.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e4])
    return found


arrays = st.builds(array_of, st.sampled_from(NAMES), st.sampled_from(SHAPES), st.integers(0, 99), st.booleans())


def one(f):
    return lambda draw: as_numpy(f, draw(arrays))


def two(f):
    return lambda draw: as_numpy(f, draw(arrays), draw(arrays))


AXES = st.sampled_from([None, 0, -1, 1, (0, 1), (-1,)])
AXIS = st.sampled_from([None, 0, -1, 1])
KEEP = st.booleans()


def over_axes(f):
    """A reduction with and without its axes and dimensions kept."""

    def run(draw):
        axis, keep = draw(AXES), draw(KEEP)
        return as_numpy(lambda a: f(a, axis=axis, keepdims=keep), draw(arrays))

    return run


def along(f):
    return lambda draw: [as_numpy(lambda a: f(a, axis), draw(arrays)) for axis in [draw(AXIS)]]


NUMBERS = st.sampled_from(
    [2, 3, -1, 0, 0.5, 2.0, True, np.float32(1.5), np.int64(3), np.float64(0.25), np.uint8(7), 300]
)


def beside_number(f):
    def run(draw):
        number = draw(NUMBERS)
        as_numpy(lambda a: f(a, number), draw(arrays))
        return as_numpy(lambda a: f(number, a), draw(arrays))

    return run


def of_ufunc(name):
    function = getattr(np, name)
    if name.endswith("_shift"):
        return [one(lambda a: function(a, 2)), one(lambda a: function(a, 9))]
    if function.nin == 1:
        return [one(lambda a: function(a))]
    return [two(lambda a, b: function(a, b)), beside_number(lambda a, b: function(a, b))]


#: What has no torch form.
BREAKING = [one(lambda a: np.where(a > 0)), one(lambda a: np.add.reduce(a)), one(lambda a: a[::-2])]
CASES = {
    **{name: of_ufunc(name) for name in FORMS},
    "array": [one(lambda a: np.array(a)), two(lambda a, b: np.array([a, b])), one(lambda a: np.array(a, np.float64))],
    "asarray": [one(lambda a: np.asarray(a)), one(lambda a: np.asarray(a, np.float32))],
    "asanyarray": [one(lambda a: np.asanyarray(a))],
    "ascontiguousarray": [one(lambda a: np.ascontiguousarray(a)), one(lambda a: np.ascontiguousarray(a.T))],
    "copy": [one(lambda a: np.copy(a))],
    "zeros": [one(lambda a: np.zeros(a.shape)), one(lambda a: np.zeros((2, 3), a.dtype))],
    "ones": [one(lambda a: np.ones(a.shape, dtype=np.int32)), one(lambda a: np.ones(3, a.dtype))],
    "empty": [one(lambda a: np.empty(a.shape, a.dtype).shape)],
    "full": [one(lambda a: np.full(a.shape, 3)), one(lambda a: np.full((2, 2), 1.5, a.dtype))],
    "zeros_like": [one(lambda a: np.zeros_like(a)), one(lambda a: np.zeros_like(a, dtype=np.float32))],
    "ones_like": [one(lambda a: np.ones_like(a))],
    "empty_like": [one(lambda a: np.empty_like(a).shape)],
    "full_like": [one(lambda a: np.full_like(a, 3)), one(lambda a: np.full_like(a, 1.5))],
    "eye": [one(lambda a: np.eye(3) + a.size), one(lambda a: np.eye(2, 3, dtype=a.dtype))],
    "identity": [one(lambda a: np.identity(3, a.dtype))],
    "arange": [
        one(lambda a: np.arange(5) * a.ndim + a.size),
        one(lambda a: np.arange(0, 1, 0.1) + a.size),
        one(lambda a: np.arange(1, 9, 3, dtype=a.dtype)),
    ],
    "linspace": [one(lambda a: np.linspace(0, 1, 7) + a.size), one(lambda a: np.linspace(-2, 3, 5, endpoint=False))],
    "astype": [one(lambda a, t=t: a.astype(t)) for t in (np.float32, "int64", bool, np.float16, float)]
    + [one(lambda a: np.clip(np.absolute(a), 0, 9).astype(np.uint8))],
    "isclose": [two(lambda a, b: np.isclose(a, b)), one(lambda a: np.isclose(a, a + 1e-9))],
    "reshape": [one(lambda a: np.reshape(a, -1)), one(lambda a: np.reshape(a, (a.size, 1)))],
    "ravel": [one(lambda a: np.ravel(a)), one(lambda a: np.ravel(a.T))],
    "ndarray.flatten": [one(lambda a: a.flatten())],
    "transpose": [one(lambda a: np.transpose(a)), one(lambda a: np.transpose(a, (1, 0)))],
    "permute_dims": [one(lambda a: np.permute_dims(a, (1, 0)))],
    "swapaxes": [one(lambda a: np.swapaxes(a, 0, -1))],
    "moveaxis": [one(lambda a: np.moveaxis(a, 0, -1))],
    "squeeze": [one(lambda a: np.squeeze(a)), one(lambda a: np.squeeze(a, 1))],
    "expand_dims": [one(lambda a: np.expand_dims(a, 0)), one(lambda a: np.expand_dims(a, (0, -1)))],
    "atleast_1d": [one(lambda a: np.atleast_1d(a))],
    "atleast_2d": [one(lambda a: np.atleast_2d(a))],
    "atleast_3d": [one(lambda a: np.atleast_3d(a))],
    "split": [one(lambda a: np.split(a, 2)), one(lambda a: np.split(a, [1], axis=-1))],
    "array_split": [one(lambda a: np.array_split(a, 3))],
    "vsplit": [one(lambda a: np.vsplit(a, 2))],
    "concatenate": [two(lambda a, b: np.concatenate([a, b])), two(lambda a, b: np.concatenate((a, b), axis=None))],
    "concat": [two(lambda a, b: np.concat([a, b], axis=-1))],
    "stack": [two(lambda a, b: np.stack([a, b])), one(lambda a: np.stack([a, a * 1], axis=-1))],
    "vstack": [two(lambda a, b: np.vstack([a, b]))],
    "hstack": [two(lambda a, b: np.hstack([a, b]))],
    "column_stack": [two(lambda a, b: np.column_stack([a, b]))],
    "where": [
        two(lambda a, b: np.where(a > 0, a, b)),
        one(lambda a: np.where(a, a, 0)),
        one(lambda a: np.where(a > 1, 1.5, a)),
        BREAKING[0],
    ],
    "clip": [
        one(lambda a: np.clip(a, 0, 2)),
        one(lambda a: np.clip(a, 0.5, 1.5)),
        one(lambda a: np.clip(a, None, 2)),
        one(lambda a: a.clip(min=0)),
        two(lambda a, b: np.clip(a, b, 3)),
    ],
    "tile": [one(lambda a: np.tile(a, 2)), one(lambda a: np.tile(a, (2, 1)))],
    "repeat": [one(lambda a: np.repeat(a, 2)), one(lambda a: np.repeat(a, 2, axis=0))],
    "roll": [one(lambda a: np.roll(a, 1)), one(lambda a: np.roll(a, -1, axis=0))],
    "pad": [one(lambda a: np.pad(a, 1)), one(lambda a: np.pad(a, ((0, 1), (2, 0)), constant_values=3))],
    "tril": [one(lambda a: np.tril(a))],
    "triu": [one(lambda a: np.triu(a, k=1))],
    "sort": [one(lambda a: np.sort(a)), one(lambda a: np.sort(a, axis=None))],
    "argsort": [
        one(lambda a: np.argsort(a)),
        one(lambda a: a.argsort(axis=0, kind="stable")),
        one(lambda a: np.argsort(a, axis=None)),
    ],
    "round": [one(lambda a: np.round(a)), one(lambda a: np.round(a, 2))],
    "around": [one(lambda a: np.around(a, 1))],
    "nan_to_num": [one(lambda a: np.nan_to_num(a)), one(lambda a: np.nan_to_num(a, nan=1.0, posinf=2.0))],
    "meshgrid": [two(lambda a, b: np.meshgrid(a, b)), two(lambda a, b: np.meshgrid(a, b, indexing="ij"))],
    **{name: [over_axes(getattr(np, name)), one(lambda a, n=name: getattr(a, n)())]
       for name in ("sum", "prod", "mean", "std", "var", "max", "min", "all", "any")},
    "amax": [over_axes(np.amax)],
    "amin": [over_axes(np.amin)],
    "ptp": [over_axes(np.ptp)],
    "argmax": [along(np.argmax), one(lambda a: a.argmax())],
    "argmin": [along(np.argmin)],
    "count_nonzero": [along(np.count_nonzero), one(lambda a: np.count_nonzero(a > 1))],
    "cumsum": [along(np.cumsum)],
    "cumprod": [along(np.cumprod)],
    "diff": [one(lambda a: np.diff(a)), one(lambda a: np.diff(a, axis=0))],
    "linalg.norm": [one(lambda a: np.linalg.norm(a)), one(lambda a: np.linalg.norm(a, axis=-1, keepdims=True))],
    "matmul": [two(lambda a, b: a @ b), one(lambda a: np.matmul(a, a.T))],
    "dot": [two(lambda a, b: np.dot(a, b)), one(lambda a: a.dot(a.T))],
    "inner": [one(lambda a: np.inner(a.ravel(), a.ravel()))],
    "outer": [two(lambda a, b: np.outer(a, b))],
    "einsum": [
        one(lambda a: np.einsum("ij,kj->ik", a, a)),
        one(lambda a: np.einsum("i,i->", a, a)),
        one(lambda a: np.einsum("ij,kj->ki", a, a)),
        two(lambda a, b: np.einsum("ij,kl->jlik", a, b)),
    ],
}  # fmt: skip


def test_every_row_has_its_cases() -> None:
    assert CASES.keys() == {*ROWS, *FORMS}
    assert all(name in ROWS for name in METHODS) and not METHODS & OWN.keys()


LEAST = {NUMBERS: 2, AXES: 0, AXIS: 0, KEEP: False}


class Plain:
    """Draws arrays of one type and shape, and the least of everything else."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = name, shape
        self.seed = 0

    def __call__(self, strategy):
        self.seed += 1
        return array_of(self.name, self.shape, self.seed) if strategy is arrays else LEAST[strategy]


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_captured(name: str) -> None:
    for case in CASES[name]:
        if case not in BREAKING:
            shapes = [(4, 4), (4,), (4, 1), (2, 2, 2)]
            found = [case(Plain(kind, shape)) in (True, [True]) for kind in NAMES for shape in shapes]
            assert any(found), f"{name} is never captured"


@pytest.mark.parametrize("name", CASES)
def test_a_row_gives_what_numpy_gives(name: str) -> None:
    @SETTINGS
    @given(st.data())
    def run(data):
        for case in CASES[name]:
            case(data.draw)

    run()


@SETTINGS
@given(arrays)
def test_what_has_no_torch_form(a) -> None:
    for case in BREAKING:
        assert case(lambda strategy: a) in (False, None) or a.size == 0 or a.ndim == 0


def _written_after(a):
    view = a[::-1]
    before = view.copy()
    a[0] = 1
    return before, view.copy(), view


def _written_through(a):
    view = a[::-1]
    view[0] = 1
    view += 1
    return a


BACKWARD = {
    "a view": lambda a: (a[::-1], a[..., ::-1]),
    "copied": lambda a: (a[::-1].copy(), a[..., ::-1].copy(), a[:, ::-1].copy(), a[::-1, ::-1].copy()),
    "converted": lambda a: a[::-1].astype(np.float32) + a[..., ::-1].astype("float32"),
    "beside other parts": lambda a: (
        a[0, ::-1].copy(),
        a[::-1, None].copy(),
        a[::-1, 1].copy(),
        a[1:, ..., ::-1].copy(),
    ),
    "computed with": lambda a: (a[::-1] == a, a * a[..., ::-1], np.maximum(a, a[::-1]), a[::-1] > 0, len(a[::-1])),
    "reduced": lambda a: (a[::-1].argmax(0), a[:, ::-1].max(), a[::-1].shape, a[::-1].ndim, a.ravel()[::-1].tolist()),
    "written after": _written_after,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", BACKWARD)
def test_views_that_go_backwards_are_read(what: str, name: str) -> None:
    for shape in ((3, 4), (2, 3, 2), (2, 2)):
        assert as_numpy(BACKWARD[what], array_of(name, shape, 1)), shape


@pytest.mark.parametrize(
    "f", [_written_through, lambda a: [*a[::-1]], lambda a: a[::-1][1:], lambda a: a[::-1].reshape(-1),
          lambda a: a[::-1].astype(a.dtype, copy=False), lambda a: a[:0:-1].copy(), lambda a: a[::-1, [0, 1]]],
)  # fmt: skip
def test_what_more_is_done_to_such_views_is_left_to_numpy(f) -> None:
    assert not as_numpy(f, array_of("float32", (3, 4), 1))


OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.matmul,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
IN_PLACE = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
    operator.iand, operator.ior, operator.ixor,
]  # fmt: skip


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_operators(op) -> None:
    @SETTINGS
    @given(arrays, arrays, NUMBERS)
    def run(a, b, number):
        as_numpy(lambda a, b: op(a, b), a, b)
        as_numpy(lambda a: op(a, number), a)
        as_numpy(lambda a: op(number, a), a)
        if op is not operator.matmul:
            as_numpy(lambda a: (op(a.sum(), number), op(number, a.max(initial=0))), a)

    run()


@pytest.mark.parametrize("op", IN_PLACE, ids=lambda op: op.__name__)
def test_operators_in_place(op) -> None:
    def into(a, b):
        view = a[..., None]
        same = a
        a = op(a, b)
        return a is same, view, a

    @SETTINGS
    @given(arrays, arrays, NUMBERS)
    def run(a, b, number):
        as_numpy(into, a, b)
        as_numpy(lambda a: into(a, number), a)

    run()
