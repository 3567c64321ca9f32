"""Views of one storage that are called apart show no element twice; those that overlap are never called apart."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_recorder import are_apart
from intarsia_testkit.fired import Tally

ANSWERS = Tally("recorder: views that are apart", ["apart", "said so", "share"])

layouts = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), min_size=0, max_size=3)
views = st.tuples(layouts, st.integers(0, 12))


def view(storage, layout, offset):
    return storage.as_strided([size for size, _ in layout], [stride for _, stride in layout], offset)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(views, views)
def test_as_counting_elements_says(a, b):
    places = torch.arange(100)
    one, other = view(places, *a), view(places, *b)
    share = bool({*one.flatten().tolist()} & {*other.flatten().tolist()})
    said = are_apart(one, other)
    assert not (said and share)
    ANSWERS.count("share" if share else "apart")
    if said:
        ANSWERS.count("said so")


def test_each_answer_occurred():
    assert not ANSWERS.missing()


def test_columns_rows_and_interleaved_elements():
    x = torch.zeros(4, 6)
    assert are_apart(x[:, :2], x[:, 2:4]) and are_apart(x[:2], x[2:]) and are_apart(x.t()[:3], x.t()[3:])
    assert are_apart(x.view(-1)[::2], x.view(-1)[1::2])
    assert not are_apart(x, x) and not are_apart(x[:, :3], x[:, 2:])
