"""Programs of ours as ONNX models, through torch's exporter, in ONNX Runtime; ONNX Runtime as a backend of ours.

And back: ONNX models as graphs, as an importer makes them, under every pass.
"""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch.utils import _pytree as pytree

import intarsia
from intarsia_ir.errors import InvalidArgumentError
from intarsia_recorder import lifted_values, normalise
from intarsia_testkit.differential import clone_all
from integration.levels import plain_at, program
from integration.test_others_graphs import PASSES, flat

runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")


def session_of(module, inputs):
    """Return an inference session of a module: from tensors to the flat results."""
    exported = torch.onnx.export(module, tuple(clone_all(inputs)), dynamo=True, verbose=False)
    file = io.BytesIO()
    exported.save(file)
    session = runtime.InferenceSession(file.getvalue())
    names = [given.name for given in session.get_inputs()]

    def run(*tensors):
        results = session.run(None, {name: t.detach().numpy() for name, t in zip(names, tensors, strict=True)})
        return [torch.from_numpy(result) for result in results]

    return run


# numbers as results have no form there; torch's exporter makes one of inference of a batch norm in training, and wrong
# parts of a product that an attention reads below aten
TAKEN = [
    *[
        (level, name)
        for level in ("torch", "aten")
        for name in ("norm", "embedding", "attention", "convolution", "written")
    ],
    *[(level, name) for level in ("loops", "kernels") for name in ("norm", "embedding", "convolution", "written")],
]


@pytest.mark.peer
@pytest.mark.parametrize(("level", "name"), TAKEN)
def test_an_onnx_model_equals(level, name):
    gm, inputs = program(name)
    gm.eval()
    reference = copy.deepcopy(gm)
    run = session_of(plain_at(level, gm, inputs), inputs)
    with torch.no_grad():
        want = pytree.tree_leaves(reference(*clone_all(inputs)))
    torch.testing.assert_close(run(*clone_all(inputs)), want, rtol=1e-4, atol=1e-5)


@pytest.mark.peer
def test_a_backend_that_exports_to_onnx():
    seen = []

    def onnx(gm, inputs):
        seen.append(gm)
        return session_of(gm, inputs)

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
    fast = intarsia.compile(model, backend=onnx, fullgraph=True, options={"on_error": "raise"})
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(3, 4)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert len(seen) == 1


class Block(torch.nn.Module):
    """A convolution, a normalisation, a gate, a softmax."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv1d(3, 4, 3, padding=1)
        self.norm = torch.nn.LayerNorm(6)
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x):
        y = torch.nn.functional.silu(self.norm(self.convolution(x))) * 1
        return torch.softmax(self.linear(y + y), -1), x.sum(-1) * 2


@pytest.mark.peer
@pytest.mark.parametrize("name", PASSES)
def test_every_pass_works_on_an_imported_model(name):
    importer = pytest.importorskip("onnx2torch", reason="onnx2torch is not installed")
    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(2, 3, 6)
    imported = importer.convert(torch.onnx.export(model, (x,), dynamo=True, verbose=False).model_proto)
    with pytest.raises(InvalidArgumentError, match="made without examples"):
        normalise(imported)
    run = PASSES[name](normalise(imported, (x,)))
    with torch.no_grad():
        values = (x, *[t.detach() for t in lifted_values(imported)])
        torch.testing.assert_close(flat(run(*values)), flat(model(x)), rtol=1e-4, atol=1e-5)
