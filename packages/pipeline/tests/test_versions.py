"""A torch that nothing was tested with is told of once."""

import re
import warnings
from pathlib import Path

import pytest
import torch

import intarsia
from intarsia_ir.tested import PYTHONS, TORCHES, newer_than_tested
from intarsia_ir.where import warn_of_untested

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        *((version, False) for version in TORCHES),
        ("2.13.0+cpu", False),
        ("2.14.9+cu130", False),
        ("1.99.0", False),
        ("2.100.0a0+git1a2b3c4", True),
        ("3.0.0", True),
        ("unknown", False),
    ],
)
def test_a_later_series_is_newer(version, newer):
    assert newer_than_tested(version) is newer


def test_an_untested_torch_is_told_of_once(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.99.0+cpu")
    warn_of_untested.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            intarsia.compile(lambda x: x + 1)(torch.ones(2))
    (told,) = [w for w in caught if "newer than torch" in str(w.message)]
    assert "torch 2.99.0+cpu is newer" in str(told.message) and told.filename == __file__
    warn_of_untested.cache_clear()


def test_the_installed_torch_was_tested():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_untested.cache_clear()
        intarsia.compile(lambda x: x + 1)


def test_the_metadata_asks_for_the_oldest_tested_torch():
    text = (ROOT / "packages" / "pipeline" / "pyproject.toml").read_text(encoding="utf-8")
    oldest = ".".join(TORCHES[0].split(".")[:2])
    assert re.search(r'"torch>=([\d.]+)"', text)[1] == oldest
    assert [f"Python :: {python}" in text for python in PYTHONS] == [True] * len(PYTHONS)
