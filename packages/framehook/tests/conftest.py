"""Every test runs twice: with replacements in place, and with each made a call as at the end of a stack chunk."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # framehook_helpers

import intarsia_framehook as hook
from intarsia_framehook import _hook


def codes_in(code):
    """Yield a code object and those nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


@pytest.fixture(autouse=True, params=["in place", "by call"])
def mode(request):
    """Set how replacements run, and leave nothing installed."""
    _hook.replace_by_call(request.param == "by call")
    yield request.param
    _hook.replace_by_call(False)
    for function in vars(request.module).values():  # code objects live on: forget what the test taught them
        if isinstance(function, types.FunctionType) and function.__module__ == request.module.__name__:
            for code in codes_in(function.__code__):
                hook.reset(code)
    hook.set_callback(None)
    sys.settrace(None)
    sys.setprofile(None)
