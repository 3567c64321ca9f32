"""Nothing of the user's outlives a call that compiles, without any help of the collector."""

import contextlib
import gc
import weakref

import pytest
import torch

import intarsia
import intarsia_tensorcapture
from intarsia_dispatch import FallbackWarning


def plain(x):
    return torch.sin(x) * 2


def broken(x):
    y = x + 1
    print(end="")
    return y * 2


def branching(x):
    y = x.sum()
    return x * 2 if y > 0 else x


def raising(x):
    y = x + 1
    raise ValueError("no", y.shape)


def raising_op(x):
    return x.view(7) + 1


def catching(x):
    try:
        try:
            raise KeyError(x)
        except KeyError as error:
            raise ValueError(x + 1) from error
    except ValueError as error:
        return error.args[0]


def generating(x):
    def rows():
        for i in range(3):
            yield x * i

    return sum(rows())


def abandoning(x):
    def rows():
        yield x * 2
        yield x * 3

    return next(rows())


def keyed(x):
    table = {x: x + 1}
    return table[x]


def refused(x):
    return torch.nonzero(x).sum() + x


PROGRAMS = [plain, broken, branching, raising, raising_op, catching, generating, abandoning, keyed, refused]


def fails(gm, inputs):
    raise RuntimeError("no backend")


@pytest.fixture(autouse=True)
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.filterwarnings("ignore", category=FallbackWarning)
@pytest.mark.parametrize("options", [{}, {"on_error": "raise"}], ids=["eager", "raise"])
@pytest.mark.parametrize("backend", ["eager", "auto", fails], ids=["ladder", "auto", "failing"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_inputs_results_and_gradients(program, backend, options):
    x = torch.ones(3, requires_grad=True)
    fast, seen = intarsia.compile(program, backend=backend, options=options), [weakref.ref(x)]
    for _ in range(2):
        with contextlib.suppress(Exception):
            y = fast(x)
            y.sum().backward()
            seen += [weakref.ref(y), weakref.ref(x.grad)]
    x = y = None
    assert [ref() for ref in seen] == [None] * len(seen)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_capture_alone(program):
    x = torch.ones(3, requires_grad=True)
    seen = weakref.ref(x)
    intarsia_tensorcapture.capture(program, (x,))
    del x
    assert seen() is None


def trained():
    """Train compiled, and return weak references to all that took part."""
    module = torch.nn.Linear(3, 3)
    optimizer = torch.optim.Adam(module.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = module(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = intarsia.compile(step, backend="eager")
    for _ in range(2):
        fast(torch.ones(2, 3))
    gradients = [weakref.ref(p.grad) for p in module.parameters()]
    return [weakref.ref(module), weakref.ref(optimizer), *map(weakref.ref, module.parameters()), *gradients]


def test_modules_and_their_training():
    trained()  # what torch imports for a first optimizer leaves cycles of its own
    gc.collect()
    seen = trained()
    assert [ref() for ref in seen] == [None] * len(seen)


def test_recompilations():
    fast, seen = intarsia.compile(lambda x, k: x * k, backend="eager"), []
    for k in (1, 2.5, 3, 4.5):
        x = torch.ones(3)
        seen += [weakref.ref(x), weakref.ref(fast(x, k))]
        x = None
    assert [ref() for ref in seen] == [None] * len(seen)
