"""Other users of the frame evaluation hook in the same process, above and below ours."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sysconfig
import threading
from pathlib import Path

import pytest
from framehook_helpers import hooked, replacing, swap

import intarsia_framehook as hook


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Compile the other hook."""
    target = tmp_path_factory.mktemp("other") / ("other_hook" + sysconfig.get_config_var("EXT_SUFFIX"))
    compiler = next(c for c in ("cc", "gcc", "clang") if shutil.which(c))
    include = sysconfig.get_path("include")
    source = Path(__file__).parent / "other_hook.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(target)], check=True)
    spec = importlib.util.spec_from_file_location("other_hook", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def other(built):
    """Give the other hook, and leave it disabled and nothing installed."""
    built.count()
    yield built
    hook.set_callback(None)
    built.disable()
    # a callback set and unset with nobody else there puts the interpreter's own evaluator back
    with hooked(lambda code, info: None):
        pass


def f(x):
    return "f", x


def g(x):
    return "g", x


def fast():
    """Return a fresh root: f with g in its place."""
    return hook.Hooked(f, swap(f, g))


def test_other_below(other):
    other.enable()
    root = fast()
    other.count()
    assert root(1) == root(1) == ("g", 1)
    assert f(1) == ("f", 1)
    first = other.count()
    assert root(1) == ("g", 1)
    assert other.count() == 0  # frames that we take aren't passed on
    assert f(1) == ("f", 1)
    assert other.count() == 1 <= first
    other.disable()
    assert root(1) == ("g", 1)
    assert other.count() == 0


def helper():
    return True


def unhooked_helper(x):
    return helper(), x


calm = hook.Unhooked(unhooked_helper)


def with_graph(x):
    return calm(x)


def test_other_below_sees_nothing_of_callbacks_guards_and_unhooked_calls(other):
    other.enable()
    root = hook.Hooked(f, lambda code, info: helper() and (lambda x: helper(), with_graph.__code__))
    other.count()
    assert (root(0), root(1), root(2)) == ((True, 0), (True, 1), (True, 2))
    assert other.count() == 0


def test_other_above_owns_what_runs_below_it(other):
    root = fast()
    root(1)

    def inside():
        other.enable()
        try:
            return f(1)
        finally:
            other.disable()

    table = swap(f, g)
    with hooked(table):
        assert f(1) == ("g", 1)
        assert inside() == ("f", 1)
        assert f(1) == ("g", 1)
    assert other.count() > 0


def test_entering_under_another_hook(other):
    """A root called inside the other's region comes on top, and leaves the other there when it is done."""
    with hooked(replacing({})):
        other.enable()
        assert f(1) == ("f", 1)  # reached through the other hook, which therefore owns the frame
        assert fast()(1) == ("g", 1)
        other.count()  # since the last time that it was asked
        assert f(1) == ("f", 1) and other.count() > 0
        other.disable()
    other.enable()
    assert fast()(1) == ("g", 1)
    assert not hook.alone()
    other.disable()


def test_thrown_out_and_back(other):
    """The other hook, below ours, goes away and takes ours with it; the next root puts it back."""
    other.enable()
    with hooked(swap(f, g)):
        assert f(1) == ("g", 1)
        other.disable()
        assert f(1) == ("f", 1)  # thrown out: native
        assert fast()(1) == ("g", 1)
        assert f(1) == ("g", 1)


def test_no_endless_circle(other):
    """The other hook comes on top of ours while ours has it below: neither may call the other for ever."""
    other.enable()
    with hooked(swap(f, g)):
        assert f(1) == ("g", 1)
        other.enable()  # it isn't on top, so it takes us for its predecessor
        assert f(1) == ("f", 1)
        assert [f(i)[1] for i in range(3)] == [0, 1, 2]
        assert sorted([3, 1], key=lambda x: f(x)[1]) == [1, 3]
    assert f(1) == ("f", 1)


def test_other_thread_keeps_ours_installed(other):
    go_on, ready = threading.Event(), threading.Event()

    def wait():
        with hooked(replacing({})):
            ready.set()
            go_on.wait(30)

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait(30)
    assert fast()(1) == ("g", 1)
    other.enable()
    other.disable()
    assert fast()(1) == ("g", 1)
    go_on.set()
    thread.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_counts_threads_anew():
    go_on, ready = threading.Event(), threading.Event()

    def wait():
        with hooked(replacing({})):
            ready.set()
            go_on.wait(30)

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait(30)
    child = os.fork()
    if child == 0:
        os._exit(0 if fast()(1) == ("g", 1) and f(1) == ("f", 1) else 1)
    status = os.waitpid(child, 0)[1]
    go_on.set()
    thread.join()
    assert status == 0
