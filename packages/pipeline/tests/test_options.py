"""Arguments are checked, and the message names the nearest known word."""

import logging

import pytest
import torch

import intarsia
from intarsia import InvalidArgumentError


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"options": {"on_eror": "raise"}}, "unknown option 'on_eror'; did you mean 'on_error'"),
        ({"options": {"on_error": "rise"}}, "did you mean 'raise'"),
        ({"options": {"rng": "filox"}}, "option rng is 'filox', .* did you mean 'philox'"),
        ({"mode": "defualt"}, "did you mean 'default'"),
        ({"backend": "eagre"}, "did you mean 'eager'"),
        ({"dynamic": "yes"}, "dynamic is 'yes'"),
    ],
)
def test_a_wrong_argument_is_refused(keywords, message):
    with pytest.raises(InvalidArgumentError, match=message):
        intarsia.compile(lambda x: x, **keywords)


def test_what_is_not_callable_is_refused():
    with pytest.raises(InvalidArgumentError, match="not 3"):
        intarsia.compile(3)


def test_logs_are_set_by_name():
    intarsia.configure_logging("+graph,-frames")
    assert logging.getLogger("intarsia.graph").level == logging.DEBUG
    assert logging.getLogger("intarsia.frames").level == logging.ERROR
    logging.getLogger("intarsia.graph").setLevel(logging.NOTSET)
    logging.getLogger("intarsia.frames").setLevel(logging.NOTSET)


def test_keywords_as_callers_of_torch_compile_pass_them():
    def f(x):
        return x + 1

    module = torch.nn.Linear(2, 2)
    assert intarsia.compile(f, disable=True) is f and intarsia.compile(module, disable=True) is module
    assert intarsia.compile(disable=True)(f) is f
    fast = intarsia.compile(f, backend="auto", mode=None, options=None, dynamic=None, fullgraph=False, disable=False)
    assert fast(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("use", [intarsia.compile, intarsia.explain], ids=["compile", "explain"])
def test_a_wrong_keyword_is_told_with_the_nearest(use):
    for fn in (torch.sin, torch.nn.ReLU()):
        with pytest.raises(InvalidArgumentError, match="'fulgraph'; did you mean 'fullgraph'") as caught:
            use(fn, fulgraph=True)
        assert caught.value.code == "compile.keyword"
    with pytest.raises(InvalidArgumentError, match="there are backend, mode, fullgraph"):
        intarsia.compile(zzz=1)
