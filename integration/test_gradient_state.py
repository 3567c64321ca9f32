"""What backward passes free and change, and what a write between forward and backward does."""

import pytest
import torch
from torch import nn

import intarsia

RAISE = {"on_error": "raise"}

pytestmark = pytest.mark.usefixtures("fresh")


def both(make):
    """Run what `make` gives in eager and compiled, twice; return both lists of results, errors by class."""
    found = []
    for transform in (lambda f: f, lambda f: intarsia.compile(f, options=RAISE)):
        torch.manual_seed(0)
        function, arguments = make()
        run = transform(function)
        results = []
        for _ in range(2):
            try:
                results.append(run(*arguments()))
            except RuntimeError as error:
                results.append(type(error).__name__)
        found.append(results)
    assert intarsia.stats().fallbacks == 0 and intarsia.stats().graphs > 0
    return found


def assert_same(got, expected):
    """Compare results, errors among them."""
    for ours, theirs in zip(got, expected, strict=True):
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            torch.testing.assert_close(ours, theirs)


def truncated():
    cell = nn.RNNCell(4, 3)

    def step(xs):
        hidden, loss = torch.zeros(2, 3), 0
        for number, x in enumerate(xs):
            hidden = cell(x, hidden)
            loss = loss + hidden.pow(2).sum()
            if number % 2:
                loss.backward()
                hidden, loss = hidden.detach(), 0
        gradient = cell.weight_hh.grad.clone()
        cell.zero_grad()
        return hidden, gradient

    xs = torch.randn(6, 2, 4)
    return step, lambda: (xs,)


def adversarial():
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    first, second = (torch.optim.SGD(m.parameters(), 0.1) for m in (generator, critic))

    def step(noise, x):
        fake = generator(noise)
        second.zero_grad()
        (critic(x).mean() - critic(fake.detach()).mean()).backward()
        second.step()
        first.zero_grad()
        loss = critic(fake).mean()
        loss.backward()
        first.step()
        return loss.detach(), generator.weight.detach().clone(), critic.weight.detach().clone()

    given = torch.randn(3, 4), torch.randn(3, 4)
    return step, lambda: given


def two_heads(again):
    def make():
        weight = torch.randn(4, 4, requires_grad=True)

        def step(x):
            hidden = (x @ weight).tanh()
            first, second = hidden.sum(), (hidden * hidden).sum()
            first.backward(retain_graph=again)
            second.backward()
            gradient, weight.grad = weight.grad, None
            return first.detach(), second.detach(), gradient

        x = torch.randn(3, 4)
        return step, lambda: (x,)

    return make


def gradient_then_backward():
    weight = torch.randn(4, 4, requires_grad=True)

    def step(x):
        loss = (x @ weight).tanh().sum()
        (gradient,) = torch.autograd.grad(loss, weight, retain_graph=True)
        loss.backward()
        second, weight.grad = weight.grad, None
        return gradient, second, loss.detach()

    x = torch.randn(3, 4)
    return step, lambda: (x,)


def apart():
    weight, bias = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)

    def step(x):
        shared = x + weight  # nothing is saved for the gradient of a sum
        first, second = shared.sin().sum(), (shared * bias).sum()
        first.backward()
        second.backward()
        gradients = weight.grad, bias.grad
        weight.grad = bias.grad = None
        return gradients

    x = torch.randn(4)
    return step, lambda: (x,)


@pytest.mark.parametrize(
    "make", [truncated, adversarial, two_heads(True), two_heads(False), gradient_then_backward, apart]
)
def test_several_backward_passes(make):
    expected, got = both(make)
    assert_same(got, expected)


def test_what_is_detached_inside_is_not_gone_back_to():
    weight = torch.randn(3, requires_grad=True)

    def program(b, e):
        return (b * e.detach() * weight).sum()

    run = intarsia.compile(program, options=RAISE)
    x = torch.randn(3, requires_grad=True)
    e = x.sin()
    e.sum().backward()
    run(torch.randn(3), e).backward()
    assert weight.grad is not None and intarsia.stats().fallbacks == 0


@pytest.mark.parametrize("of", ["input", "intermediate"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_view_made_without_gradients(of, alone):
    weight = torch.ones(3, 4, requires_grad=True)

    def program(x):
        source = weight if of == "input" else weight * x
        with torch.no_grad():
            row = source[1]
        return row if alone else (row, source, x + 1)

    run = intarsia.compile(program, options=RAISE)
    x = torch.ones(3, 4)
    found = [result if alone else result[0] for result in (program(x), run(x))]
    for row in found:
        assert (row.requires_grad, row.is_leaf, row.grad_fn) == (True, True, None)
        with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
            row.mul_(2)
    assert (found[1]._base is weight) == (of == "input")
    assert intarsia.stats().fallbacks == 0


FREED = {
    "a factor": lambda x: (x * 2).sum(),
    "a divisor": lambda x: (x / 2).mean(),
    "a mask": lambda x: x.relu().sum(),
    "nothing, in a sum": lambda x: x.sum(),
    "nothing, in a view": lambda x: (x[1:] + 1).sum(),
}


@pytest.mark.parametrize("name", FREED)
def test_a_second_backward_raises_where_eager_freed_something(name):
    outcomes = []
    for run in (FREED[name], intarsia.compile(FREED[name], options=RAISE)):
        x = torch.ones(3, requires_grad=True)
        loss = run(x)
        loss.backward()
        try:
            loss.backward()
            outcomes.append(x.grad)
        except RuntimeError as error:
            outcomes.append(str(error))
    assert_same(outcomes[1:], outcomes[:1])
    assert isinstance(outcomes[0], str) == (not name.startswith("nothing"))


def doubles_a_row(w):
    with torch.no_grad():
        w[0].mul_(2)
        w.t()[1].zero_()
    return (w * w).sum()


def returns_the_view(w):
    with torch.no_grad():
        row = w[0]
        row.mul_(2)
    return (w * w).sum(), row


def test_views_that_are_written_without_gradients():
    found = []
    for run in (doubles_a_row, intarsia.compile(doubles_a_row, options=RAISE)):
        w = torch.ones(2, 3, requires_grad=True)
        run(w).backward()
        found.append((w, w.grad))
    assert_same(found[1:], found[:1])
    assert intarsia.stats().frames_compiled == 1 and intarsia.stats().fallbacks == 0


def test_a_view_that_was_written_without_gradients_isnt_returned():
    with pytest.raises(intarsia.UnsupportedError, match="made and written without gradients") as raised:
        intarsia.compile(returns_the_view, options=RAISE)(torch.ones(2, 3, requires_grad=True))
    assert raised.value.code == "training.leaf"


WRITES = {
    "an input that is saved": (lambda x, k: x.sin(), lambda x, k, y: x),
    "an output that is saved": (lambda x, k: x.exp(), lambda x, k, y: y),
    "an output that is detached": (lambda x, k: x.exp(), lambda x, k, y: y.detach()),
    "a factor": (lambda x, k: x * k, lambda x, k, y: k),
    "a summand": (lambda x, k: x + k, lambda x, k, y: k),
    "a factor that the program writes": (lambda x, k: x * k.mul_(2), lambda x, k, y: k),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_between_forward_and_backward(name):
    program, written = WRITES[name]
    outcomes = []
    for run in (program, intarsia.compile(program, options=RAISE)):
        x, k = torch.ones(3, 4, requires_grad=True), torch.ones(3, 4)
        y = run(x, k)
        with torch.no_grad():
            written(x, k, y).mul_(2)
        try:
            y.sum().backward()
            outcomes.append(x.grad)
        except RuntimeError as error:
            outcomes.append(str(error)[:70])
    assert_same(outcomes[1:], outcomes[:1])


def test_a_write_inside_of_what_backward_needs():
    def program(x):
        y = x.exp()
        with torch.no_grad():
            y.add_(1)
        return y.sum()

    x = torch.ones(3, requires_grad=True)
    y = intarsia.compile(program, options=RAISE)(x)
    torch.testing.assert_close(y, program(x))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_statistics_are_written_without_being_counted():
    found = []
    for transform in (lambda f: f, lambda f: intarsia.compile(f, options=RAISE)):
        torch.manual_seed(0)
        norm, x = nn.BatchNorm1d(4), torch.randn(5, 4, requires_grad=True)
        run = transform(norm)
        norm.eval()
        first = run(x)
        norm.train()
        (first * run(x) * run(x + 1)).sum().backward()
        found.append((x.grad, norm.running_mean._version, norm.num_batches_tracked._version))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("write", ["add_", "copy_", "_foreach_add_"])
def test_writes_to_an_expanded_tensor(write):
    def program(x):
        wide = (x * 2).expand(3, 4)
        if write == "_foreach_add_":
            torch._foreach_add_([wide], 1.0)
        else:
            getattr(wide, write)(torch.ones(3, 4))
        return wide + 1

    for run in (program, intarsia.compile(program, options=RAISE)):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            run(torch.ones(4))


class Counts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, counter):
        ctx.counter = counter
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.counter.add_(1)
        return gradient * 2, None


FACTOR = 2.0


class Scales(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, counter):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * FACTOR, None


class CountsData(Counts):
    @staticmethod
    def backward(ctx, gradient):
        ctx.counter.data.add_(1)
        return gradient * 2, None


@torch.library.custom_op("intarsia_test::doubled", mutates_args=())
def doubled(x: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled.register_fake(lambda x, counter: torch.empty_like(x))
doubled.register_autograd(Counts.backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "counter", inputs[1]))


@pytest.mark.parametrize("apply", [Counts.apply, Scales.apply, torch.ops.intarsia_test.doubled])
def test_a_backward_pass_does_what_it_does_when_it_runs(apply, monkeypatch):
    def program(x, counter):
        return (apply(x * 3, counter) + 1).sum()

    found = []
    for run in (program, intarsia.compile(program, options=RAISE)):
        x, counter, seen = torch.ones(3, requires_grad=True), torch.zeros(2), []
        for _ in range(2):
            monkeypatch.setitem(globals(), "FACTOR", 2.0)
            y = run(x, counter)
            seen.append(counter.clone())
            monkeypatch.setitem(globals(), "FACTOR", 5.0)
            y.backward(retain_graph=True)
            y.backward()
            seen += [counter.clone(), x.grad.clone()]
        found.append(seen)
    torch.testing.assert_close(found[1], found[0])
    assert intarsia.stats().fallbacks == 0


def test_a_backward_pass_that_writes_unnoticed_is_refused():
    run = intarsia.compile(lambda x, counter: CountsData.apply(x, counter) + 1, options=RAISE)
    with pytest.raises(intarsia.UnsupportedError) as refused:
        run(torch.ones(3, requires_grad=True), torch.zeros(2))
    assert refused.value.code == "training.late_write"


COMPLEX = {
    "a factor": lambda y: 1j * y,
    "a divisor": lambda y: 2j / (y + 3),
    "an exponent": lambda y: torch.exp(1j * y).abs(),
    "a product in place": lambda y: (y * 1j).mul_(2j),
    "parts": lambda y: (y * 2j).imag + (y * 3j).real,
    "a transform": lambda y: torch.fft.irfft(torch.fft.rfft(y) * 2j),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_gradients_through_complex_literals(name):
    found = []
    for run in (COMPLEX[name], intarsia.compile(COMPLEX[name], options=RAISE)):
        y = torch.linspace(-1, 2, 8).requires_grad_()
        z = run(y)
        z.backward(torch.linspace(1, 2, z.numel()).to(z.dtype))
        found.append((z.detach(), y.grad))
    torch.testing.assert_close(found[1], found[0])
    assert intarsia.stats().fallbacks == 0


def checkpointed(write):
    def make():
        log, norm, outside = [], nn.BatchNorm1d(4), torch.zeros(3, 4)
        norm.steps = 0

        def inner(x):
            if write == "list":
                log.append(1)
            elif write == "attribute":
                norm.steps += 1
            elif write == "tensor":
                outside.add_(1)
            return norm(x).sin() if write == "statistics" else x.sin() * outside

        def run(x):
            return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False) * 2

        return run, lambda: (len(log), norm.steps, outside.clone(), norm.running_mean.clone())

    return make


@pytest.mark.parametrize("write", ["list", "attribute", "tensor", "statistics"])
def test_effects_of_a_checkpoint_happen_twice(write):
    found = []
    for transform in (lambda f: f, lambda f: intarsia.compile(f, options=RAISE)):
        function, state = checkpointed(write)()
        run, seen = transform(function), []
        for _ in range(2):
            x = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
            y = run(x)
            seen.append(state())
            y.sum().backward()
            seen += [state(), x.grad]
        found.append(seen)
    torch.testing.assert_close(found[1], found[0])
    assert intarsia.stats().fallbacks == 0
