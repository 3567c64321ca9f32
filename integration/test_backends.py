"""Backends written for torch.compile, under our tracer: what they are given, and those that torch has built in."""

import sys
import textwrap
import types
from pathlib import Path

import pytest
import torch

import intarsia
from intarsia import InvalidArgumentError

sys.path.insert(0, str(Path(__file__).parent / "torch_backends"))
STRICT = {"options": {"on_error": "raise"}, "fullgraph": True}


@pytest.fixture(autouse=True)
def _fresh():
    intarsia.reset()
    limit = sys.getrecursionlimit()
    yield
    torch._dynamo.reset()
    sys.setrecursionlimit(limit)  # one of torch's compilers doubles it


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.register = torch.nn.Linear(4, 4), self.register_buffer("scale", torch.tensor(3.0))

    def forward(self, x):
        return torch.tanh(self.linear(x)) * self.scale, x.sum(-1)


def noting(seen, **attributes):
    def backend(gm, inputs):
        seen.append(list(inputs))
        return gm.forward

    backend.__dict__.update(attributes)
    return backend


@pytest.mark.peer
def test_a_backend_is_given_the_tensors_of_the_call_as_by_torch_compile():
    model, x = Model(), torch.randn(2, 4)
    seen: list = []
    intarsia.compile(model, backend=noting(seen), **STRICT)(x)
    torch.compile(model, backend=noting(seen), fullgraph=True)(x)
    ours, theirs = ({id(t) for t in inputs} for inputs in seen)
    assert ours == theirs == {id(t) for t in (x, model.scale, *model.parameters())}
    assert sum(type(t) is torch.nn.Parameter for t in seen[0]) == 2


def test_one_that_asks_for_fakes_gets_them_with_symbols():
    seen: list = []
    fast = intarsia.compile(lambda x: x * 2, backend=noting(seen, takes_fakes=True), dynamic=True, **STRICT)
    fast(torch.randn(2, 4))
    ((x,),) = seen
    assert type(x).__name__ == "FakeTensor" and not isinstance(x.shape[0], int)


def test_open_numbers_are_tensors_of_their_value():
    seen: list = []
    fast = intarsia.compile(lambda x, f: x * f, backend=noting(seen), dynamic=True, **STRICT)
    torch.testing.assert_close(fast(torch.ones(3), 2.5), torch.full((3,), 2.5))
    torch.testing.assert_close(fast(torch.ones(3), 3.5), torch.full((3,), 3.5))
    assert [float(t) for t in seen[0] if t.dim() == 0] == [2.5] and len(seen) == 1


def check_training_and_inference(backend):
    model, x = Model(), torch.randn(2, 4)
    fast = intarsia.compile(model, backend=backend, **STRICT)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
    grads = []
    for function in (model, fast):
        model.zero_grad()
        y, z = function(x)
        (y.square().sum() + z.sum()).backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(grads[1], grads[0])


def test_a_name_that_nobody_registered_is_told_where_torchs_are():
    with pytest.raises(InvalidArgumentError, match=r"backend is 'inductorr', .*\n.*hint: .*integration/torch_backends"):
        intarsia.compile(torch.sin, backend="inductorr")


@pytest.mark.peer
@pytest.mark.parametrize("name", ["inductor", "aot_eager", "aot_eager_decomp_partition", "cudagraphs"])
def test_backends_that_torch_has_built_in_work_by_name(name):
    import intarsia_torch_backends

    assert name in intarsia.list_backends() or name in intarsia_torch_backends.register()
    check_training_and_inference(name)


@pytest.mark.peer
@pytest.mark.parametrize("name", ["inductor", "aot_eager"])
def test_they_take_sizes_that_change(name):
    import intarsia_torch_backends

    intarsia_torch_backends.register()
    fast = intarsia.compile(lambda x: torch.softmax(x * 2, -1).sum(0), backend=name, **STRICT)
    for n in (3, 4, 5, 9):
        x = torch.randn(n, 6)
        torch.testing.assert_close(fast(x), torch.softmax(x * 2, -1).sum(0))


@pytest.mark.peer
def test_a_trace_is_a_backend():
    check_training_and_inference(lambda gm, inputs: torch.jit.trace(gm, tuple(inputs), check_trace=False))


@pytest.mark.parametrize("group", ["intarsia_backends", "torch_dynamo_backends"])
def test_an_installed_backend_is_found_by_its_entry_point(group, tmp_path, monkeypatch):
    info = tmp_path / "somebody-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        textwrap.dedent(f"""\
        [{group}]
        somebodys_{group} = somebodys_module_{group}:backend
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list = []
    module = types.ModuleType(f"somebodys_module_{group}")
    module.backend = noting(seen)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert f"somebodys_{group}" in intarsia.list_backends()
    x = torch.randn(3)
    torch.testing.assert_close(intarsia.compile(torch.sin, backend=f"somebodys_{group}")(x), x.sin())
    with pytest.raises(InvalidArgumentError, match="somebodys_"):
        intarsia.compile(torch.sin, backend="somebodies")
