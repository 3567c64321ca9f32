"""A home, a cache, a temporary or a working directory that is missing: told as what it is, and compiled anyway."""

from __future__ import annotations

import os
import shutil
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


# a disk of its own, in a namespace of its own, that is full or can't be written
DISK = """
set -e
mount -t tmpfs -o size=$SIZE tmpfs "$INTARSIA_CACHE_DIR"
[ "$FULL" ] && cat /dev/zero > "$INTARSIA_CACHE_DIR/full" 2>/dev/null || true
[ "$READ_ONLY" ] && mount -o remount,ro "$INTARSIA_CACHE_DIR"
exec "$@"
"""


def may_mount():
    there = shutil.which("unshare")
    return there and subprocess.run([there, "-rm", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="this user can't mount a disk, not even in a namespace")
@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"FULL": "1", "SIZE": "1m"}, "No space left"),
        ({"FULL": "", "SIZE": "1m", "READ_ONLY": "1"}, "Read-only file system"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_can_not_be_written_is_told_once(tmp_path, variables, why):
    environment = {**os.environ, "READ_ONLY": "", **variables, "INTARSIA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", DISK, "sh", sys.executable, "-c", PROGRAM, ""],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    n, text = done.stdout.split(maxsplit=1)
    assert int(n) == 1 and why in text and "won't outlive this process" in text
