"""A C++ compiler that is missing, hangs, fails now and then or writes garbage: the right answer, and it is told."""

from __future__ import annotations

import functools
import os
import shutil
import time
import warnings

import pytest
import torch

import intarsia
from intarsia_dispatch import FallbackWarning
from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_runtime.warm import finished
from integration.survival.compilers import script

GARBAGE = 'for word in "$@"; do last=$out; out=$word; [ "$last" = -o ] && echo garbage > "$word"; done; exit 0'
NOW_AND_THEN = (
    'n=$(cat {folder}/n || echo 0); echo $((n + 1)) > {folder}/n\n[ $((n % 3)) = 1 ] && exit 1\nexec {real} "$@"'
)


@pytest.fixture
def compiler(fresh, tmp_path, monkeypatch):
    """Return a function that has `CXX` name a script, or a command."""
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))

    def named(body, command=""):
        body = body.replace("{folder}", str(tmp_path)).replace("{real}", str(shutil.which("g++")))
        monkeypatch.setenv("CXX", command or script(tmp_path / "compiler", body))

    return named


def f(x):
    return x.sin() * 2 + x


X = torch.linspace(-1, 1, 6)


@pytest.mark.parametrize(
    ("body", "command", "code"),
    [
        ("", "no-such-compiler -O3", "runtime.no_compiler"),
        ("", "/", "runtime.no_compiler"),
        ("", "'", "runtime.no_compiler"),
        ("sleep 100", "", "runtime.compiler_timeout"),
        ("exit 1", "", "runtime.compiler_failed"),
        ("kill -SEGV $$", "", "runtime.compiler_failed"),
        ("exit 0", "", "runtime.compiler_failed"),
        (GARBAGE, "", "runtime.load_failed"),
    ],
)
def test_the_answer_is_right_and_the_compiler_is_named(compiler, monkeypatch, body, command, code):
    compiler(body, command)
    limit_s = 1.0 if code == "runtime.compiler_timeout" else 30.0  # a busy machine starts a script in more than one
    monkeypatch.setattr(finished, "build", functools.partial(finished.build, timeout_s=limit_s))
    start = time.monotonic()
    with pytest.raises((UnsupportedError, InternalError)) as caught:
        intarsia.compile(f, options={"on_error": "raise"})(X)
    assert caught.value.code == code
    with pytest.warns(FallbackWarning) as told:
        fast = intarsia.compile(f)
        torch.testing.assert_close(fast(X), f(X))
        torch.testing.assert_close(fast(X), f(X))
    assert len(told) == 1 and time.monotonic() - start < 60
    monkeypatch.delenv("CXX")
    intarsia.reset()
    torch.testing.assert_close(intarsia.compile(f, options={"on_error": "raise"})(X), f(X))


def test_one_that_fails_now_and_then(compiler):
    compiler(NOW_AND_THEN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for n in range(1, 9):
            fast = intarsia.compile(lambda x, n=n: x.cos() * n - x)
            for _ in range(2):
                torch.testing.assert_close(fast(X), X.cos() * n - X)
    assert 0 < intarsia.stats().fallbacks < 8, "some fail, and some don't"


def test_the_environment_names_the_compiler(compiler, tmp_path, monkeypatch):
    compiler('echo "$@" >> {folder}/log; exec {real} "$@"')
    monkeypatch.setenv("CXX", f"env A=1 {os.environ['CXX']} -pipe")
    torch.testing.assert_close(intarsia.compile(f, options={"on_error": "raise"})(X), f(X))
    assert "-pipe" in (tmp_path / "log").read_text()
