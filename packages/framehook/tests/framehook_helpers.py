"""Callbacks and small tools that the tests share."""

from __future__ import annotations

import contextlib

import intarsia_framehook as hook
from intarsia_framehook import always

# the helpers' own frames are none of a test's business
for _f in (contextlib._GeneratorContextManager.__enter__, contextlib._GeneratorContextManager.__exit__):
    hook.skip(_f.__code__)


def code_of(f):
    return getattr(f, "__func__", f).__code__


@contextlib.contextmanager
def hooked(callback, owner=None):
    """Install a callback around a block."""
    old = hook.set_callback(callback, owner)
    try:
        yield
    finally:
        hook.set_callback(old)


def replacing(table, log=None):
    """Return a callback: table maps a code to its answer (or to what makes it); all other codes are closed."""

    def callback(code, info):
        if info.error is not None:
            raise info.error
        if log is not None:
            log.append((code, info))
        answer = table.get(code)
        return answer() if callable(answer) else answer

    return callback


def swap(f, g, guard=always):
    """Return a callback that runs g for f."""
    return replacing({code_of(f): (guard, code_of(g))})


def raw_call(callback, f, *args, **kwargs):
    """Call f with a callback installed, and without a context manager's frames."""
    hook.set_callback(callback)
    try:
        return f(*args, **kwargs)
    finally:
        hook.set_callback(None)
