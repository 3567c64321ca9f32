"""Arguments are checked, and the message names the nearest known word."""

import logging

import pytest

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
