"""Run the C++ compiler: translation units side by side, then one link.

Objects are compiled with OpenMP but linked without it. The OpenMP functions stay undefined in the shared object and
are bound, when it is loaded, to the OpenMP library that torch already brought into the process: a kernel can never
start a second thread pool. Linking without start files and default libraries also saves 30 ms.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_ir.records import KernelSource, Target
from intarsia_runtime.waiting import waits

__all__ = ["compile_shared_object", "compiler_flags"]

# -O1: vector extensions leave nothing to the vectoriser. No value-changing flag: never -ffast-math, no contraction.
FLAGS = (
    "-O1",
    "-std=c++17",
    "-fopenmp",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fno-semantic-interposition",
    "-fno-exceptions",
    "-fno-asynchronous-unwind-tables",
)
LINK_FLAGS = ("-shared", "-nostartfiles", "-nodefaultlibs", "-Wl,--hash-style=gnu")
# -lgcc: conversions of half types; what a unit doesn't use is not linked
LIBRARIES = ("-Wl,--as-needed", "-lmvec", "-lm", "-lgcc")


def compiler_flags(source: KernelSource, target: Target) -> tuple[str, ...]:
    """Return the flags that `source` is compiled with for `target`; those of the source come last, so they win."""
    machine = "-mcpu=native" if target.isa == "neon" else "-march=native"
    return (*FLAGS, machine, *_option(source, "flags"))


def libraries(source: KernelSource) -> tuple[str, ...]:
    """Return the link flags of `source`."""
    return (*LIBRARIES, *_option(source, "libraries"))


def _option(source: KernelSource, name: str) -> tuple[str, ...]:
    return tuple(dict(source.options).get(name, "").split())


def compile_shared_object(
    units: Sequence[str],
    *,
    compiler: str,
    flags: Sequence[str],
    libraries: Sequence[str],
    folder: Path,
    timeout_s: float,
) -> bytes:
    """Return the shared object made of `units`.

    Args:
        units: Texts of translation units.
        compiler: Command of the compiler.
        flags: Compile flags.
        libraries: Link flags such as `-lm`.
        folder: Private scratch folder.
        timeout_s: Seconds for all of it; what still runs then is killed with all of its children.

    Raises:
        UnsupportedError: `runtime.no_compiler` when it can't be started, `runtime.compiler_timeout`.
        InternalError: `runtime.compiler_failed`, with the compiler's own message.
        OSError: The folder can't be written, or is gone.
    """
    deadline, words = monotonic() + timeout_s, words_of(compiler)
    commands = []
    for n, text in enumerate(units):
        (folder / f"part{n}.cpp").write_text(text)
        commands.append([*words, *flags, "-c", f"part{n}.cpp", "-o", f"part{n}.o"])
    _run_all(commands, folder, deadline, timeout_s)
    objects = [f"part{n}.o" for n in range(len(units))]
    _run_all([[*words, *LINK_FLAGS, *objects, "-o", "unit.so", *libraries]], folder, deadline, timeout_s)
    try:
        return (folder / "unit.so").read_bytes()
    except FileNotFoundError:
        raise InternalError(f"{compiler} reported success but wrote nothing", code="runtime.compiler_failed") from None


def _run_all(commands: Sequence[Sequence[str]], folder: Path, deadline: float, timeout_s: float) -> None:
    """Run `commands`, as many at a time as there are CPUs, and raise for the first one that failed."""
    waiting = list(enumerate(commands))
    running: list[tuple[int, subprocess.Popen[bytes]]] = []
    try:
        while waiting or running:
            while waiting and len(running) < max(1, len(os.sched_getaffinity(0))):
                n, command = waiting.pop(0)
                running.append((n, _start(command, folder, n)))
            n, process = running[0]
            _wait(process, commands[n], folder / f"log{n}", deadline, timeout_s)
            running.pop(0)
    finally:  # also on KeyboardInterrupt: nothing may go on writing into the folder
        for _, process in running:
            _kill(process)


def _start(command: Sequence[str], folder: Path, n: int) -> subprocess.Popen[bytes]:
    # Messages go to a file, not a pipe: a grandchild that keeps a pipe open would make us wait for it.
    # A session of its own lets us kill the driver together with the compiler proper that it starts.
    # Its temporary files go into the folder as well, which is known to be there.
    with (folder / f"log{n}").open("wb") as log:
        try:
            return subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            if not folder.is_dir():
                raise
            raise no_compiler(command[0], str(error)) from error


def _wait(
    process: subprocess.Popen[bytes], command: Sequence[str], log: Path, deadline: float, timeout_s: float
) -> None:
    status = _status(process, deadline)
    if status is None:
        raise UnsupportedError(
            f"{command[0]} did not finish within {timeout_s:g} s",
            code="runtime.compiler_timeout",
            hints=("the compiler was stopped; check that it works on a small file", "give a longer timeout"),
        )
    if status != 0:
        how = f"exit status {status}" if status > 0 else f"signal {signal.Signals(-status).name}"
        message = log.read_text(errors="replace").strip()[:4000] or "it printed nothing"
        raise InternalError(
            f"{command[0]} failed with {how}:\n{message}\n  command: {' '.join(command)}",
            code="runtime.compiler_failed",
        )


def _status(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Return the exit status, None when there is none in time; interrupts are let through meanwhile."""
    for wait_s in waits(deadline):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=wait_s)
    return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # all of it ended on its own
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def no_compiler(compiler: str, why: str = "") -> UnsupportedError:
    """Return the error for a compiler that isn't there."""
    what = f"the C++ compiler {compiler!r} can't be started" if compiler else "no C++ compiler was found"
    if compiler and compiler == os.environ.get("CXX", "").strip():
        what += " (CXX names it)"
    return UnsupportedError(
        f"{what}{': ' if why else ''}{why}",
        code="runtime.no_compiler",
        hints=(
            "install g++ (Debian and Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++) or clang++",
            f"search path: {os.environ.get('PATH', '')}",
        ),
    )


def words_of(compiler: str) -> tuple[str, ...]:
    """Return the words of a command, split as a shell would; one that has unbalanced quotes is one word."""
    try:
        return tuple(shlex.split(compiler))
    except ValueError:
        return (compiler,)


def is_available(compiler: str) -> bool:
    """Tell whether `compiler` names a program."""
    words = words_of(compiler)
    return bool(words) and shutil.which(words[0]) is not None
