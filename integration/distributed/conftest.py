"""Processes stay for many tests, and end with the last one."""

import pytest

from integration.distributed import ranks


@pytest.fixture(scope="package", autouse=True)
def processes():
    yield
    ranks.close()
