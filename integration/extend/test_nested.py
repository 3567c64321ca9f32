"""Nested tensors of layout `torch.jagged`: one graph of plain tensors, results and gradients of eager's."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import intarsia
from intarsia_ir.errors import UnsupportedError

pytestmark = pytest.mark.usefixtures("fresh")
RAISE = {"on_error": "raise"}
LINEAR = torch.nn.Linear(4, 3)


def rows(*lengths, grad=True, start=0.0):
    data = [torch.arange(start, start + 4.0 * n).view(n, 4).sin() for n in lengths]
    return torch.nested.nested_tensor(data, layout=torch.jagged, requires_grad=grad)


def of(values, offsets):
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def plain(y):
    return y.values() if y.is_nested else y


def with_gradients(function, make):
    """Return the values of a result, and gradients of what went in."""
    inputs = make()
    LINEAR.zero_grad()
    result = plain(function(*inputs))
    result.square().sum().backward()
    graded = [x for x in (*inputs, *LINEAR.parameters()) if x.requires_grad]
    return result.detach(), [None if x.grad is None else plain(x.grad) for x in graded]


def values_and_offsets():
    return torch.arange(36.0).view(9, 4).cos().requires_grad_(), torch.tensor([0, 2, 5, 9])


def list_of_rows():
    return [torch.arange(4.0 * n).view(n, 4).cos().requires_grad_() for n in (2, 1, 4)]


def halves(n):
    left, right = n.chunk(2, -1)
    return left * right


def from_list(*parts):
    made = torch.nested.as_nested_tensor(list(parts), layout=torch.jagged)
    return LINEAR(made * 2).relu().to_padded_tensor(0.5)


INSIDE = {
    "layer": (lambda v, o: LINEAR(of(v, o)).relu().values(), values_and_offsets),
    "result": (lambda v, o: LINEAR(of(v, o)).relu() * 2, values_and_offsets),
    "lengths": (
        lambda v, o: torch.nested.nested_tensor_from_jagged(v, lengths=o.diff()).sin(),
        values_and_offsets,
    ),
    "known lengths": (
        lambda v, o: torch.nested.nested_tensor_from_jagged(v, o, min_seqlen=2, max_seqlen=4).to_padded_tensor(1.0),
        values_and_offsets,
    ),
    "padded to all values": (lambda v, o: of(v, o).sin().to_padded_tensor(0.0), values_and_offsets),
    "list": (from_list, list_of_rows),
}
AS_INPUT = {
    "elementwise": lambda n: n * n + n.sin(),
    "layer": lambda n: LINEAR(n).tanh(),
    "values": lambda n: LINEAR(n).tanh().values(),
    "padded": lambda n: n.exp().to_padded_tensor(0.0),
    "padded, by the function": lambda n: torch.nested.to_padded_tensor(n * 2, -1.0),
    "softmax": lambda n: F.softmax(n, -1),
    "transposed": lambda n: n.transpose(1, 2) * 2,
    "layer norm": lambda n: F.layer_norm(n, (4,)),
    "chunks": halves,
    "joined": lambda n: torch.cat([n, n * 2], -1),
    "heads": lambda n: n.unflatten(-1, [2, 2]).transpose(1, 2).transpose(1, 2).flatten(-2),
}
PROGRAMS = {
    **{f"inside, {name}": program for name, program in INSIDE.items()},
    **{f"an input, {name}": (f, lambda: (rows(2, 3, 4),)) for name, f in AS_INPUT.items()},
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_with_eagers_gradients(name, dynamic):
    function, make = PROGRAMS[name]
    want = with_gradients(function, make)
    fast = intarsia.compile(function, fullgraph=True, dynamic=dynamic, options=RAISE)
    for _ in range(2):
        torch.testing.assert_close(with_gradients(fast, make), want)
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks, stats.recompiles) == (1, 0, 0, 0)


@pytest.mark.peer
@pytest.mark.parametrize("name", PROGRAMS)
def test_where_torch_compile_takes_them(name):
    function, make = PROGRAMS[name]
    torch._dynamo.reset()
    got = with_gradients(torch.compile(function, backend="aot_eager", fullgraph=True), make)
    torch.testing.assert_close(got, with_gradients(function, make))


@pytest.mark.parametrize("name", AS_INPUT)
def test_batches_of_other_lengths(name):
    """How long each row is, and how many there are, is data or a symbol."""
    fast = intarsia.compile(AS_INPUT[name], fullgraph=True, options=RAISE)
    for lengths in [(2, 3, 4), (5, 1, 6), (1, 1, 9), (3, 2), (7, 3, 2, 5), (2, 8)]:
        make = lambda lengths=lengths: (rows(*lengths),)
        torch.testing.assert_close(with_gradients(fast, make), with_gradients(AS_INPUT[name], make))
    stats = intarsia.stats()
    assert (stats.frames_eager, stats.fallbacks) == (0, 0) and stats.recompiles <= 4


@pytest.mark.parametrize("grad", [False, True])
def test_a_result_goes_with_what_it_is_made_of(grad):
    """It has the same ragged size: eager adds the two."""
    n = rows(2, 3, grad=grad)
    fast = intarsia.compile(lambda n: n * 2, fullgraph=True, options=RAISE)
    with torch.set_grad_enabled(grad):
        result = fast(n)
        assert result.shape == n.shape and result.requires_grad == grad
        torch.testing.assert_close((result + n).values(), (n * 3).values())
        torch.testing.assert_close(fast(result).values(), (n * 4).values())  # of a result, and not a leaf


def test_two_of_the_same_offsets_and_two_of_others():
    f = lambda a, b: a * b + a
    a, fast = rows(2, 3, grad=False), intarsia.compile(lambda a, b: a * b + a, fullgraph=True, options=RAISE)
    b = a.cos()
    torch.testing.assert_close(fast(a, b).values(), f(a, b).values())
    other = rows(2, 3, grad=False)
    for function in (f, fast):
        with pytest.raises((RuntimeError, UnsupportedError), match=r"ragged|[sS]hape|nested"):
            function(a, other)
    torch.testing.assert_close(fast(a, b).values(), f(a, b).values())


def test_a_write_reaches_the_tensor():
    def f(n):
        n.mul_(2)
        return n + 1

    n, other = rows(2, 3, grad=False), rows(2, 3, grad=False)
    want = f(n)
    got = intarsia.compile(f, fullgraph=True, options=RAISE)(other)
    torch.testing.assert_close((got.values(), other.values()), (want.values(), n.values()))


def test_values_share_memory():
    n = rows(2, 3, grad=False)
    values = intarsia.compile(lambda n: n.values(), fullgraph=True, options=RAISE)(n)
    assert values.data_ptr() == n.values().data_ptr()


def test_training_of_a_model():
    torch.manual_seed(0)
    start = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    found = []
    for wrap in (lambda m: m, lambda m: intarsia.compile(m, fullgraph=True, options=RAISE)):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 2)
        )
        model.load_state_dict(start.state_dict())
        optimizer, call = torch.optim.SGD(model.parameters(), lr=0.1), wrap(model)
        for step in range(4):
            optimizer.zero_grad()
            loss = call(rows(2, 3 + step, 4, grad=False)).values().square().mean()
            loss.backward()
            optimizer.step()
        found.append((loss.detach(), [p.detach() for p in model.parameters()]))
    torch.testing.assert_close(*found)
    assert (intarsia.stats().frames_eager, intarsia.stats().fallbacks) == (0, 0)


REFUSED = {
    "its ragged size": (lambda n: n * n.shape[0], "differs from row to row"),
    "its rows": (lambda n: [x + 1 for x in n.unbind()], "depends on data"),
    "attention": (lambda n: F.scaled_dot_product_attention(*[n.unflatten(-1, [2, 2]).transpose(1, 2)] * 3), "on data"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_asks_for_lengths_breaks_by_name(name):
    function, reason = REFUSED[name]
    n = rows(2, 3, grad=False)
    with pytest.raises(UnsupportedError, match=reason):
        intarsia.compile(function, fullgraph=True, options=RAISE)(n)
    got, want = intarsia.compile(function)(n), function(n)
    both = zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]
    for one, other in both:
        torch.testing.assert_close(plain(one), plain(other))


def test_nested_tensors_of_the_other_layout_are_left_to_eager():
    f = lambda a, b: torch.nested.as_nested_tensor([a, b]).to_padded_tensor(0.0) + 1
    a, b = torch.ones(2, 3), torch.ones(1, 3)
    torch.testing.assert_close(intarsia.compile(f)(a, b), f(a, b))
    with pytest.raises(UnsupportedError, match=r"nested|as_nested_tensor"):
        intarsia.compile(f, fullgraph=True, options=RAISE)(a, b)


@pytest.mark.parametrize("function", [lambda x: x.sum(1), lambda x: x.sum(-1), lambda x: x[..., 1]])
def test_a_gradient_that_eager_lacks_is_missed_where_eager_misses_it(function):
    results = [function(rows(2, 4)), intarsia.compile(function, options=RAISE)(rows(2, 4))]
    torch.testing.assert_close(*map(plain, results))
    assert intarsia.stats().frames_compiled == 1 and not intarsia.stats().fallbacks
    texts = []
    for result in results:
        with pytest.raises((RuntimeError, ValueError)) as raised:
            plain(result).sum().backward()
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


def test_a_gradient_that_gives_plain_tensors_the_ragged_size_is_refused():
    with pytest.raises(UnsupportedError, match="differs from row to row"):
        intarsia.compile(lambda x: x.mean(1), options=RAISE)(rows(2, 4))
