"""Programs over the CPU and a GPU, on a machine without one: `python -m integration.fake_gpu [NAME...]`.

Each program of `integration.gpu.mixed` is captured for a device that only fake tensors are on, and goes through the
stages as far as kernels. These are interpreted with everything on the CPU and compared with eager there, gradients and
written inputs included; each gives a line of JSON. A process of its own, because a device can be named once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from unittest import mock

import torch
import torch.utils.backend_registration

import intarsia
import intarsia_fuser
import intarsia_ir.torch
import intarsia_loops
import intarsia_loops.kernels
import intarsia_lowering
from intarsia.levels import Half, Linked, Partition
from intarsia_ir.aten import constants_of, devices, parse_ir, print_ir
from intarsia_loops.program import Extern, Kernel, Program
from intarsia_tensorcapture.sizes import Sizes
from integration.gpu import mixed

CARD, GPU = "card", "cuda"


def main(names: list[str]) -> None:
    torch.utils.backend_registration._setup_privateuseone_for_python_backend(CARD)
    patches = (
        mock.patch.object(devices, "BESIDE", (*devices.BESIDE, CARD)),
        mock.patch.object(intarsia_ir.torch, "check_devices", lambda *_: None),
    )
    with patches[0], patches[1]:
        for name in names or mixed.PROGRAMS:
            print(json.dumps({"name": name, "graphs": check(name)}), flush=True)


def check(name: str) -> list[dict[str, Any]]:
    """Compare a program with eager; return how many kernels and which extern calls each of its graphs has.

    Raises:
        AssertionError: It differs.
    """
    case, graphs = mixed.PROGRAMS[name], list[dict[str, Any]]()
    card = Card()
    torch.manual_seed(0)
    function, inputs = card.made(case.make)
    torch.manual_seed(0)
    twin, theirs = case.make("cpu")

    def interpreted(half: Half) -> Linked:
        kernels = intarsia_loops.from_fx(lowered(half.graph_module))
        called = [str(item.target).removeprefix("aten.") for item in kernels.items if isinstance(item, Extern)]
        graphs.append({"kernels": sum(isinstance(i, Kernel) for i in kernels.items), "externs": called})
        view = intarsia_loops.to_fx(on_cpu(kernels))
        return Linked(lambda *args: intarsia_loops.kernels.interpret(view, *args), half.signature)

    def on_the_cpu(partition: Partition[Half]) -> Partition[Linked]:
        halves = [replace(h, layouts=tuple((*layout[:3], "cpu") for layout in h.layouts)) for h in partition.halves]
        return replace(partition.map(interpreted), halves=tuple(halves))

    stages = intarsia.default_pipeline().until(Half).stages
    end = intarsia.Stage("interpret", Partition[Half], Partition[Linked], on_the_cpu)
    pipeline = intarsia.Pipeline((*stages, end))
    with card.used(), torch.set_grad_enabled(case.train):
        call = intarsia.compile(function, pipeline=pipeline, options={"on_error": "raise"})
        for turn in range(2):
            ours = mixed.run(call, function, inputs, case.train, turn)
            mixed.same(ours, mixed.run(twin, twin, theirs, case.train, turn))
    return graphs


class Card:
    """Tensors on the CPU that are captured as on the card: those made there, and clones of them."""

    def __init__(self) -> None:
        self.there: dict[int, torch.Tensor] = {}  # by address, and alive, so that no other gets it

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.there

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        self.there[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def making(self, original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def made(*sizes: Any, device: Any = None, **how: Any) -> torch.Tensor:
            if device != CARD:
                return original(*sizes, device=device, **how)
            return self.put(original(*sizes, device="cpu", **how))

        return made

    def made(self, make: Callable[[str], Any]) -> Any:
        """Return a program for the card."""
        makers = {name: self.making(getattr(torch, name)) for name in ("randn", "empty")}
        with mock.patch.multiple(torch, **makers):
            return make(CARD)

    def used(self) -> ExitStack:
        """Return the context in which its tensors are captured as on the card."""
        fake_input, clone = Sizes.input, mixed.clone

        def on_card(sizes: Any, value: Any, real: torch.Tensor) -> Any:
            fake = fake_input(sizes, value, real)
            if self.holds(real):
                fake.fake_device = torch.device(CARD, 0)
            return fake

        stack = ExitStack()
        stack.enter_context(mock.patch.object(Sizes, "input", on_card))
        stack.enter_context(
            mock.patch.object(mixed, "clone", lambda x: self.put(clone(x)) if self.holds(x) else clone(x))
        )
        return stack


def lowered(gm: Any) -> Any:
    """Return the kernels of a graph, with the card taken for a GPU."""
    text = print_ir(gm).replace(f"'{CARD}", f"'{GPU}")
    loops = intarsia_lowering.lower(parse_ir(text, constants=constants_of(gm)), rng="eager")
    kernels = intarsia_fuser.apply(loops, intarsia_fuser.plan(loops, policy=intarsia_fuser.Greedy()))
    intarsia_loops.kernels.verify(kernels)
    return kernels


def on_cpu(program: Program) -> Program:
    """Return a program with everything on the CPU."""

    def moved(item: Any) -> Any:
        if not isinstance(item, Extern):
            return item
        there = [(k, torch.device("cpu") if isinstance(v, torch.device) else v) for k, v in item.kwargs]
        return replace(item, kwargs=tuple(there))

    buffers = {name: replace(buffer, device="cpu") for name, buffer in program.buffers.items()}
    return replace(program, buffers=MappingProxyType(buffers), items=tuple(map(moved, program.items)))


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # autograd's thread for the card doesn't end
