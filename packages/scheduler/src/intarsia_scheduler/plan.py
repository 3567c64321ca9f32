"""A schedule as data: for each kind of kernel, what was chosen, why, and what else could have been."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Machine, Target
from intarsia_loops.index import Atom
from intarsia_loops.kernels import kernel_text
from intarsia_loops.program import Buffer, Kernel

__all__ = ["CHOICES", "WALK", "Choice", "KernelPlan", "Merge", "SchedulePlan", "SchedulePolicy", "key_of"]

SCHEMA = 5
# what a policy decides for every kernel that is launched on a grid
CHOICES = ("order", "across", "lanes", "unroll", "space", "update")
# and, if it knows how a grid's tiles are laid out, for one on a grid
WALK = ("walk", "inner", "block", "tile", "warps", "stages", "persistent", "parts", "joins", "align")

# choices on a CPU that decide what else there is to choose, and what may be chosen
FIRST = ("narrow", "vector", "shape", "share")


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision.

    Args:
        value: A word or a number.
        why: One sentence.
        others: Values that mean the same program; what a search may try.
    """

    value: str | int
    why: str
    others: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """What was chosen for all kernels of one canonical form over buffers of one layout.

    Args:
        key: Names that form.
        choices: For a kernel that is launched on a grid, one for each word of `CHOICES`, and perhaps one for each of
            `WALK`; on a CPU one for each question of `intarsia_scheduler.vectors`; for one that may be several
            launches, `apart`, `spread`, `cut`, `chunk`, `finish`, as far as there was something to choose.
    """

    key: str
    choices: Mapping[str, Choice]

    def word(self, name: str) -> str:
        """Return a choice that is a word."""
        return str(self.choices[name].value)

    def number(self, name: str) -> int:
        """Return a choice that is a number."""
        return int(self.choices[name].value)


@dataclass(frozen=True, slots=True)
class Merge:
    """Neighbouring parts of a program that are one kernel.

    Args:
        parts: First and one past the last, counted over calls and over the kernels that are left when those that can't
            be one launch are taken apart.
        why: One sentence.
    """

    parts: tuple[int, int]
    why: str


NO_SETS = Choice(1, "kernels over other buffers are launches of their own")


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """How the kernels of a program run on a target.

    Args:
        target: What for.
        policy: Name and version of what decided.
        kernels: One for each kind of kernel, in order of first appearance.
        merges: What is made one kernel, in the order in which it is: a merge of merges comes after these.
        sets: Sets of buffers that one launch takes at most.
    """

    target: Target
    policy: str
    kernels: tuple[KernelPlan, ...]
    merges: tuple[Merge, ...] = ()
    sets: Choice = NO_SETS

    def get(self, key: str) -> KernelPlan | None:
        """Return the plan of a kind of kernel; None where it has none."""
        return next((k for k in self.kernels if k.key == key), None)

    def of(self, key: str) -> KernelPlan:
        """Return the plan of a kind of kernel.

        Raises:
            InvalidArgumentError: `schedule.kernel`: it has none; the plan is for another program.
        """
        found = self.get(key)
        if found is None:
            raise InvalidArgumentError(
                f"the plan has no kernel {key}; it is for another program", code="schedule.kernel"
            )
        return found

    def to_json(self) -> str:
        """Return the plan as JSON."""
        kernels = [{"key": k.key, "choices": {n: asdict(c) for n, c in k.choices.items()}} for k in self.kernels]
        data = {
            "schema": SCHEMA, "target": asdict(self.target), "policy": self.policy, "sets": asdict(self.sets),
            "merges": [asdict(m) for m in self.merges], "kernels": kernels,
        }  # fmt: skip
        return json.dumps(data, indent=1)

    @staticmethod
    def from_json(text: str) -> SchedulePlan:
        """Return the plan with this text.

        Raises:
            InvalidArgumentError: `schedule.json`: it is no plan of this schema.
        """
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise InvalidArgumentError(f"no schedule of schema {SCHEMA}", code="schedule.json")
        target: dict[str, Any] = dict(data["target"])
        measured = target.pop("measured")
        kernels = tuple(KernelPlan(k["key"], {n: _choice(c) for n, c in k["choices"].items()}) for k in data["kernels"])
        return SchedulePlan(
            Target(**target, measured=Machine(**measured) if measured else None),
            data["policy"],
            kernels,
            tuple(Merge((m["parts"][0], m["parts"][1]), m["why"]) for m in data["merges"]),
            _choice(data["sets"]),
        )

    def explain(self) -> str:
        """Return a line a choice."""
        lines = [f"{self.policy} for {self.target.device} {self.target.isa}: {len(self.kernels)} kinds of kernels"]
        lines += [f"  parts {m.parts[0]} to {m.parts[1] - 1} are one kernel: {m.why}" for m in self.merges]
        lines += [f"  up to {self.sets.value} sets a launch: {self.sets.why}"] if self.sets.value != 1 else []
        for k in self.kernels:
            lines += [f"  {k.key}  {name:7} {c.value!s:8} {c.why}" for name, c in k.choices.items()]
        return "\n".join(lines)

    def replaced(self, key: str, name: str, value: str | int, why: str = "chosen by hand") -> SchedulePlan:
        """Return the plan with one choice replaced; `apply` checks it.

        Without those that follow from it on a CPU: of the same nest of loops, or, where there may be other nests, of
        them all.
        """
        old = self.of(key)
        choices = {**old.choices, name: dataclasses.replace(old.choices[name], value=value, why=why)}
        for word in list(choices)[list(choices).index(name) + 1 :]:
            if name in FIRST or (name[-1].isdigit() and name.split()[-1] == word.split()[-1]):
                del choices[word]
        new = dataclasses.replace(old, choices=choices)
        return dataclasses.replace(self, kernels=tuple(new if k is old else k for k in self.kernels))


def _choice(data: Mapping[str, Any]) -> Choice:
    return Choice(data["value"], data["why"], tuple(data["others"]))


class SchedulePolicy(Protocol):
    """What decides. Any object with these members; nothing is registered, nothing is subclassed.

    Kernels are in canonical form, over buffers `b0, b1, ...`, except in `merge` and `check`. All but `choose`, `merge`
    and `check` are asked only where there is something to choose, and on a grid only.
    """

    @property
    def name(self) -> str:
        """Identifier kept in plans."""

    @property
    def version(self) -> str:
        """Changes whenever the same kernel may be scheduled in another way."""

    def choose(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Mapping[str, Choice]:
        """Return a choice for each word of `CHOICES`, and for each of `WALK` if an emitter is to print the launch."""

    def apart(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Say whether a kernel that isn't one launch of tiles, or scatters, is one (`"launch"`) or several."""

    def spread(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Say whether all walks of a kernel are one `"launch"`, or one each (`"launches"`)."""

    def cut(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Say whether reductions stay `"whole"`, or which axis of them is cut into parts of how many: `"0 128"`."""

    def chunk(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Return how many points of a scan are a chunk, or 0."""

    def finish(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Say who finishes a kernel that is cut: a `"launch"`, or the `"last program"` of the first."""

    def merge(self, kernel: Kernel, inner: Sequence[Atom], buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Say whether a reduction and the map that reads it become this kernel (1), or not (0).

        `inner`: points that the kernel walks once more than the reduction alone, if any.
        """

    def check(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Say whether a kernel asserts what was checked before it (1), which keeps it in one launch, or not (0)."""

    def sets(self, target: Target) -> Choice:
        """Return how many sets of buffers a launch of equal kernels takes at most."""


def key_of(kernel: Kernel, buffers: Mapping[str, Buffer]) -> str:
    """Return what names a kind of kernel: equal for equal work over buffers of equal layouts.

    Args:
        kernel: In canonical form.
        buffers: Layouts of its buffers; those that it keeps to itself may be missing.
    """
    return hashlib.sha256(kernel_text(kernel, buffers).encode()).hexdigest()[:16]
