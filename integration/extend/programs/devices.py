"""A device of one's own, and the dialect that drives it: `integration.examples.own_device` has both."""

from __future__ import annotations

from dataclasses import replace

import torch

import intarsia
from intarsia import Pipeline, Stage
from intarsia.levels import Kernels, Linked
from intarsia_ir.errors import InvalidArgumentError, VerifyError
from integration.examples.own_device import TOY, Commands, commands_of, interpret, print_ir, toy_pipeline, verify
from integration.extend.programs.record import equal, equal_gradients, only_ours


def model(x, w):
    return torch.softmax(torch.relu(x @ w) * 2 + 1, -1)


def operands():
    return torch.randn(4, 6), torch.randn(6, 5)


@only_ours("device", "inference")
def inference(compile_):
    driven = []
    equal(compile_(model, pipeline=toy_pipeline(driven=driven)), model, *operands())
    assert driven[0].launched


@only_ours("device", "training")
def training(compile_):
    driven = []
    loss = lambda x, w: model(x, w).square().sum()
    equal_gradients(compile_(loss, pipeline=toy_pipeline(driven=driven)), loss, *operands())
    assert len(driven) == 2


@only_ours("device", "sizes that change")
def sizes(compile_):
    driven = []
    function = lambda x: (x * 2).sum(1)
    fast = compile_(function, pipeline=toy_pipeline(driven=driven))
    for n in (4, 5, 9):
        equal(fast, function, torch.randn(n, 6))
    assert len(driven) == 2


@only_ours("device", "its numbers decide how it is scheduled")
def numbers(compile_):
    tiles = []
    for width in (4, 32):
        driven = []
        target = replace(TOY, measured=replace(TOY.machine, vector_bytes=width))
        equal(compile_(model, pipeline=toy_pipeline(target, driven)), model, *operands())
        tiles.append(driven[0].program.tiles)
    assert tiles[0] != tiles[1]


@only_ours("device", "one that nobody described is refused by name")
def unknown(compile_):
    try:
        intarsia.Target("npu")
    except InvalidArgumentError as error:
        assert "'npu'" in str(error)
    else:
        raise AssertionError("a device of which nothing is known was taken")


def made(compile_):
    """Return the commands of the model."""
    driven = []
    equal(compile_(model, pipeline=toy_pipeline(driven=driven)), model, *operands())
    return driven[0].program


@only_ours("dialect", "as text")
def text(compile_):
    shown = print_ir(made(compile_)).splitlines()
    assert shown[0] == "// dialect: commands 1" and any(line.startswith("launch") for line in shown)


@only_ours("dialect", "interpreted")
def interpreted(compile_):
    x, w = operands()
    torch.testing.assert_close(interpret(made(compile_), x, w)[0], model(x, w))


@only_ours("dialect", "what breaks its rules is refused by their numbers")
def verified(compile_):
    program = made(compile_)
    try:
        verify(Commands(program.tiles, program.commands[::-1], program.contract))
    except VerifyError as error:
        assert {"C1", "C3"} <= {rule for rule, _, _ in error.findings}
    else:
        raise AssertionError("commands in a wrong order were taken")


@only_ours("dialect", "a level that stands where it can't is refused before anything runs")
def misplaced(compile_):
    pipeline = intarsia.default_pipeline()
    try:
        pipeline.before("fuse", Stage("commands", Kernels, Commands, commands_of))
    except InvalidArgumentError as error:
        assert "Kernels" in str(error)
    else:
        raise AssertionError("kernels were taken before fusion")


@only_ours("dialect", "as the last level, interpreted in place of a device")
def last(compile_):
    def run(program: Commands) -> Linked:
        return Linked(lambda *inputs: interpret(program, *inputs), program.contract.signature)

    stages = intarsia.default_pipeline(TOY).until(Kernels).stages
    ours = (Stage("commands", Kernels, Commands, commands_of), Stage("run", Commands, Linked, run))
    equal(compile_(model, pipeline=Pipeline((*stages, *ours))), model, *operands())


EXTENSIONS = [inference, training, sizes, numbers, unknown, text, interpreted, verified, misplaced, last]
