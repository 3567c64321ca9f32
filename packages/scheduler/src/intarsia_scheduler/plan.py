"""A schedule as data: for each kind of kernel, what was chosen, why, and what else could have been."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Machine, Target
from intarsia_loops.kernels import print_ir
from intarsia_loops.program import Buffer, Kernel, Program
from intarsia_loops.rewrites import canonical

__all__ = ["CHOICES", "Choice", "KernelPlan", "SchedulePlan", "SchedulePolicy", "key_of"]

SCHEMA = 1
# what a policy decides for a kernel
CHOICES = ("order", "across", "lanes", "unroll", "space", "update")


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
        choices: One for each word of `CHOICES`.
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
class SchedulePlan:
    """How the kernels of a program run on a target.

    Args:
        target: What for.
        policy: Name and version of what decided.
        kernels: One for each kind of kernel, in order of first appearance.
    """

    target: Target
    policy: str
    kernels: tuple[KernelPlan, ...]

    def of(self, key: str) -> KernelPlan:
        """Return the plan of a kind of kernel.

        Raises:
            InvalidArgumentError: `schedule.kernel`: it has none; the plan is for another program.
        """
        found = next((k for k in self.kernels if k.key == key), None)
        if found is None:
            raise InvalidArgumentError(
                f"the plan has no kernel {key}; it is for another program", code="schedule.kernel"
            )
        return found

    def to_json(self) -> str:
        """Return the plan as JSON."""
        kernels = [{"key": k.key, "choices": {n: asdict(c) for n, c in k.choices.items()}} for k in self.kernels]
        data = {"schema": SCHEMA, "target": asdict(self.target), "policy": self.policy, "kernels": kernels}
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
        kernels = tuple(
            KernelPlan(k["key"], {n: Choice(c["value"], c["why"], tuple(c["others"])) for n, c in k["choices"].items()})
            for k in data["kernels"]
        )
        return SchedulePlan(
            Target(**target, measured=Machine(**measured) if measured else None), data["policy"], kernels
        )

    def explain(self) -> str:
        """Return a line a choice."""
        lines = [f"{self.policy} for {self.target.device} {self.target.isa}: {len(self.kernels)} kinds of kernels"]
        for k in self.kernels:
            lines += [f"  {k.key}  {name:7} {c.value!s:8} {c.why}" for name, c in k.choices.items()]
        return "\n".join(lines)

    def replaced(self, key: str, name: str, value: str | int, why: str = "chosen by hand") -> SchedulePlan:
        """Return the plan with one choice replaced; `apply` checks it."""
        old = self.of(key)
        choices = {**old.choices, name: dataclasses.replace(old.choices[name], value=value, why=why)}
        new = dataclasses.replace(old, choices=choices)
        return dataclasses.replace(self, kernels=tuple(new if k is old else k for k in self.kernels))


class SchedulePolicy(Protocol):
    """What decides. Any object with these members; nothing is registered, nothing is subclassed."""

    @property
    def name(self) -> str:
        """Identifier kept in plans."""

    @property
    def version(self) -> str:
        """Changes whenever the same kernel may be scheduled in another way."""

    def choose(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Mapping[str, Choice]:
        """Return a choice for each word of `CHOICES`."""


def key_of(kernel: Kernel, buffers: Mapping[str, Buffer]) -> str:
    """Return what names a kind of kernel: equal for equal work over buffers of equal layouts."""
    form, names = canonical(kernel)
    layouts = {f"b{k}": buffers[n] for k, n in enumerate(names)}
    text = print_ir(Program(layouts, tuple(sorted(form.reads())), (form,), ()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
