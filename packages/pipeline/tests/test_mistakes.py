"""Mistakes of a user's pass, backend or argument: each is told, by name, and none gives a wrong answer in silence."""

import tempfile
import traceback
import warnings
from dataclasses import replace

import pytest
import torch
import torch.fx as fx

import intarsia
import intarsia_runtime
from intarsia import InvalidArgumentError, Stage, UnsupportedError
from intarsia.levels import Half, Linked, Loops
from intarsia_dispatch import FallbackWarning
from intarsia_ir.errors import InternalError, VerifyError

RAISE = {"on_error": "raise"}
P = intarsia.default_pipeline()


@pytest.fixture(autouse=True)
def _fresh():
    intarsia.reset()
    with torch.no_grad():
        yield


def f(x):
    return x.relu() + 1


def x():
    return torch.tensor([-1.0, 2.0, 3.0])


def editing(target):
    """Return a pipeline in which a user's pass calls `target` instead of ReLU."""

    def mine(gm):
        graph = fx.Graph()
        graph.output(graph.graph_copy(gm.graph, {}))
        for node in graph.nodes:
            if node.target is torch.ops.aten.relu.default:
                node.target = target
        return fx.GraphModule(gm, graph)

    return P.after("functionalize", mine)


# ---- passes


@pytest.mark.parametrize("at", ["drop_full_masks", "to_aten", "functionalize", "partition"])
def test_a_stage_that_changes_its_input_is_named(at):
    def in_place(gm):
        for node in gm.graph.nodes:
            if node.op in ("call_function", "call_method"):
                node.args = (*node.args,) if "relu" not in str(node.target) else (node.args[0],)
                node.name += "_mine"
        return gm

    with pytest.raises(InvalidArgumentError, match="the graph that was given was changed") as caught:
        intarsia.compile(f, pipeline=P.after(at, in_place), options=RAISE)(x())
    assert (caught.value.code, caught.value.stage) == ("pipeline.impure", "in_place")


def test_under_verify_each_a_stage_of_ours_is_named_too():
    def impure(value, fuel=None):
        made = lower.run(value, fuel=fuel)
        next(iter(value.graph_module.graph.nodes)).name = "renamed"
        return made

    lower = P.stages[P.index("lower")]
    pipeline = P.replace("lower", replace(lower, run=impure))
    intarsia.compile(f, pipeline=pipeline, options=RAISE)(x())
    with pytest.raises(InternalError, match="was changed") as caught:
        intarsia.compile(f, pipeline=pipeline, options={**RAISE, "verify_each": True})(x())
    assert caught.value.stage == "lower"


@pytest.mark.parametrize(
    ("target", "rule"),
    [(torch.ops.aten.sum.default, "A12"), (torch.ops.aten.relu_.default, "A11"), (torch.ops.aten.det.default, "A12")],
    ids=["other shape", "writes", "raises"],
)
def test_what_a_users_pass_gives_is_verified_without_asking(target, rule):
    given = x()
    with pytest.raises(VerifyError, match=rule) as caught:
        intarsia.compile(f, pipeline=editing(target), options=RAISE)(given)
    assert caught.value.stage == "mine" and "in stage 'mine'" in str(caught.value)
    with pytest.warns(FallbackWarning, match="in stage 'mine'"):
        assert intarsia.compile(f, pipeline=editing(target))(given).tolist() == [1, 3, 4]
    assert given.tolist() == [-1, 2, 3]


def returns_none(gm):
    return None


def divides(gm):
    return 1 / 0


def test_a_pass_that_returns_nothing_is_named():
    with pytest.raises(InvalidArgumentError, match="not None") as caught:
        intarsia.compile(f, pipeline=P.after("functionalize", returns_none), options=RAISE)(x())
    assert caught.value.stage == "returns_none"


def test_the_error_of_a_pass_keeps_its_class_and_the_pass_is_named():
    with pytest.raises(ZeroDivisionError, match=r"^division by zero") as caught:
        intarsia.compile(f, pipeline=P.after("functionalize", divides), options=RAISE)(x())
    assert "divides" in caught.value.__notes__[0]
    with pytest.warns(FallbackWarning, match="ZeroDivisionError in divides while compiling f: division by zero"):
        assert intarsia.compile(f, pipeline=P.after("functionalize", divides))(x()).tolist() == [1, 3, 4]


def test_a_stage_of_ours_that_fails_is_our_fault():
    broken = Stage("lower", Half, Loops, lambda p: 1 / 0, trusted=True)
    with pytest.raises(InternalError, match="in stage 'lower'"):
        intarsia.compile(f, pipeline=P.replace("lower", broken), options=RAISE)(x())


def ending_in(run):
    """Return a pipeline whose callable is `run`."""
    aten = P.until(Half).stages
    return intarsia.Pipeline((*aten, Stage("mine", Half, Linked, lambda p: Linked(run, p.signature))))


def test_a_graph_that_faults_where_the_program_does_not_is_told():
    def run(x):
        raise ArithmeticError("all wrong")

    with pytest.raises(InternalError, match="all wrong") as caught:
        intarsia.compile(f, pipeline=ending_in(run), options=RAISE)(x())
    assert caught.value.code == "dispatch.fault" and "verify_each" in str(caught.value)
    intarsia.reset()
    fast = intarsia.compile(f, pipeline=ending_in(run))
    with pytest.warns(FallbackWarning, match="all wrong") as seen:
        assert [fast(x()).tolist(), fast(x()).tolist()] == [[1, 3, 4]] * 2
    assert len(seen) == 1 and intarsia.stats().fallbacks == 2


def test_a_fault_that_the_program_catches_itself_is_no_fault_of_the_compiler():
    def look_up(w, i):
        try:
            return w[i] * 2
        except IndexError:
            return w * 0

    fast = intarsia.compile(look_up, options=RAISE)
    assert fast(torch.ones(3), torch.tensor([1])).tolist() == [2]
    assert fast(torch.ones(3), torch.tensor([7])).tolist() == [0, 0, 0]


@pytest.mark.parametrize("rung", ["aten", "loops", "kernels", "cpp"])
def test_the_ladder_runs_a_users_pipeline(rung):
    seen = []
    pipeline = P.after("functionalize", lambda gm: seen.append(1) or gm)
    torch.testing.assert_close(intarsia.compile(f, backend=rung, pipeline=pipeline, options=RAISE)(x()), f(x()))
    assert seen and intarsia.stats().kernels_generated == (rung == "cpp")


# ---- backends


def divides_too(gm, inputs):
    return 1 / 0


def test_the_mistakes_of_a_backend_are_told():
    cases = {
        "not a function": lambda gm, inputs: None,
        "returned 2 results; the graph has 1": lambda gm, inputs: lambda x: (x, x),
        "an object of": lambda gm, inputs: lambda x: x.sum().item(),
    }
    for text, backend in cases.items():
        with pytest.raises(InvalidArgumentError, match=text):
            intarsia.compile(f, backend=backend, options=RAISE)(x())
    with pytest.warns(FallbackWarning, match="not a function"):
        assert intarsia.compile(f, backend=cases["not a function"])(x()).tolist() == [1, 3, 4]


# ---- whose error, and whether it is one: fullgraph x on_error x what fails


class StopCompilation(RuntimeError):
    """An error of a backend's own."""


def stops(gm, inputs):
    raise StopCompilation("no")


def interrupts(gm, inputs):
    raise KeyboardInterrupt


POLICIES = [{"fullgraph": g, "options": {"on_error": e}} for g in (False, True) for e in ("eager", "raise")]


@pytest.fixture(params=POLICIES, ids=lambda p: f"fullgraph={p['fullgraph']}, {p['options']['on_error']}")
def policy(request):
    return request.param


def is_strict(policy):
    return policy["fullgraph"] or policy["options"]["on_error"] == "raise"


def test_the_error_of_a_backend_keeps_its_class_and_the_backend_is_named(policy):
    for backend, kind in ((divides_too, ZeroDivisionError), (stops, StopCompilation)):
        if not is_strict(policy):
            with pytest.warns(FallbackWarning, match=f"{kind.__name__} in backend {backend.__name__}"):
                assert intarsia.compile(f, backend=backend, **policy)(x()).tolist() == [1, 3, 4]
            continue
        with pytest.raises(kind) as caught:
            intarsia.compile(f, backend=backend, **policy)(x())
        assert type(caught.value) is kind and f"backend {backend.__name__}" in caught.value.__notes__[0]


def test_an_interrupt_is_no_failure(policy):
    fast = intarsia.compile(f, backend=interrupts, **policy)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fast(x())


def test_a_failing_pass_or_compiler_is_answered_by_the_policy(policy, monkeypatch):
    broken = intarsia.default_pipeline(replace(intarsia_runtime.detect_target(), compiler="false"))
    cases = [
        (broken, InternalError, "runtime.compiler_failed"),
        (P.after("functionalize", divides), ZeroDivisionError, ""),
    ]
    monkeypatch.setattr(intarsia._stages, "default_cache_dir", lambda: tempfile.mkdtemp())
    for pipeline, kind, text in cases:
        fast = intarsia.compile(f, pipeline=pipeline, **policy)
        if is_strict(policy):
            with pytest.raises(kind, match=text):
                fast(x())
        else:
            with pytest.warns(FallbackWarning, match=text):
                assert fast(x()).tolist() == [1, 3, 4]


def test_without_a_compiler_the_policy_decides(policy, monkeypatch):
    nothing = replace(intarsia_runtime.detect_target(), compiler="")
    monkeypatch.setattr(intarsia_runtime, "detect_target", lambda *device: nothing)
    intarsia._backends._warn_once.cache_clear()
    fast = intarsia.compile(f, **policy)
    if is_strict(policy):
        with pytest.raises(UnsupportedError, match="no C\\+\\+ compiler") as caught:
            fast(x())
        assert caught.value.code == "runtime.no_compiler"
    else:
        with pytest.warns(RuntimeWarning, match="no C\\+\\+ compiler"):
            assert fast(x()).tolist() == [1, 3, 4]


def multiplies(a, b):
    a = a + 1
    return (a @ b).relu()


def picks(a, i):
    return a[i] * 2


def raises(a, b):
    if a.shape[0] == 2:
        raise LookupError("two rows")
    return a + b


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (multiplies, (torch.ones(2, 3), torch.ones(2, 3))),
        (picks, (torch.ones(3), torch.tensor([5]))),
        (raises, (torch.ones(2), torch.ones(2))),
    ],
)
def test_an_error_of_the_program_is_eagers_under_every_policy(policy, program, arguments):
    with pytest.raises(Exception) as expected:
        program(*arguments)
    fast = intarsia.compile(program, **policy)
    for _ in range(2):
        with pytest.raises(type(expected.value)) as caught:
            fast(*arguments)
        assert type(caught.value) is type(expected.value) and str(caught.value) == str(expected.value)
        lines = [(frame.name, frame.lineno) for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert lines[-1] == [(f.name, f.lineno) for f in traceback.extract_tb(expected.value.__traceback__)][-1]


# ---- arguments


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"pipeline": [1]}, r"pipeline must be Pipeline or None, not \[1\]"),
        ({"pipeline": P.until(Half)}, "must lead from Captured to Linked"),
        ({"pipeline": P, "backend": lambda gm, inputs: gm}, "a pipeline has no effect"),
        ({"options": ["a"]}, "options must be Mapping or None"),
        ({"options": {"verify_each": "no"}}, "verify_each is 'no', not one of True, False"),
        ({"options": {"verify_each": 1}}, "verify_each is 1"),
        ({"options": {"dump_dir": 3}}, "dump_dir must be str or PathLike or None"),
        ({"options": {"dump_dir": "/proc/nope"}}, "dump_dir can't be used"),
        ({"fullgraph": "yes"}, "fullgraph is 'yes'"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(keywords, message):
    with pytest.raises(InvalidArgumentError, match=message):
        intarsia.compile(f, **keywords)
    with pytest.raises(InvalidArgumentError, match=message):
        intarsia.explain(f, **keywords)


def test_a_topic_of_logs_that_is_none_is_told():
    with pytest.warns(UserWarning, match="'frmes'; did you mean 'frames'"):
        intarsia.configure_logging("-frmes")


# ---- what runs in eager


def test_explain_tells_why_a_frame_runs_in_eager():
    def generate(x):
        yield x + 1

    for function, argument, reason in (
        (generate, x(), "generator function"),
        (lambda x: eval("x * 2"), torch.ones(2, 3), "its own frame"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            explanation = intarsia.explain(function)(argument)
        assert explanation.eager and any(reason in e.reason for e in explanation.eager)
        assert f"{len(explanation.eager)} frame(s) in eager" in str(explanation)
        assert "runs in eager" in str(explanation) and "test_mistakes.py" in str(explanation)


def test_a_function_of_which_nothing_can_be_captured_is_told_or_raises():
    def looking(x):
        return eval("x * 2")

    with pytest.warns(FallbackWarning, match="nothing could be captured"):
        assert intarsia.compile(looking)(torch.ones(2, 3)).sum() == 12
    with pytest.raises(UnsupportedError, match="nothing could be captured"):
        intarsia.compile(looking, options=RAISE)(torch.ones(2, 3))


def test_without_a_compiler_graphs_are_counted_and_explained(monkeypatch):
    target = intarsia.Target(compiler="")
    monkeypatch.setattr("intarsia_runtime.detect_target", lambda *device: target)
    with pytest.warns(RuntimeWarning, match="no C\\+\\+ compiler") as seen:
        explanation = intarsia.explain(f)(x())
    assert seen[0].filename == __file__
    assert explanation.stats.fallbacks == 1 and "no C++ compiler" in explanation.graphs[0].note
    assert "no C++ compiler" in str(explanation)
    with pytest.raises(UnsupportedError, match="no C\\+\\+ compiler"):
        intarsia.compile(f, options=RAISE)(x())


def test_the_warning_about_a_layer_of_torch_points_to_its_call():
    layer = torch.nn.Linear(3, 3)
    bad = P.after("functionalize", divides)
    with pytest.warns(FallbackWarning, match="ZeroDivisionError") as seen:
        intarsia.compile(layer, pipeline=bad)(x())
    assert seen[0].filename == __file__


def test_an_explanation_has_a_heading_for_each_frame(capsys):
    def broken(x):
        y = x.relu() * 2
        print("mid")
        return y + 1

    text = str(intarsia.explain(broken)(x()))
    assert text.count("\nframe ") == 2 and text.count("guard grad_mode: False") == 2
    assert "guard tensor: x = f32[3] on cpu, strides (1,)" in text and "guard constant: stack_0 = None" in text
    assert "(relu, mul)" in text and "graph 1: 1 kernels (1 distinct)" in text


def test_backends_and_stages_are_checked_when_they_are_given():
    for name, backend in (("uncallable", 3), (3, print), ("cpp", print)):
        with pytest.raises(intarsia.InvalidArgumentError):
            intarsia.register_backend(name, backend)
    assert "uncallable" not in intarsia.list_backends()
    with pytest.raises(intarsia.InvalidArgumentError, match="a Stage or a pass, not 3"):
        intarsia.default_pipeline().after("fuse", 3)


def test_decorators_of_methods_in_either_order():
    class Scaled:
        k = 3

        @intarsia.compile
        @staticmethod
        def plus(x):
            return x + 1

        @intarsia.compile
        @classmethod
        def times(cls, x):
            return x * cls.k

    x = torch.ones(2)
    for owner in (Scaled, Scaled()):
        assert torch.equal(owner.plus(x), x + 1) and torch.equal(owner.times(x), x * 3)


def test_the_recompile_limit_is_an_option():
    fast = intarsia.compile(lambda x, n: x * n, dynamic=False, backend="eager", options={"recompile_limit": 2})
    x = torch.ones(2)
    with pytest.warns(FallbackWarning, match=r"compiled 2 times(.|\n)*in an earlier one: .* n was 0, now it is 2"):
        for n in range(3):
            assert torch.equal(fast(x, n), x * n)
    for wrong in ("many", True):
        with pytest.raises(intarsia.InvalidArgumentError, match="recompile_limit must be int"):
            intarsia.compile(torch.relu, options={"recompile_limit": wrong})


def test_modes_are_names_for_options_which_go_before_them(recwarn):
    compiled = intarsia.compile(torch.sin, mode="reduce-overhead", options={"on_error": "raise"})
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin())
    intarsia.compile(torch.sin, mode="reduce-overhead", options={"cuda_graphs": False})
    assert not recwarn
    with pytest.raises(intarsia.InvalidArgumentError, match=r"cuda_graphs is .yes., not one of True, False"):
        intarsia.compile(torch.sin, options={"cuda_graphs": "yes"})


FAKES = {
    "type": lambda x: x.to(torch.float64),
    "size": lambda x: x.new_empty(x.shape[0] + 1),
}


@pytest.mark.parametrize("what", FAKES)
def test_an_operator_whose_fake_predicts_another_result_is_named(what):
    with torch.library._scoped_library("mistakes", "FRAGMENT") as library:
        for name, fake in ((f"right_{what}", torch.empty_like), (f"wrong_{what}", FAKES[what])):
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, lambda x: x * 2, "CPU")
            torch.library.register_fake(f"mistakes::{name}", fake, lib=library)
        right, wrong = (getattr(torch.ops.mistakes, f"{name}_{what}") for name in ("right", "wrong"))

        def g(x):
            return right(wrong(x)) + 1

        with pytest.raises(UnsupportedError, match=rf"mistakes.wrong_{what} gave .* where its fake says") as told:
            intarsia.compile(g, options=RAISE)(x())
        assert told.value.code == "runtime.operator_fake" and "register_fake" in told.value.hints[0]
        intarsia.reset()
        with pytest.warns(FallbackWarning, match=f"mistakes.wrong_{what}"):
            assert torch.equal(intarsia.compile(g)(x()), g(x()))
