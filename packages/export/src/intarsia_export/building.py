"""Building programs in C++ that load artefacts."""

from __future__ import annotations

import os
from pathlib import Path

import torch

__all__ = ["compile_command", "include_folder"]


def include_folder() -> Path:
    """Return the folder that has `intarsia/export.h`."""
    return Path(__file__).parent / "include"


def compile_command(
    source: str | os.PathLike[str], output: str | os.PathLike[str], *, compiler: str = "g++"
) -> list[str]:
    """Return the command that builds a program in C++ against the libtorch of this process.

    Args:
        source: Its text.
        output: The program.
        compiler: A C++ compiler that knows C++20.

    Example:
        >>> compile_command("run.cpp", "run")[:3]
        ['g++', '-std=c++20', '-O1']
    """
    torchs = Path(torch.__file__).parent
    abi = int(torch.compiled_with_cxx11_abi())
    return [
        compiler,
        "-std=c++20",
        "-O1",
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        f"-I{include_folder()}",
        f"-isystem{torchs / 'include'}",
        os.fspath(source),
        f"-L{torchs / 'lib'}",
        "-ltorch_cpu",
        "-lc10",
        "-ldl",
        f"-Wl,-rpath,{torchs / 'lib'}",
        "-o",
        os.fspath(output),
    ]
