"""Every example in a docstring does what it says."""

import doctest
import importlib
import pkgutil

import intarsia_lowering


def test_examples() -> None:
    names = [m.name for m in pkgutil.walk_packages(intarsia_lowering.__path__, "intarsia_lowering.")]
    counts = [doctest.testmod(importlib.import_module(n)) for n in ("intarsia_lowering", *names)]
    assert sum(c.failed for c in counts) == 0 and sum(c.attempted for c in counts) > 10
