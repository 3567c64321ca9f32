"""A second process with a filled cache runs no pass and builds no kernel for graphs on a GPU either."""

import pytest

from integration.test_warm_start import check_second_process


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_a_second_process_runs_no_pass(tmp_path, train, dynamic):
    check_second_process(tmp_path, train, dynamic, INTARSIA_WARM_DEVICE="cuda")
