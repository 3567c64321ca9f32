"""A device of one's own: its numbers, a dialect, a printer and a runtime; `test_own_device.py` compiles for it.

The toy has one core without vectors and shares the host's memory, so torch knows its tensors as the CPU's. (A device
with memory of its own is made known to torch first, and is named in `Target` as torch calls it.) A host drives it by a
list of commands, which is a dialect: tiles say what a launch does, commands in which order launches and library calls
run and how long each buffer is there.

    FX(kernels) → tiles → commands → C, built and driven
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import intarsia
import intarsia_scheduler
from intarsia import Pipeline, Stage, Target
from intarsia.levels import Kernels, Linked
from intarsia_ir import Machine
from intarsia_ir.errors import VerifyError
from intarsia_loops import Contract
from intarsia_loops import tiles as tiles_dialect
from intarsia_loops.evaluate import allocate, call_extern
from intarsia_loops.program import Extern, Program, TensorRef
from intarsia_loops.run import bind, output_of
from intarsia_loops.tiles import Launch, Tiles, expanded
from integration.examples.scalar_printer import print_c, symbols

TOY = Target("cpu", "toy", measured=Machine("cpu", 1, vector_bytes=4, register_bytes=64, gb_per_s=1.0, gflop_per_s=0.1))
FLAGS = ["-O1", "-fwrapv", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-o", "toy.so", "toy.c", "-lm"]


@dataclass(frozen=True, slots=True)
class Command:
    """One thing that the host tells the device.

    Args:
        op: `"alloc"` and `"free"` of a buffer; `"launch"` of a program; `"call"` of a function of the host's.
        name: The buffer, program, or function.
        item: Position of the launch or call among the items of the tiles; -1: none.
        reads: Buffers that must be there.
        writes: Those that must be there, or are made by a call.
    """

    op: str
    name: str
    item: int = -1
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Commands:
    """A level of its own, between kernels and a callable.

    Args:
        tiles: What is launched, with its walks written out.
        commands: What the host does, in order.
        contract: What the graph is to its caller.
    """

    tiles: Tiles
    commands: tuple[Command, ...]
    contract: Contract


# ---- the dialect ---------------------------------------------------------------------------------------------------


def verify(program: Commands) -> None:
    """Check a list of commands, by three rules.

    C1: a buffer is there when it is used.
    C2: a buffer is allocated once, and freed once if it is no result.
    C3: launches and calls run in the order of the tiles, each once.

    Raises:
        VerifyError: With everything that breaks one.
    """
    kept = {*program.tiles.inputs, *program.tiles.constants}
    returned = {o.buffer for o in program.tiles.outputs if isinstance(o, TensorRef)}
    found, there, gone, ran = list[tuple[str, str, str]](), set(kept), set[str](), 0
    for k, c in enumerate(program.commands):
        place = f"command {k}, {c.op} {c.name}"
        used = {*c.reads, *(c.writes if c.op == "launch" else ()), *((c.name,) if c.op == "free" else ())}
        found += [("C1", place, f"{name} isn't there") for name in sorted(used - there)]
        made = {c.name} if c.op == "alloc" else {*c.writes} if c.op == "call" else set[str]()
        found += [("C2", place, f"{name} was there before") for name in sorted(made & (there | gone))]
        there |= made
        if c.op == "free":
            found += [("C2", place, "it is a result")] if c.name in returned else []
            there.discard(c.name)
            gone.add(c.name)
        if c.item >= 0:
            found += [("C3", place, f"item {ran} comes first")] if c.item != ran else []
            ran += 1
    found += [("C2", "the end", f"{name} is never freed") for name in sorted(there - returned - kept)]
    found += [("C3", "the end", f"{ran} items ran")] if ran != len(program.tiles.items) else []
    if found:
        raise VerifyError("commands", found)


def interpret(program: Commands, *inputs: Any) -> tuple[Any, ...]:
    """Run the tiles by their own interpreter: commands add when, not what."""
    verify(program)
    found: tuple[Any, ...] = tiles_dialect.interpret(program.tiles, *inputs)
    return found


def print_ir(program: Commands) -> str:
    """Return the commands as text, a line each."""
    return "// dialect: commands 1\n" + "".join(
        f"{c.op} {c.name}" + (f" ({', '.join(c.reads)}) -> {', '.join(c.writes)}" if c.item >= 0 else "") + "\n"
        for c in program.commands
    )


# ---- the pass, and the runtime -------------------------------------------------------------------------------------


def commands_of(kernels: Kernels) -> Commands:
    """Schedule kernels for the target, and say when each buffer comes and goes."""
    plan = intarsia_scheduler.schedule(kernels.graph_module, kernels.contract.target, check=False)
    tiles = expanded(intarsia_scheduler.apply(kernels.graph_module, plan))
    kept = {*tiles.inputs, *tiles.constants, *(o.buffer for o in tiles.outputs if isinstance(o, TensorRef))}
    uses = [_uses(item) for item in tiles.items]
    last = {name: k for k, (reads, writes) in enumerate(uses) for name in (*reads, *writes)}
    there, found = {*tiles.inputs, *tiles.constants}, list[Command]()
    for k, (item, (reads, writes)) in enumerate(zip(tiles.items, uses, strict=True)):
        if isinstance(item, Launch):
            new = [n for n in dict.fromkeys((*reads, *writes)) if n not in there]
            found += [Command("alloc", name) for name in new]
            found.append(Command("launch", item.name, k, reads, writes))
        else:
            found.append(Command("call", str(item.target), k, reads, writes))
        there.update(reads, writes)
        found += [Command("free", n) for n in dict.fromkeys((*reads, *writes)) if last[n] == k and n not in kept]
    made = Commands(tiles, tuple(found), kernels.contract)
    verify(made)
    return made


def _uses(item: Launch | Extern) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Buffers that an item reads, and that it writes; a launch may do both with all of its own."""
    if isinstance(item, Extern):
        return tuple(sorted(item.reads())), tuple(n for n in item.outs if n)
    return (), tuple(dict.fromkeys(n for names in item.sets for n in names))


class Driver:
    """Programs of the device, built, and the host's loop over commands."""

    def __init__(self, program: Commands) -> None:
        self.program, self.symbols = program, symbols(program.tiles)
        self.launched = 0
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        (folder / "toy.c").write_text(print_c(program.tiles), encoding="utf-8")
        subprocess.run(["gcc", *FLAGS], cwd=folder, check=True)
        self._library = ctypes.CDLL(str(folder / "toy.so"))

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Carry the commands out."""
        tiles = self.program.tiles
        memory = dict(tiles.constants)
        shell = Program(tiles.buffers, tiles.inputs, (), (), tiles.facts, constants=tiles.constants)
        sizes = bind(shell, list(inputs), memory)
        for command in self.program.commands:
            match command.op:
                case "alloc":
                    memory[command.name] = allocate(tiles.buffers[command.name], sizes).zero_()
                case "free":
                    del memory[command.name]
                case "call":
                    memory |= call_extern(tiles.items[command.item], tiles.buffers, memory, sizes)
                case _:
                    self._launch(tiles.items[command.item], memory, sizes)
        return tuple(output_of(value, memory, sizes) for value in tiles.outputs)

    def _launch(self, launch: Any, memory: dict[str, Any], sizes: dict[str, int]) -> None:
        function = self._library[launch.name]
        function.restype = ctypes.c_char_p
        numbers = (ctypes.c_int64 * (len(self.symbols) + 1))(*[sizes[s] for s in self.symbols])
        for names in launch.sets:
            self.launched += 1
            wrong = function((ctypes.c_void_p * (len(names) + 1))(*[memory[n].data_ptr() for n in names]), numbers)
            if wrong is not None:
                raise IndexError(wrong.decode())


def toy_pipeline(target: Target = TOY, driven: list[Driver] | None = None, **tables: Any) -> Pipeline:
    """Return the stages for the toy.

    Args:
        target: The toy, maybe with other numbers.
        driven: Is given a driver for each graph that is compiled.
        tables: As for `default_pipeline`: policies, decompositions, ...
    """

    def drive(program: Commands) -> Linked:
        driver = Driver(program)
        if driven is not None:
            driven.append(driver)
        return Linked(driver, program.contract.signature)

    before = intarsia.default_pipeline(target, **tables).until(Kernels)
    ours = (Stage("commands", Kernels, Commands, commands_of), Stage("drive", Commands, Linked, drive))
    return Pipeline((*before.stages, *ours))
