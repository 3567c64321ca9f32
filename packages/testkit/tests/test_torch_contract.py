"""A name that torch lacks is found in the source, without importing it, and told with its line."""

import sys

import pytest

from intarsia_testkit.torch_contract import check_torch_names, missing_names, names_of_torch

SOURCE = """
import torch
import torch.nn.functional as F
from torch import fx
from torch._subclasses import FakeTensor, Gone
aten = torch.ops.aten

def f(x):
    torch._C._dispatch_keys(x), F.relu, fx._gone, aten.add.Tensor, aten._gone_op.default, torch._C._gone(x)
    return torch.float32.itemsize, x._anything, torch._C._cuda_gone, torch.gone.deeper
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "sample_of_names"
    folder.mkdir()
    (folder / "__init__.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "sample_of_names"


def test_names_are_read_from_the_source(package):
    names = names_of_torch(package)
    assert names["torch._C._dispatch_keys"] == "sample_of_names/__init__.py:9"
    assert {"torch.nn.functional.relu", "torch.ops.aten.add.Tensor", "torch._subclasses.FakeTensor"} <= set(names)
    assert package not in sys.modules


def test_missing_names_are_told_with_their_lines(package):
    optional = {"torch._C._cuda_gone": "not in every build"}
    missing = missing_names(names_of_torch(package), optional)
    assert sorted(missing) == [
        "torch._C._gone",
        "torch._subclasses.Gone",
        "torch.fx._gone",
        "torch.gone",
        "torch.gone.deeper",
        "torch.ops.aten._gone_op",
        "torch.ops.aten._gone_op.default",
    ]
    with pytest.raises(AssertionError, match=r"torch\._C\._gone  \(sample_of_names/__init__\.py:9\)"):
        check_torch_names(package, optional=optional)


def test_names_that_are_reached_through_objects_can_be_given(package):
    with pytest.raises(AssertionError, match=r"torch\.Tensor\._gone"):
        check_torch_names("json", "torch.Tensor._gone")
    check_torch_names("json", "torch.Tensor._version")
