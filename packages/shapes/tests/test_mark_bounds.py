"""A size outside of the bounds that it is marked with is refused, at either end, given alone or both."""

import pytest
import torch

from intarsia_ir.errors import InvalidArgumentError
from intarsia_shapes.marks import mark_dynamic, marks_of


@pytest.mark.parametrize(
    ("bounds", "fits"),
    [
        ({"min": 4}, True), ({"min": 5}, False), ({"max": 4}, True), ({"max": 3}, False), ({"min": 2, "max": 8}, True),
        ({"min": 5, "max": 8}, False), ({"min": 2, "max": 3}, False), ({}, True),
    ],
)  # fmt: skip
def test_a_size_fits_its_bounds(bounds, fits):
    x = torch.zeros(4, 8)
    if not fits:
        with pytest.raises(InvalidArgumentError, match="has the size 4, outside of") as caught:
            mark_dynamic(x, 0, **bounds)
        assert caught.value.code == "shapes.mark_range" and marks_of(x) == {}
        return
    mark_dynamic(x, 0, **bounds)
    assert (marks_of(x)[0].low, marks_of(x)[0].high) == (bounds.get("min"), bounds.get("max"))
