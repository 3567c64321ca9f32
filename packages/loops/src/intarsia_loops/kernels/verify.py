"""The rules of the kernels dialect: L1 to L12 of the loops dialect for every step, and these.

K1: items are kernels and extern calls; a kernel has at least one step.
K2: every step's axes begin with the kernel's rows; no step scans along a row; a scatter is the only step of its
    kernel, which has no rows.
K3: a step reads what the kernel made only in its own row, and only after it was made.
K4: local buffers are made by their kernel, read by no other item, and not returned; they have no place.
K5: a placed buffer is made by a kernel and is no output; its offset is a multiple of 64 and its bytes lie inside the
    arena.
K6: placed buffers that share bytes are not alive together. A kernel may write a buffer over one that it reads last
    there: the same bytes, and every read is a map's read of the very element that it writes.
K7: the graph is what `to_fx` makes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch.fx as fx

from intarsia_ir.dtypes import itemsize
from intarsia_loops._rules import Findings, check_program
from intarsia_loops.index import lift
from intarsia_loops.loops.verify import program_of
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Extern, Kernel, Placement, Program, TensorRef

__all__ = ["verify"]

ALIGNMENT = 64


def verify(gm: fx.GraphModule | Program, *, origins: bool = False) -> None:
    """Check a program against the rules above.

    Args:
        gm: FX(kernels), or the program itself.
        origins: Whether origins are demanded (L12).

    Raises:
        VerifyError: With all findings, and the text of the first item concerned.
    """
    program = program_of(gm, "kernels", "K7")
    findings = Findings("kernels")
    check_program(program, findings, origins=origins)
    for k, item in enumerate(program.items):
        if isinstance(item, Kernel) and item.steps:
            _check_rows(item, findings)
            _check_local(k, item, program, findings)
        elif not isinstance(item, Extern):
            findings.add(
                "K1", f"item {k}", f"a {type(item).__name__} that is neither extern call nor kernel with steps"
            )
    if program.placement is not None:
        _check_placement(program, program.placement, findings)
    findings.raise_if_any(program)


def _check_rows(kernel: Kernel, findings: Findings) -> None:
    depth = len(kernel.rows)
    row = tuple(map(lift, kernel.rows))
    all_made = {s.out for s in kernel.steps}
    written: set[str] = set()
    for step in kernel.steps:
        if step.axes[:depth] != kernel.rows:
            findings.add("K2", step.out, f"axes {list(step.axes)} don't begin with the rows {list(kernel.rows)}")
        if step.kind in NEST_KINDS and NEST_KINDS[step.kind].scan and set(step.red) & set(kernel.rows):
            findings.add("K2", step.out, "scans along a row")
        if step.kind in NEST_KINDS and NEST_KINDS[step.kind].scatter and (depth or len(kernel.steps) > 1):
            findings.add("K2", step.out, "is a scatter with rows, or beside other steps")
        for v in sorted(step.body.loads, key=repr):
            name, entries = v.args
            if name in all_made - written:
                findings.add("K3", step.out, f"reads {name} before it is made")
            elif name in written and entries[:depth] != row:
                findings.add("K3", step.out, f"reads {name}{list(entries)} of another row")
        written.add(step.out)


def _check_local(position: int, kernel: Kernel, program: Program, findings: Findings) -> None:
    for name in sorted(kernel.local - {s.out for s in kernel.steps}):
        findings.add("K4", name, "is local to a kernel that doesn't make it")
    returned = {v.buffer for v in program.outputs if isinstance(v, TensorRef)}
    for name in sorted(kernel.local & returned):
        findings.add("K4", name, "is local, and returned")
    for other in program.items[position + 1 :]:
        for name in sorted(kernel.local & other.reads()):
            findings.add("K4", name, "is local, and read by another item")
    if program.placement is not None:
        for name in sorted(kernel.local & program.placement.offsets.keys()):
            findings.add("K4", name, "is local, and has a place in memory")


# ---- placement ----------------------------------------------------------------------------------------------


def _check_placement(program: Program, placement: Placement, findings: Findings) -> None:
    made_at = {n: k for k, item in enumerate(program.items) if isinstance(item, Kernel) for n in item.writes()}
    returned = {v.buffer for v in program.outputs if isinstance(v, TensorRef)}
    places: dict[str, tuple[int, int]] = {}
    for name, offset in placement.offsets.items():
        if name not in made_at or name in returned:
            findings.add("K5", name, "has a place, but is not an intermediate made by a kernel")
            continue
        n_bytes = byte_span(program.buffers[name])
        if n_bytes is None:
            continue  # sizes known at run time only: nothing to compare now
        if offset % ALIGNMENT or offset < 0 or offset + n_bytes > placement.arena_bytes:
            findings.add("K5", name, f"{n_bytes} bytes at {offset} in an arena of {placement.arena_bytes}")
        places[name] = (offset, offset + n_bytes)
    _check_overlaps(program, places, made_at, findings)


def byte_span(buffer: Buffer) -> int | None:
    """Return the bytes from the first to the last element of a buffer; None when a size is symbolic."""
    last = 0
    for n, s in zip(buffer.shape, buffer.strides, strict=True):
        size, stride = n.const(), s.const()
        if size is None or stride is None:
            return None
        if size == 0:
            return 0
        last += (size - 1) * stride
    return (last + 1) * itemsize(buffer.dtype)


def _check_overlaps(
    program: Program, places: Mapping[str, tuple[int, int]], made_at: Mapping[str, int], findings: Findings
) -> None:
    last_read = dict(made_at)
    for k, item in enumerate(program.items):
        for name in item.reads() & places.keys():
            last_read[name] = k
    alive: list[str] = []
    for name in sorted(places, key=made_at.__getitem__):
        start = made_at[name]
        alive = [o for o in alive if last_read[o] >= start]
        for other in alive:
            shared = places[other][0] < places[name][1] and places[name][0] < places[other][1]
            if shared and not (last_read[other] == start and _is_in_place(program, start, name, other, places)):
                findings.add("K6", name, f"shares bytes with {other}, which is still read by item {last_read[other]}")
        alive.append(name)


def _is_in_place(program: Program, position: int, name: str, other: str, places: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the kernel writes `name` element by element over `other`, each read before it is overwritten."""
    kernel, buffers = program.items[position], program.buffers
    if not isinstance(kernel, Kernel) or other in {s.out for s in kernel.steps}:
        return False
    if places[name] != places[other] or buffers[name] != buffers[other]:
        return False
    written = False
    for step in kernel.steps:
        reads = [v.args[1] for v in step.body.loads if v.args[0] == other]
        if reads and (written or step.kind != "map" or any(r != tuple(map(lift, step.axes)) for r in reads)):
            return False
        if reads and step.out != name and buffers[step.out].shape != buffers[name].shape:
            return False
        written = written or step.out == name
    return True
