"""Modules with hooks are compiled as one call; each module has code of its own."""

from intarsia_dispatch.hooked_calls import call_of, has_hooks


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
