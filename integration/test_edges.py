"""What must be right at the edges: breaks, effects, randomness, mutation, and errors that name the user's line."""

import gc
import inspect
import random
import sys
import threading
import warnings
from typing import ClassVar

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

import intarsia
from intarsia_dispatch import FallbackWarning

RAISE = {"on_error": "raise"}

pytestmark = pytest.mark.usefixtures("fresh")


def test_branch_on_the_length_of_nonzero_both_ways():
    def f(x):
        if len(torch.nonzero(x)) > 1:
            return x + 1
        return x - 1

    fast = intarsia.compile(f, options=RAISE)
    many, one = torch.ones(4), torch.tensor([0.0, 3.0, 0.0, 0.0])
    for x in (many, one, many, one):
        torch.testing.assert_close(fast(x), f(x))
    assert intarsia.stats().fallbacks == 0
    assert intarsia.stats().frames_compiled >= 2


COUNT = 0


def test_global_counter_and_random_numbers_are_fresh_each_call():
    def f(x):
        global COUNT
        COUNT += 1
        return x + torch.rand(10)

    fast = intarsia.compile(f, options=RAISE)
    start = COUNT
    x = torch.zeros(10)
    torch.manual_seed(3)
    got = [fast(x) for _ in range(4)]
    assert start + 4 == COUNT
    torch.manual_seed(3)
    want = [f(x) for _ in range(4)]
    torch.testing.assert_close(got, want)
    assert not torch.equal(got[0], got[1])
    stats = intarsia.stats()
    # once for the counter as it was, and once for any
    assert (stats.frames_compiled, stats.recompiles, stats.fallbacks) == (2, 1, 0)


def test_branch_on_a_tensor_both_signs():
    def f(x):
        if x.sum() > 0:
            return x * 2
        return x * 3

    fast = intarsia.compile(f, options=RAISE)
    for sign in (1, -1, 1, -1):
        x = sign * torch.ones(5)
        torch.testing.assert_close(fast(x), f(x))
    stats = intarsia.stats()
    assert stats.frames_compiled == 3 and stats.fallbacks == 0  # the function, and a resume function for each side


def test_print_in_the_middle_makes_two_graphs_and_keeps_the_order(capsys):
    def f(x):
        y = x + 1
        print("middle", tuple(y.shape))
        return y * 2

    fast = intarsia.compile(f, options=RAISE)
    x = torch.randn(3)
    print("before")
    torch.testing.assert_close(fast(x), (x + 1) * 2)
    print("after")
    assert capsys.readouterr().out == "before\nmiddle (3,)\nafter\n"
    assert intarsia.stats().graphs == 2


def test_argument_updated_in_place():
    def f(x, y):
        x.add_(y)
        return x * 2

    fast = intarsia.compile(f, options=RAISE)
    x, y = torch.randn(4), torch.randn(4)
    ours, eager = x.clone(), x.clone()
    torch.testing.assert_close(fast(ours, y), f(eager, y))
    torch.testing.assert_close(ours, eager)
    assert intarsia.stats().graphs == 1


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2

    def forward(self, x):
        return x * self.scale


def test_module_attribute_changes_between_calls():
    module = Scaled()
    fast = intarsia.compile(module, options=RAISE)
    x = torch.randn(3)
    for scale in (2, 5, 2):
        module.scale = scale
        torch.testing.assert_close(fast(x), x * scale)
    stats = intarsia.stats()
    assert (stats.frames_compiled, stats.recompiles, stats.fallbacks) == (2, 1, 0)


def test_fullgraph_raises_with_reason_line_and_remedy():
    def f(x):
        if x.sum() > 0:
            return x * 2
        return x * 3

    with pytest.raises(intarsia.UnsupportedError) as caught:
        intarsia.compile(f, fullgraph=True)(torch.ones(3))
    error = caught.value
    assert error.code and error.hints
    assert any(o.file == __file__ and o.function.endswith("f") for o in error.where)
    assert "test_edges.py" in str(error)


def test_training_is_compiled():
    layer = torch.nn.Linear(3, 3)
    x = torch.randn(2, 3)
    out = intarsia.compile(layer, options=RAISE)(x)
    out.square().sum().backward()
    expected = torch.autograd.grad(layer(x).square().sum(), layer.weight)[0]
    torch.testing.assert_close(layer.weight.grad, expected)
    assert intarsia.stats().fallbacks == 0 and intarsia.stats().graphs == 1


def test_exceptions_of_user_code_arrive_as_in_eager():
    class MineError(Exception):
        pass

    def f(x, flag):
        y = x + 1
        if flag:
            raise MineError("mine")
        return y

    fast = intarsia.compile(f, options=RAISE)
    x = torch.ones(3)
    torch.testing.assert_close(fast(x, False), x + 1)
    with pytest.raises(MineError, match="mine"):
        fast(x, True)


def test_errors_of_operators_arrive_as_in_eager_with_its_partial_effects():
    def f(x, index):
        x.add_(1)
        return x[index]

    fast = intarsia.compile(f, options=RAISE)
    x = torch.zeros(4)
    torch.testing.assert_close(fast(x, torch.tensor([1])), torch.ones(1))
    with pytest.raises(IndexError):
        fast(x, torch.tensor([9]))
    torch.testing.assert_close(x, torch.full((4,), 2.0))


def test_no_compiler_gives_one_warning_and_the_right_answer(monkeypatch):
    monkeypatch.setattr("intarsia_runtime.detect_target", lambda: intarsia.Target(compiler=""))
    x = torch.randn(6)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        fast = intarsia.compile(lambda t: torch.sigmoid(t) + 1)
        torch.testing.assert_close(fast(x), torch.sigmoid(x) + 1)
        torch.testing.assert_close(fast(x), torch.sigmoid(x) + 1)
    messages = [str(w.message) for w in seen if "compiler" in str(w.message)]
    assert len(messages) == 1 and "install" in messages[0]
    with pytest.raises(intarsia.UnsupportedError) as caught:
        intarsia.compile(lambda t: t + 1, options=RAISE)(x)
    assert caught.value.code == "runtime.no_compiler"


def test_written_inputs_that_overlap_are_refused_with_a_reason():
    def f(x, y):
        x.add_(1)
        return y * 2

    base = torch.arange(6.0)
    with pytest.raises(intarsia.UnsupportedError) as caught:
        intarsia.compile(f, options=RAISE)(base[1:], base[:-1])
    assert caught.value.code == "functionalize.overlap" and caught.value.hints
    ours, eager = torch.arange(6.0), torch.arange(6.0)
    with pytest.warns(Warning, match="shares memory"):
        torch.testing.assert_close(intarsia.compile(f)(ours[1:], ours[:-1]), f(eager[1:], eager[:-1]))
    torch.testing.assert_close(ours, eager)


def test_a_fault_is_counted_as_a_fallback():
    fast = intarsia.compile(lambda x, i: x[i] + 1, options=RAISE)
    with pytest.raises(IndexError):
        fast(torch.zeros(3), torch.tensor([7]))
    assert intarsia.stats().fallbacks == 1


def test_a_view_with_gaps_is_updated_twice_in_place():
    def f(x):
        x.mul_(2)
        x.mul_(2)

    base, expected = torch.arange(12.0).reshape(2, 6), torch.arange(12.0).reshape(2, 6)
    f(expected[:, 1:4])
    intarsia.compile(f, options=RAISE)(base[:, 1:4])
    torch.testing.assert_close(base, expected)
    assert intarsia.stats().fallbacks == 0


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "batch_norm", "mv"])
def test_mixed_types_are_refused_where_eager_refuses_them(name):
    functions = {
        "layer_norm": lambda x, v: torch.nn.functional.layer_norm(x, (3,), v, v),
        "group_norm": lambda x, v: torch.nn.functional.group_norm(x, 3, v, v),
        "batch_norm": lambda x, v: torch.nn.functional.batch_norm(x, v, v, v, v),
        "mv": lambda x, v: torch.mv(x, v),
    }
    x, v = torch.ones(2, 3, dtype=torch.float64), torch.ones(3)
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"dtype|datatype|scalar type"):
        intarsia.compile(functions[name], options=RAISE)(x, v)


class Seen(TorchFunctionMode):
    """Notes the names of the operations it sees."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


class Watched(torch.Tensor):
    """A tensor that notes the same."""

    names: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.names.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


def test_a_handler_makes_no_version_for_each_operation():
    def function(x):
        return torch.sin(x) + torch.cos(x) * torch.exp(x) - torch.tanh(x) / torch.abs(x) + x.square() ** 2

    x, fast = torch.ones(3), intarsia.compile(function, options=RAISE)
    expected = function(x)
    torch.testing.assert_close(fast(x), expected)
    for _ in range(2):
        with Seen() as mode:
            torch.testing.assert_close(fast(x), expected)
        assert len(mode.names) > 10
    assert intarsia.stats().fallbacks == 0


def test_a_mode_sees_the_operations_of_the_program_and_none_of_the_compiler():
    def within(x):
        with Seen() as mode:
            y = x.sin() + 1
        return y, mode.names

    x, fast, fast_within = torch.ones(3), intarsia.compile(lambda x: x.sin() + 1), intarsia.compile(within)
    for _ in range(2):
        with Seen() as mode:
            fast(x)
        assert mode.names == ["sin", "add"]
        assert fast_within(x)[1] == ["sin", "add"]


def test_a_subclass_sees_the_operations_of_the_program_and_none_of_the_compiler():
    x, fast = torch.ones(3).as_subclass(Watched), intarsia.compile(lambda x: x.sin() + 1)
    for _ in range(2):
        Watched.names.clear()
        assert type(fast(x)) is Watched
        assert Watched.names == ["sin", "add"]


def test_forward_mode_derivatives_are_those_of_eager():
    intarsia.reset()
    compiled, x = intarsia.compile(lambda x: x * x), torch.full((2,), 3.0)
    assert torch.equal(compiled(x), x * x) and intarsia.stats().graphs == 1
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(2))
        tangent = forward_ad.unpack_dual(compiled(dual)).tangent
        (event,) = intarsia.explain(lambda x: x * x)(dual).frames
    assert torch.equal(tangent, 2 * x)
    assert "forward_ad.dual_level() is active" in event.reason
    assert torch.equal(compiled(x), x * x) and (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def test_an_error_while_the_rest_is_compiled_leaves_the_blocks_around_the_break():
    lock, seen = threading.Lock(), []

    def f(x, n):
        with lock, torch.no_grad():
            try:
                print(end="")
                for _ in range(n):
                    x = x * 2
                return x
            finally:
                seen.append(n)

    fast = intarsia.compile(f, options=RAISE | {"recompile_limit": 2}, dynamic=False)
    x = torch.ones(3, requires_grad=True)
    for n in (1, 2):
        assert torch.equal(fast(x, n), f(x, n))
    seen.clear()
    with pytest.raises(intarsia.UnsupportedError, match="recompile_limit"):
        fast(x, 3)
    assert seen == [3] and not lock.locked() and torch.is_grad_enabled()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError], ids=lambda error: error.__name__)
def test_a_handler_around_the_break_sees_what_a_backend_raises_for_the_rest(error):
    def backend(gm, inputs):
        if "mul" in str(gm.graph):
            raise error("no products")
        return gm

    def f(x, names):
        x = x + 1
        with torch.no_grad():
            try:
                print(end="")
                return x * 2
            except BaseException as caught:
                names.append(type(caught).__name__)
                raise

    names = []
    with pytest.raises((error, intarsia.IntarsiaError)):
        intarsia.compile(f, backend=backend, options=RAISE)(torch.ones(3), names)
    assert len(names) == 1 and torch.is_grad_enabled()


@pytest.mark.parametrize("policy", ["eager", "raise"])
def test_a_near_recursion_limit_is_told_as_such(policy):
    def f(x):
        return x * 2 + 1

    x = torch.ones(3)
    intarsia.compile(f, options=RAISE)(x)
    depth = len(inspect.stack(0))
    before, told = sys.getrecursionlimit(), []
    for frames in range(20, 60, 4):
        intarsia.reset()
        fast = intarsia.compile(f, options={"on_error": policy})
        gc.collect()  # what is collected has finalizers of its own, which need stack
        gc.disable()
        sys.setrecursionlimit(depth + frames)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FallbackWarning)
                assert torch.equal(fast(x), f(x))
        except intarsia.UnsupportedError as error:
            told.append(error.code)
        finally:
            sys.setrecursionlimit(before)
            gc.enable()
    assert set(told) <= {"tracer.depth", "dispatch.depth", "pipeline.depth"} and bool(told) == (policy == "raise")


@pytest.mark.parametrize("n", [3, 5, 7, 33, 1000])
def test_the_spread_of_equal_numbers_is_0(n):
    """Their mean is rounded; the gradient of a standard deviation that is almost 0 would be noise."""
    fast = intarsia.compile(lambda x: (x.std(0), *torch.var_mean(x, 0)), options=RAISE)
    x = torch.randn(1, 64).expand(n, 64).clone().requires_grad_()
    std, var, _ = fast(x)
    std.sum().backward()
    assert not std.any() and not var.any() and not x.grad.any()


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_copy_of_a_part_is_addressed_from_its_own_beginning(dynamic, requires_grad):
    def f(x):
        y = x * 1
        y.as_strided((2, 2), (2, 1), 1).mul_(2)
        return y + x.clone().as_strided((3,), (1,), 1).sum()

    fast = intarsia.compile(f, dynamic=dynamic, options=RAISE)
    for offset in (0, 2, 1):
        whole, expected = (torch.arange(40.0).reshape(10, 4).requires_grad_(requires_grad) for _ in range(2))
        result, wanted = fast(whole[offset : offset + 4]), f(expected[offset : offset + 4])
        torch.testing.assert_close(result, wanted, rtol=0, atol=0)
        if requires_grad:
            result.square().sum().backward()
            wanted.square().sum().backward()
            torch.testing.assert_close(whole.grad, expected.grad)
    assert intarsia.stats().fallbacks == 0


def test_a_graph_behind_an_assertion_raises_as_in_eager():
    def f(x, i):
        assert (x >= 0).all(), "negative"
        assert i.max() < 10, "no such row"  # else the graph itself raises another error than eager
        return x[i].sum() * torch.rand(2)

    fast = intarsia.compile(f, options=RAISE)
    cases = [
        (torch.arange(3.0), [0, 1]),
        (torch.arange(3.0), [2, 9]),
        (-torch.ones(3), [0, 1]),
        (torch.ones(3), [0, 20]),
    ]
    for x, i in cases:
        outcomes = []
        for call in (f, fast):
            torch.manual_seed(1)
            try:
                found = call(x, torch.tensor(i)).tolist()
            except (IndexError, AssertionError) as error:
                found = [type(error), str(error).partition("\n")[0]]
            outcomes.append((found, torch.rand(1).item()))
        assert outcomes[0] == outcomes[1]
    assert intarsia.stats().graphs == 1


def test_a_graph_that_raises_leaves_pythons_generator_where_eager_does():
    def f(x, i):
        first = random.random()
        return x[i] * first * random.uniform(1, 2)

    fast = intarsia.compile(f, options=RAISE)
    for i in ([0, 1], [2, 9], [1, 2]):
        outcomes = []
        for call in (f, fast):
            random.seed(5)
            try:
                found = call(torch.arange(3.0), torch.tensor(i)).tolist()
            except IndexError as error:
                found = str(error)
            outcomes.append((found, random.random()))
        assert outcomes[0] == outcomes[1]
    assert intarsia.stats().graphs == 1


def long_loop(x, bound):
    try:
        for n in range(3):
            if x.sum() > bound.sum().item():
                pass
            pairs = {n: x.sort(dim=-1).values.float(), n + 1: (x, bound, divmod(n, 3)[1], pow(n, 2, 7))}
            pairs.update(a=x.view(-1, 3).masked_fill(x > 100, divmod(1, 3)[1]), b=max(n, 2), c=min(n, 2))
            pairs.update(d=x.view(-1, 3).masked_fill(x < -100, divmod(5, 3)[1]), e=max(n, 3), f=min(n, 3))
            x = x * 2
        return x + torch.ones
    except Exception as error:
        return type(error).__name__


def test_an_exception_behind_two_breaks_in_a_long_loop_is_caught():
    """Its jumps have prefixes, so that its try region begins with one."""
    inputs = torch.ones(2, 3), torch.ones(2)
    assert long_loop(*inputs) == "TypeError" == intarsia.compile(long_loop)(*inputs)
