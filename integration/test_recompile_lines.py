"""Recompilations as users read them: a line each, in their names; a storm once; a wrong topic at import."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch

import intarsia


class Settings:
    scale = 2
    name = "one"


settings = Settings()


@pytest.fixture(autouse=True)
def fresh():
    settings.scale, settings.name = 2, "one"
    intarsia.reset()
    yield
    intarsia.reset()


def sized(x):
    return x.sin() + 1


def scaled(x):
    return x * settings.scale


def named(x):
    return x + len(settings.name)


def broken(x):
    y = x.sin()
    print(end="")
    return y * settings.scale + x.shape[0]


def lines_of(function, *calls, between=lambda: None, **keywords):
    told = intarsia.explain(function, backend="eager", **keywords)
    found = []
    for number, call in enumerate(calls):
        if number:
            between()
        found.append(told(*call).recompiles)
    return found


def test_a_size_that_changes_names_mark_dynamic():
    first, (line,) = lines_of(sized, (torch.ones(3),), (torch.ones(5),))
    assert first == ()
    assert re.match(r"sized at .*test_recompile_lines\.py:\d+ is compiled again: x was ", line) and "\n" not in line
    assert "(3,)" in line and "(5,)" in line and re.search(r"at .*test_recompile_lines\.py:\d+ in sized", line)
    assert "remedy: call intarsia.mark_dynamic(x, 0) before the first call" in line
    marked = torch.ones(3)
    intarsia.mark_dynamic(marked, 0)
    assert lines_of(sized, (marked,), (torch.ones(5),)) == [(), ()], "the remedy helps"


def test_a_number_of_an_object_names_a_tensor_and_an_attribute_names_hoisting():
    _, (line,) = lines_of(scaled, (torch.ones(3),), (torch.ones(3),), between=lambda: setattr(settings, "scale", 2.5))
    assert ".scale" in line and re.search("remedy: .*settings", line)
    _, (line,) = lines_of(named, (torch.ones(3),), (torch.ones(3),), between=lambda: setattr(settings, "name", "four"))
    assert "name was 'one', now it is 'four'" in line and "or hoist it: read it before" in line


def test_what_changes_on_every_call_is_told_once():
    def longer():
        settings.name += "x"

    told = lines_of(named, *[(torch.ones(3),)] * 7, between=longer)
    assert [len(lines) for lines in told] == [0, 1, 1, 1, 1, 1, 1], "each call is explained by itself"

    def program(x):
        for _ in range(6):
            settings.name += "x"
            x = step(x)
        return x

    @torch.compiler.disable(recursive=False)
    def step(x):
        return named(x)

    ((*first, last),) = lines_of(program, (torch.ones(3),))
    assert len(first) == 2 and all("is compiled again: " in line for line in first)
    assert "is compiled again and again, further times aren't told: " in last and "remedy: " in last


def test_what_goes_on_after_a_break_has_the_users_name():
    told = intarsia.explain(broken, backend="eager")
    line = broken.__code__.co_firstlineno + 2
    text = str(told(torch.ones(3)))
    assert f"broken (after the break in line {line})" in text
    assert "__resume_at_" not in text and "__stack" not in text
    settings.scale = 2.5
    again = told(torch.ones(3))
    assert any(f"broken (after the break in line {line}) at " in found for found in again.recompiles), again.recompiles
    assert not re.search("__resume_at_|__stack", "".join(again.recompiles) + str(again))


SCRIPT = """
import torch
import intarsia
f = intarsia.compile(lambda x: x, backend="eager")
def g(x, name):
    return x + len(name)
g = intarsia.compile(g, backend="eager")
for n in range(12):
    g(torch.ones(3), "x" * n)
"""


def process(tmp_path, topics):
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "INTARSIA_LOGS": topics}
    return subprocess.run([sys.executable, "-W", "always", script], env=environment, capture_output=True, text=True)


def test_the_log_has_a_line_each_and_a_storm_once(tmp_path):
    done = process(tmp_path, "recompiles")
    lines = [line for line in done.stderr.splitlines() if line.startswith("I intarsia.recompiles: ")]
    assert done.returncode == 0 and len(lines) == 4, done.stderr
    assert all("g at " in line and "remedy: " in line for line in lines)
    assert "again and again" in lines[2] and "runs in eager from now on" in lines[3]


def test_a_wrong_topic_is_told_at_import_and_once(tmp_path):
    done = process(tmp_path, "recompile")
    said = [line for line in done.stderr.splitlines() if "no topic of logs" in line]
    assert done.returncode == 0 and len(said) == 1 and "did you mean 'recompiles'" in said[0]
    assert "program.py:3: UserWarning" in said[0], "the line that imports it"
