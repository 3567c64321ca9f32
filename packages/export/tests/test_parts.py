"""Dimensions, trees of results, layouts and names of weights, each alone."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from intarsia_export import Dim, strides, trees
from intarsia_export.dims import cases_of, example_of, hints_of, places_of
from intarsia_export.weights import Weights
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_shapes import marks_of

# ---- dimensions ------------------------------------------------------------------------------------------------


class Foreign:
    """A dimension of torch.export's, by its attributes."""

    __name__ = "batch"

    def __init__(self, low: int, high: Any) -> None:
        self.min, self.max = low, high


def places(spec: Any, **arguments: Any) -> Any:
    return places_of(spec, arguments)


def test_dimensions_of_torch_are_known_by_their_attributes() -> None:
    x = torch.zeros(4, 3)
    ((path, tensor, dims),) = places({"x": {0: Foreign(0, object())}}, x=x).values()
    assert (path, tensor, dims) == ("x", x, {0: Dim("batch", 1, None)})
    ((_, _, dims),) = places(({0: Foreign(2, 8), -1: 3},), x=x).values()
    assert dims == {0: Dim("batch", 2, 8)}


def test_derived_dimensions_are_refused() -> None:
    derived = Foreign(0, 8)
    derived.root = Foreign(0, 4)  # type: ignore[attr-defined]
    with pytest.raises(InvalidArgumentError, match="computed from another"):
        places({"x": {0: derived}}, x=torch.zeros(4))


@given(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 5)), st.integers(0, 6))
def test_the_cases_of_a_dimension_are_all_its_sizes_once(low: int, high: int | None, size: int) -> None:
    if high is not None and high < low:
        with pytest.raises(InvalidArgumentError):
            Dim("n", low, high)
        return
    dim = Dim("n", low, high)
    found = cases_of(places({"x": {0: dim}}, x=torch.zeros(max(low, 1) if high is None or high >= 1 else 0)))
    covers = [case for case in found if case[dim] == size or (case[dim] is None and size >= max(low, 2))]
    inside = low <= size and (high is None or size <= high)
    assert len(covers) == inside or (not inside and high is not None and size > high)


def test_different_dimensions_have_different_examples() -> None:
    a, b = Dim("a"), Dim("b", min=3, max=4)
    found = places({"x": {0: a, 1: b}}, x=torch.zeros(4, 4))
    case = cases_of(found)[0]
    hints = hints_of(case, found)
    assert hints[a] != hints[b]
    assert 3 <= hints[b] <= 4


def test_an_example_keeps_its_layout_and_its_values() -> None:
    dim = Dim("n")
    x = torch.arange(6.0).reshape(2, 3).t()
    made = example_of(x, {1: dim}, {dim: None}, {dim: 2})
    assert (made.stride(), made.data_ptr() == x.data_ptr()) == (x.stride(), False)
    assert marks_of(made)[1].low == 2
    assert not marks_of(x)
    one = example_of(x, {1: dim}, {dim: 1}, {dim: 1})
    torch.testing.assert_close(one, x[:, :1])
    torch.testing.assert_close(example_of(x, {1: dim}, {dim: None}, {dim: 3}), x[:, [0, 1, 0]])


def test_too_many_cases_are_refused() -> None:
    dims = {k: Dim(f"d{k}") for k in range(5)}
    with pytest.raises(InvalidArgumentError, match="32 programs"):
        cases_of(places({"x": dims}, x=torch.zeros(2, 2, 2, 2, 2)))


# ---- trees -----------------------------------------------------------------------------------------------------


class Named(NamedTuple):
    a: Any
    b: Any


def leaf(value: Any, path: str) -> trees.Node:
    return {"value": repr(value)}


VALUES = st.recursive(
    st.integers(0, 9),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", 3]), inner, max_size=3),
        st.builds(Named, inner, inner),
        st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2).map(collections.OrderedDict),
    ),
    max_leaves=8,
)


@given(VALUES)
def test_a_tree_builds_what_it_was_made_of(value: Any) -> None:
    node = trees.tree_of(value, leaf)
    again = trees.resolved(node)(lambda found: int(found["value"]))
    assert again == value
    assert trees.tree_of(again, leaf) == node


def test_a_class_that_is_not_loaded() -> None:
    node = {"class": "no.module:Thing", "context": ["a", "b"], "items": [{"value": "1"}, {"value": "2"}]}
    with pytest.raises(InvalidArgumentError) as caught:
        trees.resolved(node)
    assert caught.value.code == "export.class"
    assert "import no.module first" in str(caught.value)
    assert trees.resolved(node, plain=True)(lambda found: found["value"]) == {"a": "1", "b": "2"}


def test_a_key_without_text() -> None:
    with pytest.raises(UnsupportedError) as caught:
        trees.tree_of({(1, 2): 3}, leaf)
    assert caught.value.code == "export.result"


# ---- weights ---------------------------------------------------------------------------------------------------

LAYOUTS = [
    torch.arange(24.0).reshape(2, 3, 4),
    torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
    torch.arange(24.0).reshape(4, 6)[:, ::2],
    torch.arange(24.0)[3:7],
    torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    torch.tensor(3.0),
    torch.zeros(0, 3),
    torch.ones(1, 4).t(),
]


@pytest.mark.parametrize("tensor", LAYOUTS)
def test_a_layout_comes_back(tensor: torch.Tensor) -> None:
    elements, layout = strides.dense(tensor)
    assert elements.is_contiguous()
    assert elements.untyped_storage().nbytes() == elements.nbytes
    again = strides.strided(elements, layout)
    torch.testing.assert_close(again, tensor)
    assert again.stride() == tensor.stride()


def test_a_weight_has_one_name() -> None:
    module = torch.nn.Linear(2, 2)
    weights = Weights(module)
    assert [weights.name(t, "t") for t in (module.weight, module.bias, module.weight)] == ["weight", "bias", "weight"]
    others = [torch.zeros(1), torch.zeros(1)]
    assert [weights.name(t, "weight") for t in others] == ["weight_0", "weight_1"]


ODD = [torch.zeros(2).to_sparse(), torch.zeros(1).expand(3), torch.ones(2, dtype=torch.cfloat).conj()]


@pytest.mark.parametrize("tensor", ODD)
def test_a_weight_whose_elements_cannot_be_written(tensor: torch.Tensor) -> None:
    with pytest.raises(UnsupportedError) as caught:
        Weights().name(tensor, "w")
    assert caught.value.code == "export.weight"
