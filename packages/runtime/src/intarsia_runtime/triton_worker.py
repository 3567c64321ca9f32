"""Compile kernels of a Triton module to machine code: `python triton_worker.py module.py cuda 90 32 kernel0 ...`.

Started as a script, in processes of its own, so that it imports neither torch nor this package. For each kernel it
writes `<name>.bin` and `<name>.json` beside the module. Pointers are promised to be aligned to 16 bytes.
`python triton_worker.py --serve` imports Triton and waits for requests on standard input.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import sys
import traceback
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import code_generator, compiler  # noqa: F401  (imported before the processes fork)
from triton.runtime import cache

__all__ = ["compile_kernel", "compiled", "main"]

# what a launch needs to know about a compiled kernel
KEPT = ("name", "shared", "num_warps", "num_ctas", "warp_size", "global_scratch_size", "profile_scratch_size")
# seconds without a request after which a server ends, if the process that started it doesn't end it first
PATIENCE_S = 3600.0
IMAGES = {"cuda": "cubin", "hip": "hsaco"}


def main(arguments: list[str]) -> int:
    """Compile the kernels named, or serve; returns the exit status."""
    _forget_installation()
    if arguments == ["--serve"]:
        return serve()
    path, backend, arch, warp_size, *names = arguments
    module = load_module(Path(path))
    target = GPUTarget(backend, int(arch) if arch.isdigit() else arch, int(warp_size))
    for name in names:
        image, facts = compile_kernel(getattr(module, name), module.KERNELS[name], target)
        Path(path).with_name(f"{name}.bin").write_bytes(image)
        Path(path).with_name(f"{name}.json").write_text(json.dumps(facts), encoding="utf-8")
    return 0


def serve() -> int:
    """Answer requests until there are none for a while, or the process that makes them is gone.

    A request is a line of JSON: `folder` with the module `kernels.py`, `architecture`, `shares` of the kernels' names
    and the `environment` to compile in. Each share is compiled in a forked process whose output goes to
    `worker<number>.log`. The answer is the line `statuses [0, ...]`.
    """
    while select.select([sys.stdin], [], [], PATIENCE_S)[0]:
        line = sys.stdin.readline()
        if not line:
            break
        request = json.loads(line)
        processes = [_forked(request, number) for number in range(len(request["shares"]))]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        print("statuses", statuses, flush=True)
    return 0


def _forked(request: dict[str, Any], number: int) -> int:
    """Start a process for one share; returns its id, in the parent only."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.chdir(request["folder"])
        log = os.open(f"worker{number}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.clear()
        os.environ.update(request["environment"])
        status = main(["kernels.py", *request["architecture"], *request["shares"][number]])
    except BaseException:  # whatever it was, the process that asked gets the text and the status
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def compile_kernel(function: Any, row: dict[str, Any], target: GPUTarget) -> tuple[bytes, dict[str, Any]]:
    """Return the machine code of one kernel and what a launch must know.

    Args:
        function: The `@triton.jit` function.
        row: Its row of the module's table `KERNELS`.
        target: Architecture; no device is needed.
    """
    binary = compiled(function, row, target)
    facts = {key: getattr(binary.metadata, key, 0) for key in KEPT}
    return binary.asm[IMAGES[target.backend]], facts


def compiled(function: Any, row: dict[str, Any], target: GPUTarget) -> Any:
    """Return Triton's compiled kernel, with every stage of its text."""
    signature = {**row["signature"], **dict.fromkeys(row["constants"], "constexpr")}
    aligned = [["tt.divisibility", 16]]
    attributes = {(k,): aligned for k, t in enumerate(row["signature"].values()) if t.startswith("*")}
    source = triton.compiler.ASTSource(function, signature, row["constants"], attributes)
    options = row["options"]
    if target.backend != "cuda":
        options = {key: value for key, value in options.items() if key != "enable_reflect_ftz"}
    return triton.compile(source, target=target, options=options)


def _forget_installation() -> None:
    """Leave Triton's files out of the names in its cache, which is a folder for this process alone.

    Reading and hashing all of them takes longer than compiling a kernel: 1.4 s of 1.7 s.
    """
    for module in (cache, compiler):
        if hasattr(module, "triton_key"):
            module.triton_key = lambda: "unused"


def load_module(path: Path) -> Any:
    """Import a file as a module of its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
