"""The kernels of the figures compiled ahead of time, without a GPU: `python benchmarks/ahead.py [--arch A] [name ...]`.

One line a function: registers, bytes spilled, instructions in which it reads and writes memory (16 bytes at a time, and
fewer), and bytes of machine code. What decides a memory-bound kernel's time is read off before a card is at hand, for
sm_80 and sm_90 unless architectures are named. The exit status asserts that no function spills, that each kernel reads
16 bytes at a time, and that nothing else is read where all is aligned. For AMD (`--arch gfx942`) it asserts that no
function spills.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), *(str(p) for p in ROOT.glob("packages/*/src"))]

import torch  # noqa: E402  (after the source tree)
import triton  # noqa: E402
from kernels import KERNELS, KernelCase  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402

import intarsia_functionalizer  # noqa: E402
import intarsia_fuser  # noqa: E402
import intarsia_lowering  # noqa: E402
import intarsia_rewrites  # noqa: E402
import intarsia_scheduler  # noqa: E402
import intarsia_triton  # noqa: E402
from intarsia_ir.records import KernelSource, Target  # noqa: E402
from intarsia_runtime import triton_worker  # noqa: E402

# lowered otherwise for the CPU; the others can be recorded over fake tensors of the CPU, which needs no CUDA build
ON_A_CARD = ("embedding_norm_f32", "cross_entropy_f32")
# rows that also read or write less than 16 bytes at a time, and what: nothing that decides their time
NARROW = {
    "cross_entropy_f32": "the ends of odd rows; gathered elements; results of a row",
    "sum_rows_f32": "results of a row",
    "sum_columns_f32": "results of a block of columns",
    "sum_all_f32": "partial sums; the table of sin's slow path",
    "batch_norm_relu_f32": "statistics of a channel",
    "batch_norm_training_relu_f32": "statistics of a channel",
    "group_norm_silu_bf16": "statistics of a group, weights of a channel",
    "embedding_norm_f32": "the index of a row",
    "argmax_logsumexp_f32": "results of a row",
    "pool_gelu_f32": "pairs of neighbours: 8 bytes",
    "tiny_ops_f32": "256 elements; the table of sin's slow path",
}
# rows that never read 16 bytes at a time, for the reasons above
ONLY_NARROW = frozenset({"pool_gelu_f32", "tiny_ops_f32"})
ARCHITECTURES = ("sm_80", "sm_90")
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
# the newest assembler that Triton brings; it takes the PTX of all
PTXAS = next(TOOLS / name for name in ("ptxas-blackwell", "ptxas") if (TOOLS / name).exists())


@dataclass(frozen=True, slots=True)
class Resources:
    """What one function takes.

    Args:
        case: Row of the table that it belongs to.
        function: Its name in the emitted module.
        registers: Of a thread.
        spilled: Bytes stored to local memory for lack of registers.
        wide_loads: Loads of 16 bytes in its text.
        narrow_loads: Smaller ones.
        wide_stores: Stores of 16 bytes.
        narrow_stores: Smaller ones.
        image: Bytes of machine code.
    """

    case: str
    function: str
    registers: int
    spilled: int
    wide_loads: int
    narrow_loads: int
    wide_stores: int
    narrow_stores: int
    image: int


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rows of the table; all when none is named")
    parser.add_argument("--arch", action="append", help="sm_80 and sm_90 when none is named")
    chosen = parser.parse_args(arguments)
    faults = 0
    for arch in chosen.arch or ARCHITECTURES:
        for name in chosen.names or [case.name for case in KERNELS]:
            rows = list(resources(arch, [name]))
            for row in rows:
                print(f"{arch} {line_of(row)}", flush=True)
            found = faults_of(rows, arch)
            faults += len(found)
            print(*(f"{arch} {name}: {fault}\n" for fault in found), sep="", end="", flush=True)
    return 1 if faults else 0


def line_of(row: Resources) -> str:
    return (
        f"{row.case:30} {row.function:8} {row.registers:3} registers {row.spilled:3} B spilled  "
        f"loads {row.wide_loads:3} + {row.narrow_loads:2}  "
        f"stores {row.wide_stores:3} + {row.narrow_stores:2}  {row.image:6} B"
    )


def faults_of(rows: Sequence[Resources], arch: str) -> list[str]:
    """Say what is wrong with the functions of one kernel; nothing where nothing is.

    One spills, or reads or writes less than 16 bytes where it could do more.
    """
    found = [f"{row.function} spills {row.spilled} B" for row in rows if row.spilled]
    if not arch.startswith("sm_"):
        return found
    case = rows[0].case
    if case not in NARROW:
        found += [f"{row.function} is not aligned" for row in rows if row.narrow_loads + row.narrow_stores]
    if case not in ONLY_NARROW and not any(row.wide_loads for row in rows):
        found.append("nothing is read 16 bytes at a time")
    return found


def resources(arch: str, names: list[str]) -> Iterator[Resources]:
    """Compile every function of the kernels named, for an architecture: `"sm_90"`, `"gfx942"`."""
    by_name = {case.name: case for case in KERNELS}
    for name in names:
        source = emitted(by_name[name], Target("cuda", arch))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernels.py"
            path.write_text(source.text, encoding="utf-8")
            spec = importlib.util.spec_from_file_location("emitted", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            for function, row in module.KERNELS.items():
                yield _resources(name, function, getattr(module, function), row, arch, Path(folder))


def emitted(case: KernelCase, target: Target) -> KernelSource:
    """Return the Triton unit of one kernel at the sizes that a GPU is measured with."""
    device = contextlib.nullcontext() if case.name in ON_A_CARD else _OnTheCpu()
    with FakeTensorMode() as mode, torch.no_grad(), device:
        inputs = case.make("cuda")
    flat, spec = pytree.tree_flatten(inputs)

    def function(*values: Any) -> tuple[Any, ...]:
        return tuple(pytree.tree_leaves(case.function(*pytree.tree_unflatten(list(values), spec))))

    with torch.no_grad():
        recorded = intarsia_functionalizer.to_aten(function, flat, fake_mode=mode)
    pure = intarsia_functionalizer.functionalize(recorded)
    graph = intarsia_rewrites.eliminate_common_subexpressions(intarsia_rewrites.fold_constants(pure.graph_module))
    loops = intarsia_lowering.lower(intarsia_rewrites.eliminate_dead_code(graph), facts=pure.facts)
    kernels = intarsia_fuser.apply(loops, intarsia_fuser.plan(loops, target=target))
    plan = intarsia_scheduler.schedule(kernels, target)
    return intarsia_triton.emit_unit(intarsia_scheduler.arrange(kernels, plan))


class _OnTheCpu(TorchFunctionMode):
    """Makes on the CPU what is asked for on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        return func(*args, **(given | {"device": "cpu"} if given.get("device") == "cuda" else given))


def _resources(case: str, name: str, function: Any, row: dict[str, Any], arch: str, folder: Path) -> Resources:
    if not arch.startswith("sm_"):
        made = triton_worker.compiled(function, row, GPUTarget("hip", arch, 64))
        return _amd_resources(case, name, made.asm["amdgcn"], len(made.asm["hsaco"]))
    made = triton_worker.compiled(function, row, GPUTarget("cuda", int(arch.removeprefix("sm_")), 32))
    ptx = made.asm["ptx"]
    registers, spilled = _registers(ptx, folder)
    loads, stores = (re.findall(rf"\b{op}\.global\S*", ptx) for op in ("ld", "st"))
    wide = [sum(_bytes(i) == 16 for i in found) for found in (loads, stores)]
    return Resources(
        case, name, registers, spilled, wide[0], len(loads) - wide[0], wide[1], len(stores) - wide[1],
        len(made.asm["cubin"]),
    )  # fmt: skip


def _amd_resources(case: str, name: str, text: str, image: int) -> Resources:
    """Read an AMD kernel's resources off its text."""
    registers, spilled = (re.search(rf"\.{key}:\s+(\d+)", text) for key in ("vgpr_count", "private_segment_fixed_size"))
    assert registers is not None and spilled is not None, text[-3000:]
    loads, stores = (re.findall(rf"\b(?:global|buffer)_{op}_\w+", text) for op in ("load", "store"))
    wide = [sum(i.endswith("_dwordx4") for i in found) for found in (loads, stores)]
    return Resources(
        case, name, int(registers[1]), int(spilled[1]), wide[0], len(loads) - wide[0], wide[1], len(stores) - wide[1],
        image,
    )  # fmt: skip


def _bytes(instruction: str) -> int:
    """Return how much `ld.global.v4.b32` and the like move."""
    lanes = re.search(r"\.v(\d)\.", instruction)
    bits = re.search(r"\.[bfsu](\d+)$", instruction)
    return (int(lanes[1]) if lanes else 1) * (int(bits[1]) if bits else 0) // 8


def _registers(ptx: str, folder: Path) -> tuple[int, int]:
    """Return registers and bytes spilled, as the assembler tells."""
    target = re.search(r"\.target (\w+)", ptx)
    assert target is not None
    text = folder / "kernel.ptx"
    text.write_text(ptx, encoding="utf-8")
    command = [
        str(PTXAS),
        "-v",
        "--fmad=false",
        f"--gpu-name={target[1]}",
        str(text),
        "-o",
        str(folder / "kernel.cubin"),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers, spilled = re.search(r"Used (\d+) registers", said), re.search(r"(\d+) bytes spill stores", said)
    assert registers is not None and spilled is not None, said
    return int(registers[1]), int(spilled[1])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
