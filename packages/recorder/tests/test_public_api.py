"""The public surface is what `public_api.txt` lists, and the examples in it run."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import intarsia_recorder
from intarsia_testkit.public_api import check_public_api

MODULES = [f"intarsia_recorder.{m.name}" for m in pkgutil.iter_modules(intarsia_recorder.__path__)]


def test_public_api():
    check_public_api(intarsia_recorder, Path(__file__).parent / "public_api.txt")


@pytest.mark.parametrize("name", ["intarsia_recorder", *MODULES])
def test_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0
