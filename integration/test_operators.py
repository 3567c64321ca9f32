"""Operators at the edges of their arguments: what eager refuses, ignores, or fills in."""

import functools
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch.torch_version import TorchVersion

import intarsia
from intarsia_ir.errors import UnsupportedError

pytestmark = pytest.mark.usefixtures("fresh")

RAISE = {"on_error": "raise"}


def outcome(f, *args):
    """Return what `f` gives, with the gradients of `args`, or the class of what it raises."""
    mine = [a.detach().clone(memory_format=torch.preserve_format).requires_grad_(a.requires_grad) for a in args]
    try:
        result = f(*mine)
        graded = [a for a in mine if a.requires_grad]
        grads = torch.autograd.grad(result.sum(), graded, allow_unused=True) if result.requires_grad else ()
    except Exception as error:
        return type(error)
    return result.detach(), grads


def as_eager(f, *args):
    want = outcome(f, *args)
    got = outcome(intarsia.compile(f, options=RAISE), *args)
    if isinstance(want, type):
        assert got is want
    else:
        torch.testing.assert_close(got, want, equal_nan=True)
    assert intarsia.stats().frames_compiled >= 1


CLASSES = {
    "argument": (lambda x: F.one_hot(x, 3) * 2, torch.tensor([0, 3])),
    "negative": (lambda x: F.one_hot(x, num_classes=3), torch.tensor([[0, -1]])),
    "literal": (lambda x: F.one_hot(torch.tensor([5]), 3) + x, torch.tensor([1])),
    "no classes": (lambda x: F.one_hot(x, 0), torch.tensor([1])),
    "unused": (lambda x: (F.one_hot(x, 3), x + 1)[1], torch.tensor([3])),
    "operator": (lambda x: torch.ops.aten.one_hot(x, 3), torch.tensor([4])),
    "in range": (lambda x: F.one_hot(x, 3), torch.tensor([0, 2])),
    "empty": (lambda x: F.one_hot(x, 3), torch.zeros(0, 2, dtype=torch.long)),
}


@pytest.mark.parametrize("name", CLASSES)
def test_one_hot_checks_its_classes(name):
    f, classes = CLASSES[name]
    as_eager(f, classes)


def test_one_hot_checks_its_classes_in_training():
    for wrong in (1, 3):
        as_eager(
            lambda x, w: F.one_hot(x, 3).float() @ w, torch.tensor([0, wrong]), torch.ones(3, 2, requires_grad=True)
        )


SCALES = [(1.3, 1.0), (1.0, 1.3), (2.4, 2.0), (1.3, 2.7), (0.7, 1.5)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_a_side_that_keeps_or_doubles_its_size(mode, scale):
    """int(3 * 1.3) is 3 and int(2 * 2.4) is 4: eager looks at the sizes then, not at the scale."""
    f = lambda x: F.interpolate(x, scale_factor=scale, mode=mode)
    for x in (torch.randn(2, 5, 3, 2), torch.randn(2, 5, 3, 2).to(memory_format=torch.channels_last)):
        as_eager(f, x.requires_grad_())
        as_eager(f, x.detach())


@pytest.mark.parametrize("mode", ["nearest", "linear", "area"])
def test_a_line_that_keeps_its_size(mode):
    as_eager(lambda x: F.interpolate(x, scale_factor=1.3, mode=mode), torch.randn(2, 3, 3))


def test_a_line_of_changing_size_keeps_it():
    f = lambda x: F.interpolate(x, scale_factor=1.3, mode="nearest") + F.interpolate(x, scale_factor=1.3, mode="linear")
    fast = intarsia.compile(f, dynamic=True, options=RAISE)
    for n in (2, 3, 4, 7):
        x = torch.randn(1, 2, n)
        torch.testing.assert_close(fast(x), f(x))


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


EMPTY = {
    "empty": lambda x: torch.empty(2, 3, dtype=x.dtype),
    "empty_like": lambda x: torch.empty_like(x),
    "new_empty": lambda x: x.new_empty(4),
    "empty_strided": lambda x: torch.empty_strided((2, 3), (1, 2), dtype=x.dtype),
    "in a kernel": lambda x: torch.cat([torch.empty(2, 1, dtype=x.dtype), x], 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.half, torch.complex64, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("name", EMPTY)
def test_uninitialised_memory_is_filled_in_deterministic_mode(name, dtype, deterministic):
    as_eager(EMPTY[name], torch.ones(2, 3, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.half, torch.complex64, torch.int64])
@pytest.mark.parametrize("strides", [(2, 0, 1), (1, 1, 1), (0, 0, 0), (6, 2, 1)])
def test_memory_that_shows_elements_several_times(dtype, strides):
    for make in (torch.empty_strided, torch.ones(1, dtype=dtype).new_empty_strided):
        f = functools.partial(make, (2, 3, 2), strides, dtype=dtype)
        found = intarsia.compile(lambda f=f: f(), options=RAISE)()
        assert (found.dtype, found.stride(), found.untyped_storage().nbytes()) == (
            dtype, f().stride(), f().untyped_storage().nbytes()
        )  # fmt: skip


ANSWERS = {
    "equal": torch.equal,
    "allclose": torch.allclose,
    "methods": lambda x, y: (x.equal(y), x.allclose(y, rtol=0.5, equal_nan=True)),
    "in a list": lambda x, y: [torch.equal(x, y), torch.equal(x, x)],
    "to go on": lambda x, y: x + 1 if x.shape == y.shape and not torch.equal(x, y) else y * 2,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.bool, torch.bfloat16])
@pytest.mark.parametrize("name", ANSWERS)
def test_answers_about_two_tensors(name, dtype):
    x = torch.tensor([[1.0, 0.0], [2.0, 4.0]]).to(dtype)
    others = [x, x.clone(), torch.zeros(2, 2, dtype=dtype), x[:1] if name in ("equal", "to go on") else x + x]
    if dtype.is_floating_point:
        others.append(torch.full((2, 2), float("nan"), dtype=dtype))
    f = ANSWERS[name]
    compiled = intarsia.compile(f, fullgraph=name != "to go on", options=RAISE)
    for other in others:
        got, want = compiled(x, other), f(x, other)
        assert type(got) is type(want)
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(got, want)
        else:
            assert got == want
    assert intarsia.stats().frames_compiled >= 1


@pytest.mark.parametrize("f", [torch.equal, torch.allclose])
def test_operands_of_two_types_are_compared_as_eager_compares_them(f):
    as_eager_raises(f, torch.ones(2), torch.ones(2, dtype=torch.int64))


def as_eager_raises(f, *args):
    try:
        want = f(*args)
    except RuntimeError as error:
        with pytest.raises(type(error)):
            intarsia.compile(f)(*args)
    else:
        assert intarsia.compile(f)(*args) == want


COVARIANCES = {
    "rows": lambda x: torch.cov(x),
    "a vector": lambda x: torch.cov(x[0], correction=0),
    "a number": lambda x: torch.cov(x[0, 0], correction=0),
    "a method": lambda x: x.cov(correction=2),
    "counted": lambda x: torch.cov(x, fweights=torch.tensor([1, 2, 0, 3, 1])),
    "weighed": lambda x: torch.cov(x, aweights=torch.tensor([0.5, 2.0, 0.0, 3.0, 1.0])),
    "both": lambda x: torch.cov(
        x, correction=2, fweights=torch.tensor([1, 2, 0, 3, 1]), aweights=torch.tensor([0.5, 2.0, 0.0, 3.0, 1.0])
    ),
    "no freedom left": lambda x: torch.cov(x, correction=50, fweights=torch.tensor([1, 2, 0, 3, 1])),
    "correlations": torch.corrcoef,
    "correlation of a vector": lambda x: torch.corrcoef(x[0]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("name", COVARIANCES)
def test_covariances(name, dtype):
    x = torch.randn(3, 5, dtype=dtype, requires_grad=True)
    f = COVARIANCES[name]
    ours, eagers = intarsia.compile(f, fullgraph=True, options=RAISE)(x), f(x)
    torch.testing.assert_close(ours, eagers, equal_nan=True)
    tangent = torch.randn_like(eagers)
    torch.testing.assert_close(
        torch.autograd.grad(ours, x, tangent), torch.autograd.grad(eagers, x, tangent), equal_nan=True
    )
    assert intarsia.stats().graphs == 1 and intarsia.stats().fallbacks == 0


REFUSED_WEIGHTS = {
    "negative": {"fweights": torch.tensor([1, -1, 3])},
    "that sum to zero": {"aweights": torch.zeros(3)},
    "too few": {"aweights": torch.ones(2)},
    "of another type": {"fweights": torch.ones(3)},
}


@pytest.mark.parametrize("name", REFUSED_WEIGHTS)
def test_weights_that_eager_refuses(name):
    as_eager_raises(functools.partial(torch.cov, **REFUSED_WEIGHTS[name]), torch.randn(2, 3))


def test_no_degrees_of_freedom_are_told_as_in_eager():
    with pytest.warns(UserWarning, match="degrees of freedom"):
        found = intarsia.compile(lambda x: torch.cov(x))(torch.ones(3, 1))
    assert found.isnan().all()


def test_keywords_by_the_name_of_an_old_one():
    x, index, src = torch.zeros(3, 4), torch.tensor([[0, 1, 2, 0]]), torch.ones(1, 4)
    as_eager(lambda x, s: torch.scatter_reduce(x, 0, index, s, reduce="amax"), x, src)
    as_eager(lambda x: torch.scatter(x, 0, index, 2.5, reduce="add"), x)


def test_a_loss_with_a_distance_of_ones_own():
    distance = torch.nn.PairwiseDistance(p=1)
    f = functools.partial(F.triplet_margin_with_distance_loss, distance_function=distance, swap=True)
    as_eager(f, *[torch.randn(3, 4, requires_grad=True) for _ in range(3)])


def test_factors_of_a_factorisation_by_reflections():
    as_eager(lambda x: torch.geqrf(x)[0] + 1, torch.randn(2, 5, 3))


def test_deterministic_mode_is_looked_at_on_every_call():
    fast = intarsia.compile(lambda: torch.empty(2) * 1, options=RAISE)
    fast()
    torch.use_deterministic_algorithms(True)
    try:
        assert fast().isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


SLICES = {
    "another size": (torch.ones(3, 2), torch.ones(2, 3)),
    "fewer dimensions": (torch.ones(3, 2), torch.ones(2)),
    "more dimensions": (torch.ones(3, 2), torch.ones(2, 2, 1)),
    "another type": (torch.ones(3, 2), torch.ones(2, 2).double()),
    "a number": (torch.ones(3), torch.tensor(1.0)),
    "fitting": (torch.ones(3, 2), torch.ones(2, 2)),
}


@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize("op", ["index_add", "index_copy"])
def test_slices_that_do_not_fit_raise(op, name):
    as_eager(lambda x, s: getattr(torch, op)(x, 0, torch.tensor([0, 1]), s), *SLICES[name])


SPECIAL = {
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).int_repr() + 1,
    "quantized, dynamic": lambda x: torch.quantize_per_tensor_dynamic(x, torch.quint8, False).dequantize() + 1,
    "quantized by channel": lambda x: (
        torch.quantize_per_channel(x, torch.ones(3), torch.zeros(3, dtype=torch.long), 0, torch.qint8)
        .dequantize()
        .sum(1)
    ),
    "coo": lambda x: x.to_sparse().to_dense() * 2,
    "coo of parts": lambda x: torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), x[0, :2], (2, 2)).to_dense() + 1,
    "csr": lambda x: x.to_sparse_csr() @ x.t(),
    "csc": lambda x: x.to_sparse_csc().ccol_indices() + 1,
    "bsr": lambda x: x[:2, :2].to_sparse_bsr((2, 2)).to_dense() + 1,
    "like": lambda x: torch.zeros_like(x, layout=torch.sparse_coo).to_dense() + x,
    "mkldnn": lambda x: x.to_mkldnn().to_dense() + 1,
    "nested": lambda x: torch.nested.nested_tensor([x, x[:2]]).to_padded_tensor(0.0) + 1,
    "jagged": lambda x: torch.nested.as_nested_tensor([x, x[:2]], layout=torch.jagged).to_padded_tensor(0.0) + 1,
    "meta": lambda x: x.expand((x.to("meta") * 2).shape) + 1,
}


@pytest.mark.parametrize("name", SPECIAL)
def test_tensors_that_no_graph_holds_are_left_to_eager(name):
    """By breaks that say so, not by faults of the compiler."""
    x = torch.randn(3, 4)
    (want, _), (got, _) = outcome(SPECIAL[name], x), outcome(intarsia.compile(SPECIAL[name]), x)
    torch.testing.assert_close(got, want)
    try:
        intarsia.compile(SPECIAL[name], options=RAISE)(x)
    except UnsupportedError as error:
        assert error.code.startswith(("tracer.", "pipeline.device"))


CHECKED = {
    "quantile": (lambda x, q: torch.quantile(x, q), torch.randn(3, 4), torch.tensor([1.5])),
    "nanquantile": (lambda x, q: x.nanquantile(q, 1), torch.randn(3, 4), torch.tensor(-0.5)),
    "quantile in range": (lambda x, q: x.quantile(q, dim=1), torch.randn(3, 4), torch.tensor([0.5])),
    "probability": (F.binary_cross_entropy, torch.tensor([1.5]), torch.tensor([1.0])),
    "probability, nan": (F.binary_cross_entropy, torch.tensor([float("nan")]), torch.tensor([1.0])),
    "target": (F.binary_cross_entropy, torch.tensor([0.5]), torch.tensor([2.0])),
    "probability in range": (F.binary_cross_entropy, torch.tensor([0.5, 1.0]), torch.tensor([1.0, 0.0])),
    "celu": (lambda x: F.celu(x, 0.0), torch.randn(3)),
    "beta": (lambda x: F.smooth_l1_loss(x, x, beta=-1.0), torch.randn(3)),
    "select_scatter": (lambda x: torch.select_scatter(x, torch.ones(3), 1, 7), torch.randn(3, 4)),
}


# the fake kernels of torch 2.11 look at the quantiles themselves, so that the graph breaks
BREAK_ON_2_11 = {"quantile", "nanquantile", "quantile in range"}


@pytest.mark.parametrize("name", CHECKED)
def test_what_eager_checks_is_checked(name):
    f, *args = CHECKED[name]
    if name in BREAK_ON_2_11 and TorchVersion(torch.__version__) < "2.12":
        with pytest.raises(UnsupportedError, match="data_dependent"):
            intarsia.compile(f, options={"on_error": "raise"})(*args)
        return
    as_eager(f, *args)
    as_eager(f, args[0].requires_grad_(), *args[1:])


OUTSIDE = torch.tensor([9])
UNUSED = {
    "item": lambda x: x.clone().__setitem__(OUTSIDE, 1.0),
    "scatter": lambda x: x.clone().scatter_(0, OUTSIDE[None], 1.0),
    "index_fill": lambda x: x.clone().index_fill_(0, OUTSIDE, 1.0),
    "index_copy": lambda x: x.clone().index_copy_(0, OUTSIDE, torch.ones(1, 3)),
    "put": lambda x: x.clone().put_(OUTSIDE, torch.ones(1)),
    "embedding": lambda x: F.embedding(OUTSIDE, x),
    "margin": lambda x: F.multi_margin_loss(x, OUTSIDE.expand(3)),
    "eigh": lambda x: torch.linalg.eigh(x * float("nan")),
    "division": lambda x: OUTSIDE // x.long().sum(),
    "histc": lambda x: torch.histc(x * float("inf"), 4),
    "sorter": lambda x: torch.searchsorted(torch.ones(2), torch.ones(2), sorter=OUTSIDE.expand(2)),
    "cholesky": lambda x: torch.linalg.cholesky(x - 1),
}


@pytest.mark.parametrize("name", UNUSED)
def test_what_raises_raises_although_nobody_reads_its_result(name):
    as_eager(lambda x: (UNUSED[name](x), x + 1)[1], torch.zeros(3, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_embedding_beside_its_norm_refuses_what_eager_refuses(dtype):
    """It is in the norm's kernel, which looks inside the table whatever the tokens say; a check before it raises."""
    table, weight = torch.randn(5, 16, dtype=dtype), torch.randn(16, dtype=dtype)
    fast = intarsia.compile(looked_up, options=RAISE, fullgraph=True)
    for tokens in (torch.tensor([[0, 4], [2, 2]]), torch.tensor([[1, 0], [1, 4]], dtype=torch.int32)):
        torch.testing.assert_close(fast(tokens, table, weight), looked_up(tokens, table, weight))
    stats = intarsia.stats()
    assert (stats.frames_compiled, stats.kernels_generated) == (2, 4) and stats.fallbacks == 0
    for outside in (5, -1):  # eager says what is wrong
        with pytest.raises(IndexError, match="index out of range in self"):
            fast(torch.tensor([[0, outside], [2, 2]]), table, weight)


def looked_up(tokens, table, weight):
    return F.layer_norm(F.embedding(tokens, table, padding_idx=1), (16,), weight)


@pytest.mark.parametrize("chosen", [lambda a: torch.where(a > 0, 255, a), lambda a: torch.where(a > 0, a, -300)])
def test_a_number_that_a_choice_has_no_room_for(chosen):
    """Fake tensors take it; eager doesn't, and its error is what a call ends in."""
    a = torch.ones(3, dtype=torch.int8)
    with pytest.raises(UnsupportedError, match="without overflow"):
        intarsia.compile(chosen, options={"on_error": "raise"})(a)
    for function in (chosen, intarsia.compile(chosen)):
        with pytest.raises(RuntimeError, match="value cannot be converted to type int8_t without overflow"):
            function(a)
