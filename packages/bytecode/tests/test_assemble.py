"""The stack of code that is put together from instructions, protected ranges among them."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import subprocess
import types

import pytest
from bytecode import Bytecode

from intarsia_bytecode import replacement_code
from intarsia_bytecode.assemble import _stack_size
from intarsia_bytecode.resume import carried_code

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def codes(code):
    """Yield a code object and those inside of it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from codes(inner)


@pytest.mark.parametrize("module", [argparse, contextlib, subprocess], ids=lambda m: m.__name__)
def test_the_stack_is_as_deep_as_cpython_says(module):
    whole = compile(inspect.getsource(module), module.__file__, "exec")
    found = [code for code in codes(whole) if not code.co_flags & _GENERATORS]
    for code in found:
        items = Bytecode.from_code(code, conserve_exception_block_stackdepth=True)
        assert (_stack_size(items) or 1) == (code.co_stacksize or 1), code
    assert any(code.co_exceptiontable for code in found)


def leaves_two_blocks(flag):
    """What comes behind the second block is come to past it, too."""
    with contextlib.suppress(ValueError):
        len(flag)
    if flag == flag:
        with contextlib.suppress(ValueError):
            raise ValueError("v")


def test_a_place_behind_a_protected_range_that_is_jumped_to():
    """The range ends where it is jumped to from in front of it: no entry lies on the stack there."""
    code = leaves_two_blocks.__code__
    label, items, _ = carried_code(code, 1)
    made = replacement_code(code, [label, *items])
    assert types.FunctionType(made, globals())("ab") is None
