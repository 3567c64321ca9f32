"""Servers that wait for kernels to compile, with a stand-in for the one that imports Triton."""

import os
import textwrap
import time

import pytest

from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_runtime import triton_pool

SERVER = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request.get("die"):
        print("out of memory", flush=True)
        sys.exit(3)
    time.sleep(request.get("sleep", 0))
    print("a warning, [not an answer]", flush=True)
    print("statuses", [os.getpid(), len(request["shares"])], flush=True)
    if request.get("leave"):
        sys.exit(0)
"""


@pytest.fixture(autouse=True)
def pool(monkeypatch, tmp_path):
    path = tmp_path / "server.py"
    path.write_text(textwrap.dedent(SERVER))
    monkeypatch.setattr(triton_pool, "WORKER", path)
    triton_pool._stop_all()
    yield
    triton_pool._stop_all()


def ask(**words):
    return triton_pool.run({"shares": [["k"]], **words}, timeout_s=20.0)


def test_a_server_is_used_again():
    first, n_shares = ask()
    assert n_shares == 1 and ask() == [first, 1]


def test_a_prepared_server_is_the_first_one():
    triton_pool.prepare()
    triton_pool.prepare()
    (server,) = triton_pool._waiting
    assert ask()[0] == server.process.pid


def test_a_server_that_left_is_replaced():
    first, _ = ask(leave=True)
    deadline = time.monotonic() + 10
    while triton_pool._waiting[0].process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ask()[0] != first


def test_a_server_that_dies_at_work_is_an_error_with_its_words():
    with pytest.raises(InternalError, match="out of memory") as caught:
        ask(die=True)
    assert caught.value.code == "runtime.triton_failed"
    assert ask()[1] == 1


def test_a_server_that_takes_too_long_is_ended():
    first, _ = ask()
    with pytest.raises(UnsupportedError) as caught:
        triton_pool.run({"shares": [], "sleep": 30}, timeout_s=0.2)
    assert caught.value.code == "runtime.compiler_timeout"
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert ask()[0] != first


def test_a_forked_process_starts_its_own():
    first, _ = ask()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, str(ask()[0]).encode())
            triton_pool._stop_all()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) != first
    assert ask()[0] == first
