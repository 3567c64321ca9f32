"""The public surface is what `public_api.txt` lists, and the examples in it run."""

import doctest
import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import intarsia_functionalizer
from intarsia_testkit.public_api import check_public_api

MODULES = [f"intarsia_functionalizer.{m.name}" for m in pkgutil.iter_modules(intarsia_functionalizer.__path__)]


def test_public_api():
    check_public_api(intarsia_functionalizer, Path(__file__).parent / "public_api.txt")


@pytest.mark.parametrize("name", ["intarsia_functionalizer", *MODULES])
def test_examples(name):
    # by sys.modules: a function of the same name hides the module in its package
    importlib.import_module(name)
    assert doctest.testmod(sys.modules[name]).failed == 0
