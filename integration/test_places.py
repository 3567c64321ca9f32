"""A home, a cache, a temporary or a working directory that is missing: told as what it is, and compiled anyway."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, shutil, sys, tempfile, warnings
import torch, intarsia
if sys.argv[1] == "deleted":
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    shutil.rmtree(folder)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for n in range(2):
        fast = intarsia.compile(lambda x: x.sin() * n + 7, options={"on_error": "raise"})
        torch.testing.assert_close(fast(torch.ones(2)), torch.ones(2).sin() * n + 7)
assert intarsia.stats().graphs == intarsia.stats().kernels_generated == 2
if sys.argv[1] == "deleted":
    try:
        os.getcwd()
        raise AssertionError("the working directory is another one")
    except FileNotFoundError:
        pass
print(len(seen), *[str(warning.message) for warning in seen])
"""


@pytest.mark.parametrize(
    ("variables", "directory", "told"),
    [
        ({"HOME": None, "INTARSIA_CACHE_DIR": None}, "", ""),
        ({"HOME": "/proc/nothing", "INTARSIA_CACHE_DIR": None, "XDG_CACHE_HOME": None}, "", "/proc/nothing"),
        ({"TMPDIR": "/no/such/place", "INTARSIA_CACHE_DIR": "/proc/nothing"}, "", "/proc/nothing"),
        ({}, "deleted", ""),
        ({"INTARSIA_CACHE_DIR": "relative"}, "deleted", "relative"),
    ],
    ids=["no home", "home read-only", "no temporary folder", "directory deleted", "cache in it"],
)
def test_it_compiles_and_says_once_what_is_wrong(tmp_path, variables, directory, told):
    environment = {**os.environ, "INTARSIA_CACHE_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), **variables}
    environment = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, directory], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    n, text = done.stdout.split(maxsplit=1) if told else (done.stdout.strip(), "")
    assert int(n) == bool(told) and told in text
