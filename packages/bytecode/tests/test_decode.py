"""The decoder agrees with `dis` on the standard library; the table of stack entries covers every opcode."""

from __future__ import annotations

import dis
import sys
import types
from collections import Counter

import pytest

from intarsia_bytecode.decode import FOLDED, decode
from intarsia_bytecode.stack import ENTRIES

LIBRARY = ["argparse", "ast", "contextlib", "dataclasses", "enum", "functools", "inspect", "json.decoder", "typing"]


def codes_in(code):
    """Yield a code object and those nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def library_codes(name):
    """Yield the code objects of a module of the standard library."""
    import importlib
    import importlib.util

    spec = importlib.util.find_spec(name)
    yield from codes_in(spec.loader.get_code(name))


@pytest.mark.parametrize("name", LIBRARY)
def test_same_instructions_as_dis(name):
    for code in library_codes(name):
        plain = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
        decoded = decode(code)
        number_of = {i.offset: n for n, i in enumerate(plain)}
        covered = [n for step in decoded.instructions for n in range(step.first, step.last + 1)]
        assert covered == list(range(len(plain)))
        for step in decoded.instructions:
            theirs = plain[step.last]
            assert theirs.opname == step.op
            if theirs.opcode in dis.hasjrel or theirs.opcode in dis.hasjabs:
                goal = decoded.instructions[step.target]
                assert goal.first <= number_of.get(theirs.argval, goal.first) <= goal.last
            elif isinstance(step.value, str) and isinstance(theirs.argval, str):
                assert step.value == theirs.argval


ASK_TRUTH = ("POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "UNARY_NOT")


def test_asking_for_the_truth_is_one_step_and_comparing_is_another():
    def f(x, y):
        if x > y:
            return not x
        return 1 if x else not x < y

    steps = decode(f.__code__).instructions
    assert not [step for step in steps if step.op == "TO_BOOL"]
    asking = [step for step in steps if step.op in ASK_TRUTH or step.op.startswith("POP_JUMP_")]
    compared = [steps[step.index - 1].op == "COMPARE_OP" for step in asking]
    assert sorted(compared) == [False, False, True, True]
    assert all(
        step.within == step.first - (sys.version_info >= (3, 13) and after) for step, after in zip(asking, compared)
    )


@pytest.mark.parametrize("name", LIBRARY)
def test_same_handlers_as_dis(name):
    for code in library_codes(name):
        decoded = decode(code)
        theirs = dis._parse_exception_table(code)
        offsets = [i.offset for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
        for step, handler in zip(decoded.instructions, decoded.handlers, strict=True):
            at = offsets[step.within if step.op in ASK_TRUTH else step.last]
            expected = [(e.depth, e.lasti) for e in theirs if e.start <= at < e.end]
            assert ([(handler.depth, handler.lasti)] if handler else []) == expected


def test_decoded_code_is_kept_while_the_code_lives():
    code = compile("x = 1", "<test>", "exec")
    assert decode(code) is decode(code)


def opcodes():
    """Return the real opcodes of this Python."""
    pseudo = {"CACHE"} if "CACHE" in dis.opmap else set()
    return {n for n, number in dis.opmap.items() if number < 256 and not n.startswith("INSTRUMENTED_")} | pseudo


def test_every_opcode_has_its_stack_entries():
    assert not opcodes() - set(ENTRIES)


@pytest.mark.parametrize("name", LIBRARY)
def test_stack_entries_allow_the_effect(name):
    """What an instruction leaves can't be less than nothing: it takes at least what its effect removes."""
    seen = Counter()
    for code in library_codes(name):
        for step in decode(code).instructions:
            rule = ENTRIES[step.op]
            entries = rule if isinstance(rule, int) else rule(step.arg)
            if step.op != "CALL" and step.op not in FOLDED:
                number = dis.opmap[step.op]
                arg = step.arg if number >= dis.HAVE_ARGUMENT else None
                assert entries + dis.stack_effect(number, arg) >= 0, step.op
            seen[step.op] += 1
    assert seen
