"""What tests of several files share."""

import os

import pytest
import torch

import intarsia

# a test is about passes, and some replace parts of these: no plan of another test or of an earlier run may stand in
os.environ["INTARSIA_WARM_START"] = "0"
os.environ["INTARSIA_CALIBRATION"] = "0"  # nor a calibration of this machine

# what needs a GPU is run by tools/gpu_check.py on a machine that has one
collect_ignore = [] if torch.cuda.is_available() else ["gpu"]


@pytest.fixture(autouse=True)
def settings_are_left():
    """A test that leaves a process-wide setting changed fails, before another one fails for it."""
    before = _settings()
    yield
    after = _settings()
    torch.set_num_threads(before[0])
    assert after == before, "the test left the number of threads or a variable of the environment changed"


def _settings():
    """What decisions of a compilation read of the process."""
    return torch.get_num_threads(), {name: value for name, value in os.environ.items() if name.startswith("INTARSIA_")}


@pytest.fixture
def fresh():
    """Nothing compiled before the test counts in it, and nothing of it afterwards."""
    intarsia.reset()
    yield
    intarsia.reset()
