"""Programs with numpy that people write around tensors: one graph each, and what numpy gives, warnings included."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import intarsia

RAISE = {"on_error": "raise"}
MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)
SCALE = np.float32(0.5)


@pytest.fixture(autouse=True)
def _fresh():
    intarsia.reset()
    yield
    intarsia.reset()


def image():
    return np.random.default_rng(0).integers(0, 256, (8, 6, 3)).astype(np.uint8)


def floats(*shape):
    return np.random.default_rng(1).normal(size=shape)


def singles(*shape):
    return floats(*shape).astype(np.float32)


def tensor(*shape):
    return torch.from_numpy(singles(*shape))


def alike(found, expected):
    assert type(found) is type(expected), (type(found), type(expected))
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            alike(one, other)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


def outcome(f, args):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = f(*args)
    return found, [str(w.message) for w in told]


def check(f, *args, graphs=1, fallbacks=0):
    """Assert that `f` compiled does what it does, to its arguments as well, in that many graphs."""
    compiled = intarsia.compile(f, options=RAISE, fullgraph=graphs == 1)
    for _ in range(2):
        mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
        expected = outcome(f, theirs)
        found = outcome(compiled, mine)
        alike(found[0], expected[0])
        assert found[1] == expected[1]
        alike(mine, theirs)
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks) == (graphs, fallbacks)


# ---- before and after a model ----------------------------------------------------------------------------------


def normalised(image):
    x = image.astype(np.float32) / 255.0
    return (x - MEAN) / STD


def to_batch(image):
    x = np.transpose(image, (2, 0, 1)).astype(np.float32)
    return torch.from_numpy(x[None]) / 255


def from_network(x):
    return np.clip(x.detach().numpy().transpose(1, 2, 0) * 255, 0, 255).astype(np.uint8)


def classes(logits):
    p = torch.softmax(logits, -1).numpy()
    return np.argmax(p, axis=-1), np.max(p, axis=-1)


def standardised(a):
    return (a - np.mean(a, axis=0)) / (np.std(a, axis=0) + 1e-8)


def min_max(a):
    low, high = a.min(), a.max()
    return (a - low) / (high - low)


def softmax(a):
    e = np.exp(a - np.max(a, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def relu(a):
    return np.maximum(a, 0)


def gelu(a):
    return 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))


def one_hot(labels):
    return np.eye(4)[labels]


def accuracy(logits, labels):
    return np.mean(np.argmax(logits, axis=1) == labels)


def cosine(a, b):
    return np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b))


def distances(a, b):
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))


def masked(a):
    return np.where(a > 0, a, 0.1 * a)


def thresholded(a):
    b = a.copy()
    b[b < 0] = 0
    return b


def causal(a):
    n = a.shape[0]
    mask = np.triu(np.ones((n, n)), k=1)
    return a + mask * -1e9


def with_infinities(a):
    mask = np.tril(np.ones((4, 4), dtype=bool))
    return softmax(np.where(mask, a, -np.inf))


def encoding(x):
    position = np.arange(x.shape[0])[:, None]
    rate = np.exp(np.arange(0, 8, 2) * -(math.log(10000.0) / 8))
    return x + torch.from_numpy(np.concatenate([np.sin(position * rate), np.cos(position * rate)], axis=1)).float()


def boxes(a):
    width, height = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1]
    return np.stack([(a[:, 0] + a[:, 2]) / 2, (a[:, 1] + a[:, 3]) / 2, width, height], axis=1)


def areas(a):
    return np.prod(a[:, 2:] - a[:, :2], axis=1)


def grid(a):
    x, y = np.meshgrid(np.arange(3), np.arange(4))
    return np.stack([x.ravel(), y.ravel()], -1) + a


def padded(a):
    return np.pad(a, ((1, 1), (0, 2)))


def windows(a):
    return np.stack([a[i : i + 3] for i in range(len(a) - 2)])


def halves(a):
    left, right = np.split(a, 2, axis=-1)
    return np.concatenate([-right, left], axis=-1)


def smooth(a):
    kernel = np.ones(3) / 3
    return sum(a[i : len(a) - 2 + i] * kernel[i] for i in range(3))


def backwards(a):
    steps = (np.arange(0, 6) * 3).round()[::-1].copy().astype(np.int64)
    return steps, a[:, ::-1] + 1, np.ascontiguousarray(a), torch.from_numpy(steps), a[::-1]


def rolled(a):
    return a - np.roll(a, 1, axis=0)


def energy(a):
    return 10 * np.log10(np.mean(np.square(a), axis=-1) + 1e-12)


def products(a, b):
    return a @ b, np.matmul(a, b), np.dot(a, b), np.einsum("ij,jk->ik", a, b)


def attention(q, k):
    return np.einsum("bqd,bkd->bqk", q, k) / np.sqrt(q.shape[-1])


def outer(a, b):
    return np.outer(a, b), a[:, None] * b[None, :]


def counted(a):
    return (a > 0).sum(), np.any(a > 2), np.all(a < 100, axis=0)


def of_ints(a):
    return a.sum(), a.mean(), a // 2, a % 3, a / 2, a**2, -a, a.max()


def in_bytes(a):
    return a + a, a * 2, a >> 1, a & 15, ~a, a.max()


def promoted(a, b):
    return a + b, a * 2, a * 2.0, a + np.float64(1), np.float32(3) * a, a > 1


def looped(a):
    total = np.zeros(a.shape[1])
    for row in a:
        total = total + row
    return total


def of_scalars(a):
    m, s = a.mean(), a.std()
    return m, s, m / s, m + 1, a[0, 0], a[0, 0] * 2


def scalars_and_tensors(x, a):
    return x * a.mean(), x + a[0, 0], torch.tensor(a), torch.as_tensor(a)


def rounded(a):
    return np.round(a), np.round(a, 2), np.floor(a), np.ceil(a).astype(int)


def summed(a):
    return np.cumsum(a), np.diff(a), np.sort(a), a.ptp() if hasattr(a, "ptp") else np.ptp(a)


def ranked(a):
    order = np.argsort(a, axis=-1)
    return order, np.sort(a), a.argsort(kind="stable"), order[:, -1]


def told_of_types(a):
    least, eps = np.finfo(np.float32).min, np.finfo(a.dtype).eps
    return np.maximum(a, float(least)) + eps, np.iinfo("int16").max, np.count_nonzero(a > 0), np.lcm(4, 6)


PROGRAMS = [
    (normalised, image()), (to_batch, image()), (from_network, tensor(3, 4, 5)), (classes, tensor(5, 4)),
    (standardised, floats(6, 3)), (min_max, floats(6, 3)), (softmax, singles(3, 5)), (sigmoid, floats(7)),
    (relu, singles(3, 4)), (gelu, floats(5)), (one_hot, np.array([0, 3, 1])),
    (accuracy, floats(6, 3), np.array([0, 1, 2, 0, 1, 2])), (cosine, floats(5), floats(5) + 1),
    (distances, floats(4, 3), floats(5, 3)), (masked, floats(3, 4)), (thresholded, floats(3, 4)),
    (causal, floats(4, 4)), (with_infinities, floats(4, 4)), (encoding, tensor(5, 8)), (boxes, floats(3, 4)),
    (areas, floats(3, 4)), (grid, floats(12, 2)), (padded, singles(2, 3)), (windows, floats(6)), (halves, floats(2, 8)),
    (backwards, floats(4, 2)),
    (smooth, floats(9)), (rolled, floats(4, 2)), (energy, floats(2, 50)), (products, floats(3, 4), floats(4, 2)),
    (attention, singles(2, 3, 4), singles(2, 5, 4)), (outer, floats(3), floats(4)), (counted, floats(5, 2)),
    (of_ints, np.arange(-4, 8)), (of_ints, np.arange(12, dtype=np.int32)), (in_bytes, image()),
    (promoted, singles(3), floats(3)), (looped, floats(3, 4)), (of_scalars, floats(3, 4)),
    (scalars_and_tensors, tensor(3), floats(2, 2)), (rounded, floats(6) * 10), (summed, floats(7)),
    (ranked, floats(3, 5)), (told_of_types, floats(3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("f", "args"), [(p[0], p[1:]) for p in PROGRAMS], ids=lambda v: getattr(v, "__name__", ""))
def test_programs(f, args):
    check(f, *args)


def test_equal_elements_are_ordered_by_numpy():
    a = np.array([2.0, 1.0, 2.0, np.nan, 1.0])
    check(lambda a: np.argsort(a), a, fallbacks=2)


# ---- numbers of numpy beside tensors ---------------------------------------------------------------------------


def flat(x):
    return x.reshape(x.shape[0], np.prod(x.shape[1:])) / np.sqrt(x.shape[-1])


def sized(x):
    return F.interpolate(x, size=tuple(np.array([4, 6])), mode="nearest") * SCALE


def of_lcm(x):
    return x.repeat(int(np.lcm(x.shape[0], 6) // x.shape[0]), 1) + np.float64(2)


def depth(x):
    for _ in range(int(np.ceil(np.log2(x.shape[0])))):
        x = x * np.float32(0.5) + np.int64(1)
    return x


def by_class(x):
    return x.to(torch.float64) if np.dtype("float32") == np.float32 else x


def limits(x):
    return x.clamp(np.float32(-1), np.float64(1)).masked_fill(x > 0, np.float32(-5))


@pytest.mark.parametrize(
    ("f", "shape"), [(flat, (2, 3, 4)), (of_lcm, (4, 2)), (depth, (5,)), (by_class, (3,)), (limits, (6,))]
)
def test_numbers_beside_tensors(f, shape):
    check(f, tensor(*shape))


# ---- memory ----------------------------------------------------------------------------------------------------


def test_an_array_shares_the_memory_of_its_tensor():
    def f(x):
        a = x.numpy()
        a[0] = 7
        return a, x + 1

    x = torch.ones(3)
    a, y = intarsia.compile(f, options=RAISE, fullgraph=True)(x)
    assert x.tolist() == [7, 1, 1] and y.tolist() == [8, 2, 2]
    a[1] = 5
    assert x.tolist() == [7, 5, 1]


def test_a_tensor_shares_the_memory_of_its_array():
    def f(a):
        x = torch.from_numpy(a)
        x += 1
        return x

    a = np.zeros(3)
    x = intarsia.compile(f, options=RAISE, fullgraph=True)(a)
    assert a.tolist() == [1, 1, 1]
    x[0] = 4
    assert a[0] == 4


def in_place(a, b):
    a += b
    a[1:] *= 2
    a[0, 0] = 9
    a[a > 8] = -1
    view = a.T
    view[0] -= 1
    return view.sum()


def test_writes_in_place():
    check(in_place, floats(3, 3), floats(3, 3))


def test_two_arrays_on_one_memory():
    def f(a, b):
        a += 1
        return b * 2

    memory = np.zeros(4)
    compiled = intarsia.compile(f, options={"on_error": "eager"})
    np.testing.assert_array_equal(compiled(memory[:3], memory[1:]), [2, 2, 0])
    np.testing.assert_array_equal(compiled(np.zeros(3), np.zeros(3)), [0, 0, 0])
    np.testing.assert_array_equal(compiled(memory[:3], memory[1:]), [4, 4, 0])


def test_the_same_array_comes_back():
    def f(a):
        a += 1
        return a, a

    a = np.zeros(2)
    one, other = intarsia.compile(f, options=RAISE, fullgraph=True)(a)
    assert one is a and other is a and a.tolist() == [1, 1]


# ---- what numpy warns of ---------------------------------------------------------------------------------------


def ratio(a, b):
    return a / b


def test_numpy_itself_warns():
    check(ratio, np.array([1.0, 2.0]), np.array([0.0, 1.0]), fallbacks=2)


def test_a_write_behind_a_warning_is_done_once():
    def f(a):
        a += 1
        return np.log(a)

    check(f, np.array([-1.0, 3.0]), fallbacks=2)


def test_infinities_that_were_there_are_no_warning():
    check(lambda a: np.where(a > 0, a, -np.inf) + 1, np.array([1.0, -1.0]))


# ---- guards ----------------------------------------------------------------------------------------------------


def versions(f, *calls):
    compiled = intarsia.compile(f, options=RAISE)
    for args in calls:
        alike(compiled(*args), f(*args))
    return intarsia.stats().graphs


def test_sizes_become_symbols():
    assert versions(softmax, *[(floats(n, 5),) for n in (3, 4, 5, 6)]) == 2


def test_products_of_sizes_stay_open():
    def f(x):
        return x.reshape(int(np.prod(x.shape))) * 2, x.view(np.prod(x.shape[:2]), -1) + np.prod(x.shape)

    assert versions(f, *[(tensor(n, 3, 2),) for n in (3, 4, 5, 6)]) == 2

    def known(x):
        return x + 1, np.prod(x.shape), np.prod(x.shape) / 2, np.prod(x.shape) > 6

    assert versions(known, *[(tensor(n, 3),) for n in (3, 4, 5)]) >= 3


def test_an_assertion_about_an_array():
    def f(a):
        assert (a > 0).all(), "negative"
        return a * 2

    check(f, np.ones(3))
    with pytest.raises(AssertionError, match="negative"):
        intarsia.compile(f, options=RAISE)(np.array([1.0, -1.0]))


def test_types_and_strides_are_relied_on():
    a = floats(4, 4)
    assert versions(relu, (a,), (a.astype(np.float32),), (a.T,), (a[::2],), (a,)) >= 3


@pytest.mark.parametrize(
    "special",
    [
        floats(4, 4)[::-1],
        floats(4).astype(">f8"),
        np.ma.masked_array(floats(4)),
        floats(4).astype(np.complex64),
        np.array(["a", "b"]),
        np.array([1, None], dtype=object),
    ],
    ids=["negative", "swapped", "masked", "complex", "text", "object"],
)
def test_other_arrays_run_as_they_are(special):
    def f(x, a):
        return x + 1, a[1:]

    compiled = intarsia.compile(f, options=RAISE)
    for a in (floats(4), special, floats(4)):
        found, expected = compiled(torch.ones(2), a), f(torch.ones(2), a)
        assert type(found[1]) is type(expected[1]) and found[1].dtype == expected[1].dtype
        assert found[1].tolist() == expected[1].tolist()


def test_an_array_that_cannot_be_written():
    a = floats(3)
    a.flags.writeable = False
    compiled = intarsia.compile(lambda x, a: (x + 1, a * 2), options=RAISE)
    np.testing.assert_array_equal(compiled(torch.ones(2), a)[1], a * 2)
    with pytest.raises(ValueError, match="read-only"):
        intarsia.compile(lambda x, a: a.__setitem__(0, x + 1), options=RAISE)(torch.ones(2), a)


# ---- what breaks -----------------------------------------------------------------------------------------------


def random(x):
    return x * 2 + torch.from_numpy(np.random.rand(3)).float()


def selected(x):
    a = (x * 2).numpy()
    return torch.from_numpy(a[a > 0]) + 1


def unique(x):
    return (x * 2).sum() + len(np.unique(x.numpy()))


def requiring(x):
    try:
        return (x * 2).numpy()
    except RuntimeError as error:
        return x + len(str(error))


@pytest.mark.parametrize("f", [random, unique])
def test_breaks(f):
    x = tensor(3)
    np.random.seed(0)
    expected = f(x)
    np.random.seed(0)
    alike(intarsia.compile(f, options=RAISE)(x), expected)
    assert intarsia.stats().graphs == 2


def test_elements_where_a_mask_is_true():
    check(selected, tensor(3))


def test_an_error_of_the_program():
    x = tensor(3).requires_grad_()
    torch.testing.assert_close(intarsia.compile(requiring, options=RAISE)(x), requiring(x))


def test_what_has_no_torch_form_is_named():
    with pytest.raises(intarsia.UnsupportedError, match=r"numpy\.unique has no torch form"):
        intarsia.compile(lambda x: np.unique(x.numpy()), options=RAISE, fullgraph=True)(tensor(3))
