"""Where the rest of a frame can't be compiled, the error is raised inside of the blocks around the break."""

from __future__ import annotations

import sys
import threading

import pytest
from executor import Executor

from intarsia_bytecode import raise_inside
from intarsia_pyeval import Extension

LOG: list = []


class StopHere(Exception):
    pass


class Stopping(Executor):
    """Raises in the resume function that would be captured after `count` captures."""

    def __init__(self, count):
        super().__init__(Extension, force=True)
        self.count = count

    def _trampoline(self, code, names):
        if len(self.captures) < self.count:
            return super()._trampoline(code, names)
        return raise_inside(code, StopHere("rest"))


class Block:
    """Logs who enters and leaves; its own methods break."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        print(end="")
        LOG.append(f"+{self.name}")
        return self

    def __exit__(self, kind, value, traceback):
        LOG.append(f"-{self.name}")
        return False


LOCK = threading.Lock()


class Place:
    def __setattr__(self, name, value):
        print(end="")

    def __bool__(self):
        print(end="")
        return True


def with_block(n):
    with Block("a"):
        print(end="")
        n += 1
    return n


def nested_blocks(n):
    with Block("a") as first, Block("b"):
        print(end="", file=None)
        n += len(first.name)
        with Block("c"):
            n += 1
            print(end="")
        print(end="")
    return n


def last_instruction_of_a_block(n):
    place = Place()
    with Block("a"):
        place.x = n
    n += 1
    return n


def returns_out_of_a_block(n):
    with Block("a"):
        return print(n, file=sys.stderr)


def branches_out_of_a_block(n):
    place = Place()
    with Block("a"):
        if place:
            n += 1
    with Block("b"):
        while not place:
            n += 1
    return n


def acquired_before_try(n):
    LOCK.acquire()
    try:
        print(end="")
        n += 1
    finally:
        LOCK.release()
    return n


def loop_of_blocks(n):
    for i in range(2):
        with Block(i):
            if i:
                print(end="")
                continue
            print(end="")
            n += i
    return n


def handler_reads_what_the_rest_does_not(n):
    seen = n + 1
    place = Place()
    try:
        place.x = n
    except StopHere:
        LOG.append(seen)
        raise
    return n + 1


def as_value_on_the_stack(n):
    with Block("a"):
        return [n, n + 1, (print(end=""), n)]


PROGRAMS = [
    with_block,
    nested_blocks,
    last_instruction_of_a_block,
    returns_out_of_a_block,
    branches_out_of_a_block,
    acquired_before_try,
    loop_of_blocks,
    handler_reads_what_the_rest_does_not,
    as_value_on_the_stack,
]


def run(program, count):
    """Call `program` with what comes after `count` captures raising; return what happened and the log."""
    LOG.clear()
    executor = Stopping(count)
    try:
        return ("returned", executor.call(program, 3)), list(LOG), executor
    except StopHere as error:
        return ("raised", error), list(LOG), executor


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_blocks_are_left_wherever_the_rest_raises(program):
    LOG.clear()
    expected, log = program(3), list(LOG)
    stopped = 0
    for count in range(1, 40):
        (what, value), seen, _ = run(program, count)
        if what == "returned":
            assert (value, seen) == (expected, log)
            break
        stopped += 1
        entered = [str(entry)[1:] for entry in seen if str(entry)[0] == "+"]
        left = [str(entry)[1:] for entry in seen if str(entry)[0] == "-"]
        assert sorted(entered) == sorted(left)
        assert not LOCK.locked()
    assert stopped and what == "returned"


def test_a_handler_has_the_locals_that_it_reads():
    (what, _), seen, _ = run(handler_reads_what_the_rest_does_not, 1)
    assert (what, seen) == ("raised", [4])


def test_a_handler_of_the_user_may_go_on():
    def f(n):
        for i in range(3):
            try:
                print(end="")
                n += i
            except StopHere:
                n += 100
        return n

    (what, value), _, executor = run(f, 1)
    assert (what, value, len(executor.captures)) == ("returned", 106, 1)


def test_the_error_is_raised_once_and_let_go():
    (_, error), _, _ = run(with_block, 1)
    assert error.args == ("rest",)
    assert error.__traceback__.tb_next is not None


def test_other_code_raises_as_it_begins():
    with pytest.raises(StopHere):
        raise_inside(with_block.__code__, StopHere())
