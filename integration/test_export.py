"""What was exported runs in another process as in eager, without the tracer; what can't be exported is told why."""

from __future__ import annotations

import collections
import copy
import functools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_flatten, tree_unflatten

import intarsia
import intarsia_export
from intarsia import Dim, IntarsiaError, InvalidArgumentError, UnsupportedError
from intarsia_export.building import compile_command
from integration.export_runs import Pair

BATCH = Dim("batch", min=1, max=256)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)
        self.tied = torch.nn.Linear(8, 4)
        self.tied.weight = self.fc.weight
        self.conv_weight = torch.nn.Parameter(torch.randn(3, 1, 2, 2).to(memory_format=torch.channels_last))
        self.register_buffer("calls", torch.zeros(2))
        self.register_buffer("mask", torch.ones(8, 8).tril().t())

    def forward(self, x, scale=2.0, *, extra=None):
        self.calls += 1
        y = self.fc(x @ self.mask).relu() * scale + self.tied(x)
        return {"y": y, "more": (y.sum(), [x.shape[0] * 2, 3, None, "text"]), "x": x, "row": x[0], "calls": self.calls}


def written(x, y):
    x.mul_(2).add_(y)
    return x, x.t(), y + 1


def nested(batch, pair):
    first, second = pair
    return Pair(batch["ids"] + first, collections.OrderedDict(a=second * batch["mask"], b=batch["ids"].float().mean()))


def many(x, *rest, **named):
    return torch.stack([x, *rest]).sum(0) + named["bias"]


def two_sizes(x, y):
    return torch.softmax(x @ y, -1), x.shape[0] + y.shape[1]


def handing_on(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@handing_on
def wrapped(x, y=None, *, z=None):
    return (x + 1) * z if y is None else x + y


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(8)

    def forward(self, x):
        return F.dropout(self.bn(x), 0.5, self.training)


TABLE = torch.randn(10, 3)


def from_globals(i):
    return F.embedding(i, TABLE) + TABLE.mean()


def ids_of(n):
    return {"ids": torch.ones(n, 3, dtype=torch.int64), "mask": torch.ones(n, 3)}


def calls_of(*sizes):
    return [((torch.randn(size, 8),), {}) for size in sizes]


class Gated(torch.nn.Module):
    """One of two branches, with weights of the module and a tensor that the graph holds itself."""

    def __init__(self):
        super().__init__()
        self.yes, self.no = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)
        self.register_buffer("offset", torch.arange(4.0))

    def forward(self, x):
        scales = torch.tensor([1.0, 2.0, 3.0, 4.0])
        y = torch.cond(x.sum() > 0, lambda x: self.yes(x).relu() * scales, lambda x: self.no(x) + self.offset, (x,))
        return y * 2, x + 1


def looped(x, limit):
    start = (torch.zeros((), dtype=torch.int64), x)
    count, y = torch.while_loop(lambda i, y: i < limit, lambda i, y: (i + 1, y * 1.5 + x), start)
    return count, y.sum(0)


# name -> (what is made, its example, dynamic_shapes, further calls)
PROGRAMS = {
    "module": (Net, ((torch.randn(5, 8),), {}), {"x": {0: BATCH}}, calls_of(1, 2, 5, 256)),
    "static": (Net, ((torch.randn(1, 8),), {"scale": 3.0}), None, [((torch.randn(1, 8), 3.0), {})]),
    "written": (lambda: written, ((torch.randn(3, 3), torch.randn(3, 3)), {}), None, []),
    "nested": (
        lambda: nested,
        (({"ids": torch.arange(6).reshape(2, 3), "mask": torch.ones(2, 3)}, (torch.tensor(4), torch.randn(2, 3))), {}),
        {"batch": {"ids": {0: BATCH}, "mask": {0: BATCH}}, "pair": (None, {0: BATCH})},
        [((ids_of(n), (torch.tensor(1), torch.ones(n, 3))), {}) for n in (1, 4)],
    ),
    "many": (
        lambda: many,
        ((torch.ones(2), torch.ones(2), torch.ones(2)), {"bias": torch.randn(2)}),
        None,
        [],
    ),
    "two sizes": (
        lambda: two_sizes,
        ((torch.randn(4, 3), torch.randn(3, 4)), {}),
        ({0: BATCH}, {1: Dim("columns", min=0)}),
        [((torch.randn(a, 3), torch.randn(3, b)), {}) for a, b in ((1, 1), (1, 5), (5, 1), (7, 2), (2, 0))],
    ),
    "wrapped": (
        lambda: wrapped,
        ((torch.ones(3, 2),), {"z": torch.randn(3, 1)}),
        {"x": {0: BATCH}, "y": None, "z": {0: BATCH}},
        [((torch.ones(n, 2),), {"z": torch.randn(n, 1)}) for n in (1, 5)],
    ),
    "wrapped, in order": (
        lambda: wrapped,
        ((torch.ones(3, 2), torch.ones(3, 2)), {}),
        ({0: BATCH}, {0: BATCH}),
        [((torch.ones(n, 2), torch.ones(n, 2)), {}) for n in (1, 5)],
    ),
    "training mode": (Normed, ((torch.randn(6, 8),), {}), {"x": {0: Dim("n", min=2)}}, calls_of(4, 6)),
    "globals": (lambda: from_globals, ((torch.arange(4),), {}), {"i": {0: BATCH}}, [((torch.tensor([7]),), {})]),
    "method": (lambda: Net().eval().forward, ((torch.randn(2, 8),), {}), None, []),
    "branches": (
        Gated,
        ((torch.ones(3, 8),), {}),
        {"x": {0: BATCH}},
        [((sign * torch.ones(n, 8),), {}) for n in (1, 4) for sign in (1, -1)],
    ),
    "loop": (
        lambda: looped,
        ((torch.ones(2, 3), torch.tensor(3)), {}),
        None,
        [((torch.ones(2, 3), torch.tensor(n)), {}) for n in (0, 5)],
    ),
    "compiled": (lambda: intarsia.compile(Net()), ((torch.randn(2, 8),), {}), None, []),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Export all programs, and run them in one other process."""
    folder = tmp_path_factory.mktemp("exported")
    expected = {}
    for name, (make, example, shapes, further) in PROGRAMS.items():
        torch.manual_seed(0)
        program = make()
        artefact = intarsia.export(program, *copy.deepcopy(example), dynamic_shapes=shapes)
        artefact.save(folder / f"{name}.safetensors")
        torch.save([example, *further], folder / f"{name}.calls")
        expected[name] = []
        for args, kwargs in copy.deepcopy([example, *further]):
            torch.manual_seed(0)
            with torch.no_grad():
                expected[name].append((copy.deepcopy(program(*args, **kwargs)), args, kwargs))
    code = f"import pathlib, integration.export_runs as runs; runs.main(pathlib.Path({str(folder)!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name: (expected[name], torch.load(folder / f"{name}.results", weights_only=False)) for name in PROGRAMS}


def equal(one, other):
    """Check that two results are equal, containers, strides and shared memory within the result included."""
    (leaves, kind), (other_leaves, other_kind) = map(tree_flatten, (one, other))
    assert kind == other_kind
    for a, b in zip(leaves, other_leaves, strict=True):
        assert type(a) is type(b)
        if not isinstance(a, torch.Tensor):
            assert a == b
            continue
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
        assert not a.requires_grad
    tensors = [[x for x in some if isinstance(x, torch.Tensor)] for some in (leaves, other_leaves)]
    shared = [[a.data_ptr() == b.data_ptr() for a in some for b in some if a.numel()] for some in tensors]
    assert shared[0] == shared[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_elsewhere_as_in_eager(runs, name):
    expected, found = runs[name]
    for (result, args, kwargs), (its_result, its_args, its_kwargs) in zip(expected, found, strict=True):
        equal(its_result, result)
        equal((its_args, its_kwargs), (args, kwargs))


def test_batch_one_is_a_variant_of_its_own():
    artefact = intarsia.export(Net(), (torch.randn(5, 8),), dynamic_shapes={"x": {0: BATCH}})
    assert len(artefact.variants) == 2
    assert len(intarsia.export(Net(), (torch.randn(5, 8),)).variants) == 1


def test_an_input_may_come_back_as_itself_and_is_written_in_place():
    program = intarsia_export.program_of(intarsia.export(written, (torch.ones(2, 2), torch.ones(2, 2))))
    x = torch.ones(2, 2)
    same, view, _ = program(x, torch.ones(2, 2))
    assert same is x
    assert view.data_ptr() == x.data_ptr()
    torch.testing.assert_close(x, torch.full((2, 2), 3.0))


def test_calls_with_graphs_run_from_python_alone():
    (variant,) = intarsia.export(Gated(), (torch.ones(3, 8),)).variants
    assert (variant.plan, variant.no_plan) == ("", "a call of cond has graphs of its own")


# ---- what is refused at the export -----------------------------------------------------------------------------


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0
        self.register_buffer("state", torch.zeros(2))
        self.kept = []

    def forward(self, x, how):
        if how == "count":
            self.count += 1
        if how == "rebind":
            self.state = self.state + x
        if how == "keep":
            self.kept.append(x)
        if how == "grad":
            with torch.enable_grad():
                return torch.nn.functional.linear(x, self.weight)
        return x + self.state

    weight = torch.nn.Parameter(torch.ones(2, 2))


def line_of(text):
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if text in line)


@pytest.mark.parametrize(
    ("how", "line"),
    [("count", "self.count += 1"), ("rebind", "self.state = self.state + x"), ("keep", "self.kept.append(x)")],
)
def test_effects_are_refused_with_their_line(how, line):
    module = Counting()
    with pytest.raises(UnsupportedError) as caught:
        intarsia.export(module, (torch.ones(2), how))
    assert caught.value.code == "export.effect"
    assert caught.value.where[0].line == line_of(line)
    assert module.count == 0
    assert module.kept == []


def test_gradients_are_refused():
    with pytest.raises(UnsupportedError) as caught:
        intarsia.export(Counting(), (torch.ones(2), "grad"))
    assert caught.value.code == "export.gradient"


def broken(x):
    y = x * 2
    print("between")
    return y + 1


def branches(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def test_a_break_is_an_error_with_its_line():
    with pytest.raises(UnsupportedError) as caught:
        intarsia.export(broken, (torch.ones(2),))
    assert caught.value.where[0].line == line_of('print("between")')
    with pytest.raises(UnsupportedError) as caught:
        intarsia.export(branches, (torch.ones(2),))
    assert caught.value.where[0].line == line_of("if x.sum() > 0")


def halved(x):
    return x.reshape(x.shape[0] // 2, 2, -1) if x.shape[0] % 2 == 0 else x


def test_a_size_that_the_program_needs_more_of_is_refused_with_its_line():
    with pytest.raises(InvalidArgumentError) as caught:
        intarsia.export(halved, (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n", min=2)},))
    assert caught.value.code == "shapes.mark_violated"
    assert caught.value.where[0].line == line_of("if x.shape[0] % 2 == 0")
    assert "x.size(0) varies, and the program needs" in str(caught.value)


def test_one_size_in_two_places_needs_one_dim():
    with pytest.raises(InvalidArgumentError, match="give sizes that must be equal one Dim"):
        intarsia.export(lambda x, y: x + y, (torch.ones(4), torch.ones(4)), dynamic_shapes=({0: BATCH}, None))


@pytest.mark.parametrize(
    ("shapes", "code"),
    [
        ({"z": {0: BATCH}}, "export.dynamic_shapes"),
        ({"x": {3: BATCH}}, "export.dynamic_shapes"),
        ({"x": BATCH}, "export.dynamic_shapes"),
        ({"x": {0: 7}}, "export.dynamic_shapes"),
        ({"x": {0: Dim("n", min=6)}}, "export.dimension"),
        (({0: BATCH}, None, None, None), "export.dynamic_shapes"),
        ({"x": {0: Dim("a", max=4), 1: Dim("a", max=8)}}, "export.dimension"),
    ],
)
def test_shapes_that_do_not_fit(shapes, code):
    with pytest.raises(InvalidArgumentError) as caught:
        intarsia.export(two_sizes, (torch.randn(4, 3), torch.randn(3, 4)), dynamic_shapes=shapes)
    assert caught.value.code == code


class Opaque:
    pass


def returns_object(x, given):
    return x + 1, Opaque


@pytest.mark.parametrize(
    ("fn", "args", "code"),
    [
        (returns_object, (torch.ones(2), 1), "export.result"),
        (written, (torch.ones(2),), "export.arguments"),
        (len, (torch.ones(2),), "export.function"),
        (lambda x: 3, (torch.ones(2),), "export.nothing"),
    ],
)
def test_what_has_no_text_is_refused(fn, args, code):
    with pytest.raises(IntarsiaError) as caught:
        intarsia.export(fn, args)
    assert caught.value.code == code
    if code == "export.result":
        assert caught.value.where[0].line == line_of("def returns_object")


# ---- what is refused at the call -------------------------------------------------------------------------------


def guarded(x, pair, n=3, how="sin"):
    y = x.sin() if how == "sin" else x.cos()
    return y * n + pair[0] + pair[1]


PAIR = [torch.ones(4), torch.zeros(4)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f: f(torch.ones(300, 4), PAIR), "is 300, outside of [1, 256], the bounds of 'batch'"),
        (lambda f: f(torch.ones(3, 5), PAIR), "(None, 4)"),
        (lambda f: f(torch.ones(3, 4).double(), PAIR), "torch.float64"),
        (lambda f: f(torch.ones(4, 3).t(), PAIR), "strides"),
        (lambda f: f([1.0], PAIR), "x is a list, and it was a torch.Tensor"),
        (lambda f: f(torch.ones(3, 4), tuple(PAIR)), "pair is a tuple, and it was a list"),
        (lambda f: f(torch.ones(3, 4), PAIR, 4), "n was 3, now it is 4"),
        (lambda f: f(torch.ones(3, 4), PAIR, how="cos"), "how was 'sin', now it is 'cos'"),
        (lambda f: f(torch.ones(3, 4, requires_grad=True), PAIR), "requires_grad"),
    ],
)
def test_a_call_that_it_is_not_for_is_told_why(call, said):
    artefact = intarsia.export(guarded, (torch.ones(3, 4), PAIR), dynamic_shapes={"x": {0: BATCH}})
    with pytest.raises(InvalidArgumentError) as caught:
        call(intarsia_export.program_of(artefact))
    assert caught.value.code == "export.call"
    assert said in str(caught.value)


def test_arguments_that_fit_no_parameter_raise_as_python_does():
    program = intarsia_export.program_of(intarsia.export(guarded, (torch.ones(3, 4), PAIR)))
    with pytest.raises(TypeError, match="missing a required argument: 'pair'"):
        program(torch.ones(3, 4))
    assert str(program.__signature__) == "(x, pair, n=3, how='sin')"


def test_a_fault_of_the_program_is_raised_as_eager_raises_it():
    program = intarsia_export.program_of(intarsia.export(from_globals, (torch.arange(4),)))
    with pytest.raises(IndexError, match="index out of range"):
        program(torch.tensor([1, 2, 3, 99]))


def test_overlapping_inputs_of_which_one_is_written():
    program = intarsia_export.program_of(intarsia.export(written, (torch.ones(2, 2), torch.ones(2, 2))))
    x = torch.ones(2, 2)
    with pytest.raises(InvalidArgumentError) as caught:
        program(x, x)
    assert caught.value.code == "export.call"


# ---- programs of torch.export ----------------------------------------------------------------------------------


class Simple(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x, *, extra=None):
        self.calls += 1
        return {"y": self.fc(x) + extra["a"][0], "x": x, "k": 3}


@pytest.mark.peer
def test_an_exported_program_of_torchs():
    dim = torch.export.Dim("batch", min=1, max=256)
    shapes = {"x": {0: dim}, "extra": {"a": [{0: dim}]}}
    example = (torch.randn(5, 8),), {"extra": {"a": [torch.ones(5, 1)]}}
    model = Simple()
    exported = torch.export.export(model, *example, dynamic_shapes=shapes)
    program = intarsia_export.program_of(intarsia.export(exported))
    same = intarsia_export.program_of(intarsia.export(Simple().eval(), *example, dynamic_shapes=shapes))
    assert list(same.__signature__.parameters) == ["x", "extra"]
    for size in (5, 1, 7):
        x, extra = torch.randn(size, 8), {"a": [torch.randn(size, 1)]}
        with torch.no_grad():
            torch.testing.assert_close(program(x, extra=extra), exported.module()(x, extra=extra))
    with pytest.raises(InvalidArgumentError, match="and both are"):
        program(torch.randn(3, 8), extra={"a": [torch.ones(4, 1)]})


@pytest.mark.peer
def test_an_exported_program_with_branches():
    model = Gated()
    exported = torch.export.export(model, (torch.ones(3, 8),))
    program = intarsia_export.program_of(intarsia.export(exported))
    for x in (torch.ones(3, 8), -torch.ones(3, 8)):
        with torch.no_grad():
            equal(program(x), model(x))


# ---- without Python --------------------------------------------------------------------------------------------

# name -> shapes of its tensors, as the example in C++ takes them
WITHOUT_PYTHON = {
    "module": (["5x8"], ["1x8"], ["256x8"]),
    "static": (["1x8"],),
    "written": (["3x3", "3x3"],),
    "nested": (["i2x3", "2x3", "i", "2x3"], ["i1x3", "1x3", "i", "1x3"]),
    "many": (["2", "2", "2", "2"],),
    "two sizes": (["4x3", "3x4"], ["1x3", "3x1"], ["7x3", "3x0"]),
    "globals": (["i4"], ["i1"]),
    "method": (["2x8"],),
}


def argument(text):
    """Return what the example makes of a shape."""
    shape = [int(size) for size in text.removeprefix("i").split("x") if size]
    count = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return count if text.startswith("i") else count.float() / 8


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    source = Path(__file__).parent.parent / "packages" / "export" / "examples" / "run.cpp"
    built = tmp_path_factory.mktemp("example") / "run"
    subprocess.run(compile_command(source, built), check=True)
    return built


@pytest.mark.parametrize("name", WITHOUT_PYTHON)
def test_it_runs_from_cpp_as_in_python(example, name, tmp_path):
    make, call, shapes, _ = PROGRAMS[name]
    torch.manual_seed(0)
    artefact = intarsia.export(make(), *copy.deepcopy(call), dynamic_shapes=shapes)
    assert [variant.no_plan for variant in artefact.variants] == [""] * len(artefact.variants)
    artefact.save(tmp_path / "f")
    for words in WITHOUT_PYTHON[name]:
        command = [str(example), str(tmp_path / "f"), str(tmp_path / "out"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        leaves, spec = tree_flatten(call)
        tensors = iter(map(argument, words))
        given = [next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten(given, spec)
        results = tree_flatten(intarsia_export.load(tmp_path / "f")(*args, **kwargs))[0]
        found = (tmp_path / "out").read_bytes()
        for x in (x for x in results if isinstance(x, torch.Tensor)):
            mine, found = found[: x.nbytes], found[x.nbytes :]
            if mine:
                again = torch.frombuffer(bytearray(mine), dtype=x.dtype).reshape(x.shape)
                torch.testing.assert_close(again, x)
        assert found == b""


def test_bert_for_any_batch_and_length(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}
    model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=2, **sizes)).eval()
    dims = {0: BATCH, 1: Dim("length", min=2, max=64)}

    def call(batch, length):
        return {"input_ids": torch.randint(0, 100, (batch, length)), "attention_mask": torch.ones(batch, length).long()}

    intarsia.export(model, (), call(3, 10), dynamic_shapes={"input_ids": dims, "attention_mask": dims}).save(
        tmp_path / "bert"
    )
    program = intarsia_export.load(tmp_path / "bert")
    assert [variant.no_plan for variant in program.artefact.variants] == ["", ""]
    for batch, length in ((1, 10), (3, 10), (5, 33)):
        given = call(batch, length)
        with torch.no_grad():
            expected = model(**given)
        found = program(**given)
        assert type(found) is type(expected)
        torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state, rtol=1e-4, atol=1e-5)
