"""What tests of several files share."""

import os

import pytest
import torch

import intarsia

# a test is about passes, and some replace parts of these: no plan of another test or of an earlier run may stand in
os.environ["INTARSIA_WARM_START"] = "0"

# what needs a GPU is run by tools/gpu_check.py on a machine that has one
collect_ignore = [] if torch.cuda.is_available() else ["gpu"]


@pytest.fixture
def fresh():
    """Nothing compiled before the test counts in it, and nothing of it afterwards."""
    intarsia.reset()
    yield
    intarsia.reset()
