"""Damaged entries: each function is right all the same, what is damaged isn't returned, and the entry is repaired.

Every tenth entry is left alone: it must be read, and nothing may be compiled. As root this changes to another user,
because root can read what is unreadable.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import intarsia
import intarsia_runtime
from intarsia_runtime.entries import Entry, entries, is_intact
from integration.survival.compilers import Remembering
from integration.survival.damage import Kind, kinds

__all__ = ["Tally", "damaged", "main"]

NOBODY = 65534


@dataclass
class Tally:
    """What was seen.

    Args:
        damaged: Times that an entry was damaged, by kind.
        refused: Of these, times that the entry was asked for and not returned.
        intact: Times that nothing was damaged.
        read: Of these, times that entries were read and nothing was compiled.
        wrong: What went wrong, in words.
    """

    damaged: collections.Counter[str] = field(default_factory=collections.Counter)
    refused: int = 0
    intact: int = 0
    read: int = 0
    wrong: list[str] = field(default_factory=list)


def programs() -> list[Any]:
    """Return functions of one kernel each."""
    return [lambda x: x.sin() * 2 + x, lambda x: torch.softmax(x, -1), lambda x: (x * x).sum(-1) + x.amax()]


class Run:
    """A cache with entries of a few programs, and a spy on what is read from it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.compiler, self.directory = Remembering(folder), folder / "cache"
        self.numbers, self.tally = random.Random(seed), Tally()
        self.asked: dict[str, bool] = {}  # key -> whether it was returned
        os.environ["CXX"] = self.compiler.path

    def spy(self, real: Any) -> Any:
        """Return `Cache.get` that notes what it is asked for."""

        def get(cache: Any, key: str) -> bytes | None:
            found: bytes | None = real(cache, key)
            self.asked[key] = self.asked.get(key, False) or found is not None
            return found

        return get

    def call(self, program: Any) -> bool:
        """Compile a program anew, call it, and return whether it is right."""
        intarsia.reset()
        x = torch.linspace(-2, 2, 24).reshape(4, 6)
        fast = intarsia.compile(program, options={"on_error": "raise"}, cache_dir=self.directory)
        return torch.allclose(fast(x), program(x))

    def entries_of(self, program: Any) -> list[Entry]:
        """Return the entries that a program is made of."""
        self.asked.clear()
        assert self.call(program)
        return [entry for entry in entries(self.directory) if entry.key in self.asked]

    def damage(self, program: Any, mine: list[Entry], others: list[Entry], kind: Kind) -> None:
        """Damage an entry of a program, call it, and look at what was read."""
        entry = self.numbers.choice(mine)
        kind(entry.path, self.numbers.choice(others).path, self.numbers)
        self.tally.damaged[kind.__name__] += 1
        self.asked.clear()
        if not self.call(program):
            self.tally.wrong.append(f"{kind.__name__}: another result")
        if self.asked.get(entry.key):
            self.tally.wrong.append(f"{kind.__name__}: what is damaged was returned")
        self.tally.refused += self.asked.get(entry.key) is False
        if not is_intact(entry):
            self.tally.wrong.append(f"{kind.__name__}: the entry wasn't repaired")

    def leave(self, program: Any, mine: list[Entry]) -> None:
        """Damage nothing: everything is read, nothing compiled."""
        before = len(self.compiler.units())
        self.asked.clear()
        if not self.call(program):
            self.tally.wrong.append("intact: another result")
        self.tally.intact += 1
        returned = any(self.asked.values()) and all(self.asked.get(entry.key) is not False for entry in mine)
        self.tally.read += returned and len(self.compiler.units()) == before


def damaged(count: int, folder: Path, seed: int = 0) -> Tally:
    """Damage `count` entries below a folder, one after the other, each kind as often as the others."""
    run, usable = Run(folder, seed), kinds()
    real = intarsia_runtime.Cache.get
    intarsia_runtime.Cache.get = run.spy(real)  # type: ignore[method-assign]
    try:
        made = [(program, run.entries_of(program)) for program in programs()]
        for n in range(count):
            (program, mine), (_, others) = run.numbers.sample(made, 2)
            if n % 10 == 0:
                [run.call(p) for p, _ in made]  # what was swapped is repaired
                run.leave(program, mine)
            run.damage(program, mine, others, usable[n % len(usable)])
    finally:
        intarsia_runtime.Cache.get = real  # type: ignore[method-assign]
    return run.tally


def main(arguments: list[str]) -> int:
    """Damage entries and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m integration.survival cache")
    parser.add_argument("--entries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    if os.getuid() == 0:
        with tempfile.TemporaryDirectory() as name:  # what is imported late may lie where only root can read
            damaged(1, Path(name))
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o700)
        tally = damaged(given.entries, Path(name), given.seed)
    print(
        f"{sum(tally.damaged.values())} damaged ({', '.join(f'{k} {n}' for k, n in tally.damaged.items())}), "
        f"{tally.refused} refused; {tally.intact} left alone, {tally.read} read; {len(tally.wrong)} wrong"
    )
    print(*collections.Counter(tally.wrong).items(), sep="\n", end="\n" * bool(tally.wrong))
    return bool(tally.wrong) or tally.refused != given.entries or tally.read != tally.intact
