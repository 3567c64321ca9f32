"""Modules with hooks are compiled as one call; each module has code of its own, which may have a sequel."""

import pytest

import intarsia_framehook as framehook
from intarsia_dispatch.hooked_calls import call_of, call_then, has_hooks, is_call, unwrapped


class Model:
    """What matters of `nn.Module`."""

    def __init__(self, **hooks):
        self._forward_hooks = hooks
        self._forward_pre_hooks = {}

    def __call__(self, x, *, scale=1):
        return self.forward(x) * scale

    def forward(self, x):
        return x + 1


def test_only_objects_with_hooks_are_called_as_a_whole():
    assert has_hooks(Model(a=print))
    assert not has_hooks(Model()) and not has_hooks(print) and not has_hooks(lambda: None)


def test_calls_have_code_of_their_own():
    first, second = call_of(Model(a=print)), call_of(Model(b=print))
    assert first(2, scale=3) == 9
    assert first.__code__ is not second.__code__
    assert first.__code__.co_qualname == "Model.call"
    assert is_call(first.__code__) and not is_call(Model.forward.__code__)


def test_a_sequel_runs_when_the_target_has_returned():
    def target(x):
        events.append("target")
        return 1 / x

    events = []
    function = call_of(target)
    code = call_then(function.__code__, lambda: events.append("sequel"))
    assert framehook.fits(function.__code__, code) and is_call(code)
    function.__code__ = code
    assert function(2) == 0.5 and events == ["target", "sequel"]
    with pytest.raises(ZeroDivisionError):
        function(0)
    assert events == ["target", "sequel", "target"]


def test_hooked_functions_are_unwrapped_however_deep():
    def f(x):
        return x

    assert unwrapped(framehook.Hooked(framehook.Hooked(f, None), None)) is f and unwrapped(f) is f
