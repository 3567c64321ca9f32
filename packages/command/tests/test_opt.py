"""`intarsia opt` as a process: every pass from a file, and what is wrong is named."""

from __future__ import annotations

import pytest

from intarsia import default_pipeline

PASSES = [stage.name for stage in default_pipeline().stages][:-1]  # the last gives what has no text


@pytest.fixture(scope="module")
def dumps(intarsia, folder):
    """Return the texts of a program with a constant, by the stage that gave them."""
    assert intarsia("explain", "script.py::constant", "--dump", "dumps").code == 0
    return {path.stem[3:]: path for path in folder.glob("dumps/*/*.ir")}


def options(*passes):
    return [word for name in passes for word in ("--pass", name)]


def test_every_pass_runs_from_a_file(intarsia, inside, dumps, tmp_path):
    assert sorted(dumps) == sorted(PASSES)
    last = tmp_path / "last.ir"
    done = intarsia("opt", dumps["recognise_attention"], *options(*PASSES), "-o", last, "--verify-each")
    assert (done.code, done.out) == (0, ""), done.err
    # from the partition on a program is several graphs, each of which has a dump of its own
    assert last.read_text() == "// partition 1\n" + dumps["emit"].read_text()
    for before, after in (("functionalize", "fold_constants"), ("schedule", "emit")):
        made = tmp_path / f"{after}.ir"
        assert inside("opt", dumps[before], "-p", after, "-o", made).code == 0
        expected = dumps[after].read_text()
        if expected.startswith("// unchanged since "):
            expected = inside("opt", dumps[after]).out
        assert made.read_text() == expected


def test_text_goes_through_a_pipe(intarsia, dumps):
    text = dumps["fuse"].read_text()
    tensors = ("--constants", dumps["fuse"].with_suffix(".pt"))
    done = intarsia("opt", *tensors, stdin=text)
    assert (done.code, done.out) == (0, text)
    assert "-o keeps them beside it" in done.err


def test_what_happens_between_is_shown(inside, dumps):
    done = inside("opt", dumps["partition"], *options("lower", "fuse"), "--time-passes", "--print-after", "lower")
    assert done.code == 0 and done.out.startswith("// level: Kernels 2")
    assert "lower: " in done.err and " ms\n" in done.err and "// after lower\n// level: Loops 2" in done.err
    assert "// after fuse" not in done.err
    done = inside("opt", dumps["partition"], *options("lower", "fuse"), "--print-after", "all")
    assert "// after lower" in done.err and "// after fuse" in done.err
    assert "fuse: Loops -> Kernels  (takes fuel)" in inside("opt", "--list").out


def test_fuel_stops_a_pass(inside, dumps):
    lowered = inside("opt", dumps["partition"], "-p", "lower", "--fuel", "lower=0").out
    assert "extern aten.add.Tensor" in lowered
    assert inside("opt", dumps["partition"], "-p", "lower", "--fuel", "0").out == lowered
    assert "extern" not in inside("opt", dumps["partition"], "-p", "lower", "--fuel", "1").out


def test_a_broken_rule_is_found(inside, dumps, tmp_path):
    text = dumps["fuse"].read_text()
    broken = tmp_path / "broken.ir"
    broken.write_text(text.replace("[i0: 3] add(", "[i0: 4] add(", 1))
    tensors = ("--constants", dumps["fuse"].with_suffix(".pt"))
    assert broken.read_text() != text
    done = inside("opt", broken, *tensors, "--verify-each")
    assert done.code == 1 and "violation(s) of the kernels dialect" in done.err and done.out == ""


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("nothing.ir",), "", "'nothing.ir' can't be read"),
        (("-p", "fus"), "", "line 1 of the IR text: the first line must be"),
        (("TEXT", "-p", "fus"), "", "no pass is called 'fus'; did you mean 'fuse'?"),
        (("TEXT", "-p", "emit"), "", "pass 'emit' takes Launched, but here the program is Half"),
        (("TEXT", "-p", "lower", "-p", "build"), "", "what pass 'build' gives has no text"),
        (("TEXT", "-p", "lower", "--fuel", "x"), "", "--fuel 'x' isn't PASS=N"),
        (("TEXT", "-p", "lower", "--fuel", "emit=1"), "", "unknown stage that takes fuel: 'emit'"),
        (("TEXT", "-p", "lower", "--print-after", "fuse"), "", "no pass to print after is called 'fuse'"),
        (("TEXT", "-o", "nowhere/x.ir"), "", "can't be written"),
        (("TEXT", "--constants", "script.py"), "", "'script.py' has no tensors"),
        (
            (),
            "// level: Half 2\n// dialect: aten 2\ngraph(%x: f32[2]) {\n  return (%y,)\n}\n",
            "line 4 of the IR text: %y",
        ),
    ],
)
def test_what_is_wrong_is_named(inside, dumps, arguments, stdin, said):
    given = [dumps["partition"] if word == "TEXT" else word for word in arguments]
    done = inside("opt", *given, stdin=stdin)
    assert done.code == 2 and done.out == "" and "Traceback" not in done.err
    assert said in done.err


GRAPH = """// dialect: aten 2
graph(%x: f32[2, 3]) {
  # model.py:1 in f
  %0: f32[2, 3] = aten.mul.Tensor(%x, 1)  #1
  # model.py:2 in f
  %1: f32[2, 3] = aten.sin.default(%0)  #2
  # model.py:3 in f
  %2: f32[2] = aten.sum.dim_IntList(%1, [1])  #3
  return (%2,)
}
origins
  1 model.py
    f: 1, 2, 3
"""


def test_a_graph_alone_is_read(inside):
    folded = inside("opt", "-p", "fold_constants", "--verify-each", stdin=GRAPH)
    assert folded.code == 0 and folded.out.startswith("// level: Functional 2\n") and "aten.mul" not in folded.out
    fused = inside("opt", *options("lower", "fuse", "schedule", "emit"), "--verify-each", stdin=GRAPH)
    assert fused.code == 0 and "\n// source\n" in fused.out, fused.err
    lowered = inside("opt", "-p", "lower", stdin=GRAPH).out
    loops = lowered[lowered.index("// dialect: loops") :]
    again = inside("opt", "-p", "fuse", stdin=loops)
    assert again.code == 0 and again.out.count("kernel[") == 1
    done = inside("opt", stdin="// dialect: torch 2\n")
    assert done.code == 2 and "which begins with `// level: ...`" in done.err
