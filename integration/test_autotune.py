"""`mode="max-autotune"` on a CPU: right in inference and training, measured once, kept for other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import intarsia
from intarsia_tuner import Table

RAISE = {"on_error": "raise"}


def net(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.layer_norm(x * 2, (x.shape[1],), w, b)
    return torch.softmax(torch.nn.functional.gelu(y), dim=1)


def inputs(grad: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*shape, requires_grad=grad) for shape in ((128, 256), (256,), (256,))]


def rows(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "tuned").glob("*.json")
    return dict(Table.from_json(path.read_text()).rows)


def compiled(fn: Callable[..., Any], folder: Path, **keywords: Any) -> Callable[..., Any]:
    return intarsia.compile(
        fn, mode="max-autotune-no-cudagraphs", fullgraph=True, options=RAISE, cache_dir=folder, **keywords
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table that `net` made."""
    folder, x = tmp_path_factory.mktemp("tuned"), inputs()
    before = intarsia.stats()
    torch.testing.assert_close(compiled(net, folder)(*x), net(*x), rtol=1e-5, atol=1e-6)
    after = intarsia.stats()
    assert after.kernels_generated - before.kernels_generated == 1 and after.fallbacks == before.fallbacks
    return folder


def test_a_kernel_is_measured_once(measured: Path) -> None:
    (row,) = rows(measured).values()
    assert 0 < row.us <= row.policy_us and "kernel[i0: 128]" in row.text
    x, text = inputs(), {path: path.read_text() for path in (measured / "tuned").iterdir()}
    torch.testing.assert_close(compiled(lambda *a: net(*a), measured)(*x), net(*x), rtol=1e-5, atol=1e-6)
    assert {path: path.read_text() for path in (measured / "tuned").iterdir()} == text


def test_training_is_right(tmp_path: Path) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, dim=1).square().sum()

    ours, theirs = (torch.linspace(-2, 2, 4096).view(32, 128).requires_grad_() for _ in range(2))
    compiled(loss, tmp_path)(ours).backward()
    loss(theirs).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    assert len(rows(tmp_path)) >= 2


def test_sizes_that_change_are_scheduled_by_the_policy(tmp_path: Path) -> None:
    fast = compiled(net, tmp_path, dynamic=True)
    x, w, b = inputs()
    for n in (128, 64, 7):
        torch.testing.assert_close(fast(x[:n], w, b), net(x[:n], w, b), rtol=1e-5, atol=1e-6)
    assert not (tmp_path / "tuned").exists()


PROCESS = """
import logging, sys, torch, intarsia
from integration.test_autotune import inputs, net
torch.set_num_threads(int(sys.argv[2]))  # a target has so many
logging.getLogger("intarsia.tuner").setLevel(logging.INFO)
logging.getLogger("intarsia.tuner").addHandler(logging.StreamHandler(sys.stdout))
mode = "max-autotune-no-cudagraphs"
f = intarsia.compile(net, mode=mode, fullgraph=True, options={"on_error": "raise"}, cache_dir=sys.argv[1])
torch.testing.assert_close(f(*inputs()), net(*inputs()), rtol=1e-5, atol=1e-6)
print("right")
"""


def test_another_process_measures_nothing(measured: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])}
    command = [sys.executable, "-c", PROCESS, str(measured), str(torch.get_num_threads())]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_the_option_is_the_mode(measured: Path) -> None:
    x, table = inputs(), rows(measured)
    f = intarsia.explain(net, options={**RAISE, "max_autotune": True}, cache_dir=measured)
    explanation = f(*x)
    torch.testing.assert_close(explanation.result, net(*x), rtol=1e-5, atol=1e-6)
    (schedule,) = explanation.graphs[0].schedules
    assert schedule.policy.startswith("measured, tuned 1 ") and rows(measured) == table
    with pytest.raises(intarsia.InvalidArgumentError, match="max_autotune"):
        intarsia.compile(net, options={"max_autotune": "yes"})


def test_a_tuner_of_ones_own(tmp_path: Path) -> None:
    asked = []

    def tuner(kernels: Any, target: Any, policy: Any) -> Any:
        asked.append((target.device, policy.name))
        return policy

    x = inputs()
    f = intarsia.compile(net, options=RAISE, tuner=tuner)
    torch.testing.assert_close(f(*x), net(*x), rtol=1e-5, atol=1e-6)
    assert asked == [("cpu", "measured")]
