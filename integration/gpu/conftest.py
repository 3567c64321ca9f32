"""These tests need an NVIDIA GPU, some two: without, they are not collected, and the end of the run says so."""

import pytest
import torch

import intarsia

TWO = "test_two_devices.py"
if not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]
elif torch.cuda.device_count() < 2:
    collect_ignore = [TWO]


def pytest_terminal_summary(terminalreporter):
    if not torch.cuda.is_available():
        terminalreporter.write_line("integration/gpu: not collected: needs a GPU (tools/gpu_check.py --part 7 there)")
    elif torch.cuda.device_count() < 2:
        terminalreporter.write_line(f"integration/gpu: {TWO} not collected: needs two GPUs")


@pytest.fixture(autouse=True)
def fresh():
    """Nothing compiled before a test counts in it, and nothing of it afterwards."""
    intarsia.reset()
    yield
    intarsia.reset()
