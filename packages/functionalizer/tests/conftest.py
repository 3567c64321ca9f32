"""The differential check of this package's tests, and the number of random programs."""

import pytest
import torch

from intarsia_functionalizer import functionalize, to_aten
from intarsia_functionalizer._reference import apply_signature
from intarsia_ir import aten
from intarsia_testkit.differential import clone_all, same_results


def pytest_addoption(parser):
    parser.addoption("--programs", type=int, default=400, help="random programs that test_fuzz runs")
    parser.addoption("--symbolic-programs", type=int, default=40, help="of these, with symbolic sizes")
    parser.addoption("--first-seed", type=int, default=0, help="the first of the seeds that test_fuzz goes through")


@pytest.fixture
def n_programs(request):
    return request.config.getoption("--programs", default=400)


@pytest.fixture
def n_symbolic(request):
    return request.config.getoption("--symbolic-programs", default=40)


@pytest.fixture
def first_seed(request):
    return request.config.getoption("--first-seed", default=0)


@pytest.fixture(scope="session")
def check():
    return check_functionalized


@pytest.fixture(scope="session")
def check_program():
    return check_recorded


def check_recorded(program, *inputs, **options):
    """Record a callable with the default table, functionalize it, compare with eager; return the result."""
    recorded = to_aten(program, inputs)
    before = aten.print_ir(recorded.graph_module)
    done = functionalize(recorded)
    assert aten.print_ir(recorded.graph_module) == before, "the given graph is left as it was"
    aten.verify(done.graph_module, functional=True, values=True)
    check_functionalized(lambda *args: flatten(program(*args)), done, inputs, **options)
    return done


def flatten(value):
    return torch.utils._pytree.tree_leaves(value, is_leaf=lambda leaf: leaf is None)


def check_functionalized(program, done, inputs, *, seed=0, **tolerance):
    """Compare values, dtypes, strides, written inputs and, by writing to every output, aliasing with the program."""
    expected_inputs, actual_inputs = clone_all(inputs), clone_all(inputs)
    torch.manual_seed(seed)
    expected = list(program(*expected_inputs))
    torch.manual_seed(seed)
    with torch.no_grad():
        results = aten.interpret(done.graph_module, *actual_inputs)
        actual = apply_signature(results, actual_inputs, done.signature)
    for moment in ("at return", "after writing to the outputs"):
        same_results(actual, expected, context=f"outputs {moment}", **tolerance)
        same_results(actual_inputs, expected_inputs, context=f"inputs {moment}", **tolerance)
        for position, pair in enumerate(zip(actual, expected, strict=True)):
            for tensor in pair:
                write_everywhere(tensor, position + 1)


def write_everywhere(tensor, value):
    if isinstance(tensor, torch.Tensor) and not shows_elements_twice(tensor):
        with torch.no_grad():
            tensor.fill_(value)


def shows_elements_twice(tensor):
    """Conservative: whether two elements might be one; such tensors are as aliased as they were."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return True
        reach += stride * (size - 1) if size > 1 else 0
    return False
