"""Compile the extension next to its source, for running from a plain source tree: no install, only a C compiler.

From the shell: `python -m intarsia_guards.build`, with `src` on PYTHONPATH. It uses the compiler that Python was
built with when it is there, else `cc`. It needs no headers of torch. Wheels are built by setuptools instead, from the
same sources.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

__all__ = ["FLAGS", "SOURCES", "build_in_place", "command"]

SOURCES = ("_native.c", "run.c", "tensors.c")
FLAGS = ("-O2", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")


def build_in_place(*, folder: Path | None = None) -> Path:
    """Compile the extension and return the path of the shared library.

    Args:
        folder: Where it goes; next to the source, so that it is imported, when None.

    Raises:
        subprocess.CalledProcessError: The compiler failed; its messages are on stderr.
    """
    source = Path(__file__).parent
    target = (folder or source) / ("_native" + str(sysconfig.get_config_var("EXT_SUFFIX")))
    fresh = target.with_name(f"{target.name}.{os.getpid()}.new")
    subprocess.run(command(source, fresh), check=True)
    fresh.replace(target)  # whoever imports meanwhile sees the old library or the new one, never half of one
    return target


def command(source: Path, target: Path) -> list[str]:
    """Return the compiler call that makes `target` from the C files in the folder `source`."""
    compiler = shlex.split(str(sysconfig.get_config_var("CC") or "cc"))
    if shutil.which(compiler[0]) is None:
        compiler = ["cc"]
    include = sysconfig.get_path("include")
    return [*compiler, *FLAGS, f"-I{include}", *(str(source / name) for name in SOURCES), "-o", str(target)]


if __name__ == "__main__":
    print(build_in_place())
