"""A function that is cut at any of its instructions behaves as before: values, errors, their handlers and lines."""

from __future__ import annotations

import traceback
from types import FunctionType

import pytest

from intarsia_bytecode import (
    Stop,
    decode,
    entries,
    info_of,
    native_code,
    raise_inside,
    replacement_code,
    rest_of,
    stack_prefix,
)
from intarsia_bytecode.depths import stack_depths
from intarsia_bytecode.resume import StackEntry
from intarsia_bytecode.writer import Writer, parameters


def branches(a, b):
    c = a - b
    if c > 0:
        a += c
    elif c == 0:
        return "same"
    else:
        b = c * 2
    return a, b, c


def loops(a, b):
    total = 0
    for i in range(a):
        if i == b:
            continue
        total += i
        while total > 20:
            total -= b + 7
    return total


def handles(a, b):
    try:
        x = a // b
    except ZeroDivisionError as error:
        x = str(error)
    finally:
        a += 1
    return a, x


def with_block(a, b):
    log = []

    class Block:
        def __enter__(self):
            log.append("in")

        def __exit__(self, kind, *rest):
            log.append(kind.__name__ if kind else "out")
            return True

    with Block():
        log.append(a // b)
    return log


def closes_over(a, b):
    total = 1

    def add(n):
        nonlocal total
        total += n
        return total

    add(a)
    return add(b) + total


def comprehends(a, b):
    made = {i: [j * a for j in range(b)] for i in range(a) if i != b}
    a += len(made)
    return made, a


def shares_slots(a, b):
    """Comprehensions whose variables have the name of a cell, captured or not (inlined on 3.12 and newer)."""
    a += 0
    x = a
    made = [x * 2 for x in range(b)]
    a += len(made)
    calls = [lambda: x + y for x in range(b) for y in range(a) if x != y]
    nested = [[x + 1 for x in range(x)] for x in range(b)]
    b += 1
    return made, [call() for call in calls][:5], nested, {x: x for x in nested[0]}, (lambda: (x, a, b))()


def fails_in_a_comprehension(a, b):
    b += 0
    x = b
    get = [lambda: x for x in range(a)]
    try:
        return [a // x for x in [call() for call in get]]
    except ZeroDivisionError:
        b += 1
    return (lambda: x)(), b


def raises(a, b):
    words = ["x"] * a
    return words[b]


FUNCTIONS = [
    branches,
    loops,
    handles,
    with_block,
    closes_over,
    comprehends,
    shares_slots,
    fails_in_a_comprehension,
    raises,
]
ARGUMENTS = [(3, 2), (2, 2), (0, 4), (4, 0), (9, 3)]


def outcome(function, *args):
    """Return what a call gives, or the class, text and lines of what it raises."""
    try:
        return repr(function(*args))
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)[1:]]
        return type(error).__name__, str(error), lines[-1:]


def stops(code, *, told=True):
    """Yield every place where only the operands of an instruction lie on the stack."""
    for step, depth in zip(decode(code).instructions, stack_depths(code), strict=True):
        if depth == entries(step) and step.op not in ("RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR"):
            yield Stop(code, step.index, code.co_varnames, depth, 0, told=told)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_original_code_is_cut_anywhere(function):
    cuts = 0
    for stop in stops(function.__code__):
        found = native_code(stop)
        if found is None:
            continue
        code, resumes = found
        cuts += bool(resumes)
        made = FunctionType(code, globals(), function.__name__, function.__defaults__, function.__closure__)
        for args in ARGUMENTS:
            assert outcome(made, *args) == outcome(function, *args), (stop.index, args)
    assert cuts >= 1


def captured_later(a, b):
    """A variable that only a function made at the end captures."""
    n = 0
    while n < b:
        n += 1
        if a > n:
            break
    else:
        a = -n
    if n > 2:
        return (lambda: (a, b, n))()
    return n


def with_rests_cut(code, level):
    """Yield versions of code that is cut, and whose rests are cut again; the rests are constants of the code."""
    for stop in stops(code):
        found = native_code(stop)
        if found is None or not found[1]:
            continue
        made, resumes = found
        yield made
        for rest in resumes.values() if level else ():
            for other in with_rests_cut(rest, level - 1):
                yield made.replace(co_consts=tuple(other if c is rest else c for c in made.co_consts))


@pytest.mark.parametrize("function", [captured_later, closes_over, shares_slots], ids=lambda f: f.__name__)
def test_rests_are_cut_again(function):
    cuts = 0
    for code in with_rests_cut(function.__code__, 1):
        made = FunctionType(code, globals(), function.__name__, function.__defaults__, function.__closure__)
        for args in ARGUMENTS:
            assert outcome(made, *args) == outcome(function, *args), args
        cuts += 1
    assert cuts > 1


def straight(a, b):
    return (a * 3, -b, [a, b][a > b], a + (b - (a, b)[0] * 2) * (a - 7))


def test_stack_entries_below_the_operands_go_on_in_the_rest():
    """The code up to the cut is run as it was; what lies below the operands is kept in locals and handed on."""
    code = straight.__code__
    decoded, lying = decode(code), stack_depths(code)
    originals = replaced_instructions(code)
    cuts = 0
    for step in decoded.instructions:
        below = lying[step.index] - entries(step)
        if below <= 0 or step.op == "RETURN_VALUE":
            continue
        out = Writer(code, step.line)
        kept = [f"{stack_prefix(code)}_{i}" for i in range(below)]
        operands = [out.temporary() for _ in range(entries(step))]
        for name in [*reversed(operands), *reversed(kept)]:
            out.emit("STORE_FAST", name)
        for name in operands:
            out.emit("LOAD_FAST", name)
        carried = tuple(StackEntry("value", (name,)) for name in kept)
        bound = frozenset(parameters(code))
        rest = rest_of(Stop(code, step.index, code.co_varnames, lying[step.index], 0, carried, bound=bound))
        made = replacement_code(code, [*originals[1 : step.first], *out.body, *rest.items])
        for args in ARGUMENTS:
            assert outcome(FunctionType(made, globals()), *args) == outcome(straight, *args), step
        cuts += 1
    assert cuts > 5


def replaced_instructions(code):
    """Return the assembler's instructions of a code object."""
    from bytecode import Bytecode, Instr

    return [item for item in Bytecode.from_code(code) if isinstance(item, Instr)]


def test_an_error_is_raised_inside_of_the_blocks_around_the_cut():
    code = handles.__code__
    stop = next(s for s in stops(code) if decode(code).instructions[s.index].op == "BINARY_OP")
    made, resumes = native_code(stop)
    (rest,) = resumes.values()
    assert info_of(rest) is not None and info_of(code) is None
    wrong = raise_inside(rest, ZeroDivisionError("planted"))
    changed = made.replace(co_consts=tuple(wrong if c is rest else c for c in made.co_consts))
    assert FunctionType(changed, globals())(4, 2) == (5, "planted")


def test_an_error_for_code_that_is_no_rest_is_raised_at_once():
    with pytest.raises(KeyError, match="planted"):
        raise_inside(handles.__code__, KeyError("planted"))


def counts(a, b):
    while a < b:
        a += 1
    return a


def rests_at_conditions(code):
    """Return the rests of code that is cut at each of its conditional jumps, by the number of the jump."""
    jumps = [s for s in stops(code) if decode(code).instructions[s.index].op.startswith("POP_JUMP")]
    return [list(native_code(stop)[1].values()) for stop in jumps]


def test_the_two_conditions_of_a_loop_are_two_places():
    """The one at its end has broken before only once it was cut itself."""
    before, at_end = rests_at_conditions(counts.__code__)
    assert before and at_end and not any(info_of(rest).native for rest in (*before, *at_end))
    body = max(before, key=lambda rest: len(rest.co_code))  # the other rest is `return a`
    ((*once,),) = rests_at_conditions(body)
    assert once and not any(info_of(rest).native for rest in once)
    around = max(once, key=lambda rest: len(rest.co_code))
    ((*twice,),) = rests_at_conditions(around)
    assert twice and all(info_of(rest).native for rest in twice)
