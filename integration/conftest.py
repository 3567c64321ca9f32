"""What tests of several files share."""

import pytest

import intarsia


@pytest.fixture
def fresh():
    """Nothing compiled before the test counts in it, and nothing of it afterwards."""
    intarsia.reset()
    yield
    intarsia.reset()
