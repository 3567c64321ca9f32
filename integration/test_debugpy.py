"""A debugger attached through debugpy: programs stop where eager runs their lines, and what is compiled is right."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import pytest

pytest.importorskip("debugpy")

PROGRAM = """
import torch, intarsia

def helper(x):
    return x * 3  # stop here

def f(x, n):
    y = helper(x.sin())
    return (y + n).sum()

x, fast = torch.linspace(-1, 1, 6), intarsia.compile(f, options={"on_error": "raise"})
for n in (1, 2, 1, 2):
    torch.testing.assert_close(fast(x, n), f(x, n))
print("frames", intarsia.stats().frames_compiled, "fallbacks", intarsia.stats().fallbacks)
"""


class Client:
    """Speaks the debug adapter protocol to a process.

    Args:
        port: Where debugpy listens.
    """

    def __init__(self, port: int) -> None:
        self._file = socket.create_connection(("127.0.0.1", port), timeout=120).makefile("rwb")
        self._number = 0

    def ask(self, command: str, **arguments: Any) -> int:
        """Send a request, and return its number."""
        self._number += 1
        body = json.dumps({"seq": self._number, "type": "request", "command": command, "arguments": arguments}).encode()
        self._file.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._file.flush()
        return self._number

    def until(self, **wanted: Any) -> dict[str, Any] | None:
        """Return the next message like this one; None when the process has gone."""
        while True:
            header = self._file.readline()
            if not header:
                return None
            self._file.readline()
            message: dict[str, Any] = json.loads(self._file.read(int(header.split(b":")[1])))
            if message.get("event") in ("terminated", "exited") and "exited" not in wanted.values():
                return None
            if all(message.get(k) == v for k, v in wanted.items()):
                return message


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_a_breakpoint_in_a_compiled_function(tmp_path):
    script, port = tmp_path / "program.py", free_port()
    script.write_text(PROGRAM)
    line = PROGRAM.splitlines().index("    return x * 3  # stop here") + 1
    process = subprocess.Popen(
        [sys.executable, "-m", "debugpy", "--listen", f"127.0.0.1:{port}", "--wait-for-client", str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "INTARSIA_CACHE_DIR": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        client = attached(port)
        client.until(event="initialized")
        client.ask("setBreakpoints", source={"path": str(script)}, breakpoints=[{"line": line}])
        client.ask("configurationDone")
        stops = 0
        while (stopped := client.until(event="stopped")) is not None:
            stops += stopped["body"]["reason"] == "breakpoint"
            client.ask("continue", threadId=stopped["body"]["threadId"])
        client.ask("disconnect")
        out, errors = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors[-3000:]
    assert stops >= 4, "eager's own calls, at least, stop there"
    assert out.split()[2:] == ["fallbacks", "0"], out
    # where frames are traced the function runs in eager, so that it stops; `sys.monitoring` leaves it compiled
    assert (int(out.split()[1]) > 0) == (sys.version_info >= (3, 12)), out


def attached(port: int) -> Client:
    """Connect as soon as somebody listens, and attach."""
    for attempt in range(600):
        try:
            client = Client(port)
            break
        except ConnectionRefusedError:
            if attempt == 599:
                raise
            time.sleep(0.2)
    client.ask("initialize", adapterID="test", linesStartAt1=True, pathFormat="path")
    client.until(command="initialize")
    client.ask("attach", justMyCode=False)
    return client
