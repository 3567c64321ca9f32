"""Arguments are checked, and the message names the nearest known word."""

import json
import logging
from dataclasses import replace

import pytest
import torch

import intarsia
import intarsia_runtime
from intarsia import InvalidArgumentError, Target
from intarsia_fuser import Priority
from intarsia_scheduler import Walked, WalkPrices
from intarsia_tuner import calibration_path


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


def test_policies_that_weigh_times_are_asked_with_what_the_schedule_costs(tmp_path, monkeypatch):
    """By the target's peaks, or the calibration in the cache unless it is switched off; `explain` says by which."""
    target = intarsia_runtime.detect_target()
    path = calibration_path(tmp_path, target)
    path.parent.mkdir()
    path.write_text(json.dumps({"walks": replace(WalkPrices.of(target), machine="mine").to_data()}))

    def told(calibration=True, **tables):
        options = {"on_error": "raise", "calibration": calibration}
        explained = intarsia.explain(lambda x: torch.exp(x) * 2, cache_dir=tmp_path, options=options, **tables)
        text = str(found := explained(torch.ones(4)))
        return found.graphs[0].plans[0].cost, text

    peaks = Walked.of(target).name
    cost, text = told(policy=Priority())  # switched off by the environment, as in all tests
    assert cost == peaks and f"us by {peaks}" in text
    monkeypatch.delenv("INTARSIA_CALIBRATION")
    cost, text = told(policy=Priority())
    assert cost == "walks(mine)" and "us by walks(mine)" in text
    assert told(calibration=False, policy=Priority())[0] == peaks
    cost, text = told()  # rules don't weigh times; what is told is by the calibration all the same
    assert cost.startswith("roofline") and "us by walks(mine)" in text
    assert told(policy=Priority(), cost=Walked.of(Target(isa="scalar")))[0] == Walked.of(Target(isa="scalar")).name
