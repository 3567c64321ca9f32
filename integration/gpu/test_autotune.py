"""`mode="max-autotune"` on a GPU: right, measured once, and another process measures nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import intarsia
from intarsia_tuner import Table

MODE = "max-autotune-no-cudagraphs"
RAISE = {"on_error": "raise"}


def net(x, w, b):
    y = F.layer_norm(x * 2, (x.shape[1],), w, b)
    return torch.softmax(F.gelu(y), 1), y.sum(0)


def inputs():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator).cuda() for shape in ((4096, 768), (768,), (768,))]


def compiled(fn, folder, **given):
    return intarsia.compile(fn, mode=MODE, fullgraph=True, options=RAISE, cache_dir=folder, **given)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with the table that `net` made."""
    folder, x = tmp_path_factory.mktemp("tuned"), inputs()
    torch.testing.assert_close(compiled(net, folder)(*x), net(*x), rtol=1e-4, atol=1e-3)
    return folder


def tables(folder):
    return {path.name: path.read_text() for path in (folder / "tuned").glob("cuda-*.json")}


def test_kernels_are_measured_once(measured):
    (text,) = tables(measured).values()
    rows = Table.from_json(text).rows.values()
    assert len(rows) >= 2 and all(0 < row.us <= row.policy_us for row in rows)
    assert any("kernel[" in row.text for row in rows)
    x = inputs()
    torch.testing.assert_close(compiled(lambda *a: net(*a), measured)(*x), net(*x), rtol=1e-4, atol=1e-3)
    assert tables(measured) == {next(iter(tables(measured))): text}


PROCESS = """
import logging, sys, torch, intarsia
from integration.gpu.test_autotune import compiled, inputs, net
from pathlib import Path
torch.set_num_threads(3)  # the host's threads are nothing to a GPU
logging.getLogger("intarsia.tuner").setLevel(logging.INFO)
logging.getLogger("intarsia.tuner").addHandler(logging.StreamHandler(sys.stdout))
torch.testing.assert_close(compiled(net, Path(sys.argv[1]))(*inputs()), net(*inputs()), rtol=1e-4, atol=1e-3)
print("right")
"""


def test_another_process_measures_nothing(measured):
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, str(measured)], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_training_is_right(tmp_path):
    def loss(x):
        return torch.softmax(x * 2, dim=1).square().sum()

    ours, theirs = (torch.linspace(-2, 2, 1 << 20, device="cuda").view(1024, 1024).requires_grad_() for _ in range(2))
    compiled(loss, tmp_path)(ours).backward()
    loss(theirs).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-6)
    assert tables(tmp_path)
