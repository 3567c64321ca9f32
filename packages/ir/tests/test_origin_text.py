"""The user's lines in a text: what a reader sees of them, and that all of them come back."""

import hypothesis
import hypothesis.strategies as st
import pytest

from intarsia_ir import InvalidArgumentError, Origin, aten, meta
from intarsia_ir.origin_text import OriginTable, OriginWriter, lines_in_full, origins_of_comment, split_origins

TEXT = """\
// dialect: aten 2
graph(%x: f32[4]) {
  # model.py:12 in forward
  %0: f32[4] = aten.relu.default(%x)  #12 relu
  %1: f32[4] = aten.mul.Tensor(%0, 0.5)  #12 -, mul
  # model.py:12 in forward; layers.py:7 in join
  %2: f32[4] = aten.add.Tensor(%1, %x)  #12; #2:7 add
  # <string>:1 in <module>
  %3: f32[4] = aten.neg.default(%2)  #3:1 neg
  # linear.py:134 in Linear.forward
  %4: f32[4] = aten.sin.default(%3)  #4:134 sin
  # model.py:12 in <lambda>
  %5: f32[4] = aten.cos.default(%4)  #12.2 cos
  return (%5,)
}
origins under '/srv/project'
  1 src/model.py
    forward: 12
    <lambda>: 12.2
  2 blocks/layers.py
    join: 7
origins
  3 <string>
    <module>: 1
origins under '/usr/lib/python3/site-packages'
  4 torch/nn/modules/linear.py
    Linear.forward: 134
"""
MODEL, LINEAR = "/srv/project/src/model.py", "/usr/lib/python3/site-packages/torch/nn/modules/linear.py"
FORWARD = Origin(MODEL, 12, "forward")
EXPECTED = [
    (Origin(MODEL, 12, "forward", "relu"),),
    (FORWARD, Origin(MODEL, 12, "forward", "mul")),
    (FORWARD, Origin("/srv/project/blocks/layers.py", 7, "join", "add")),
    (Origin("<string>", 1, "<module>", "neg"),),
    (Origin(LINEAR, 134, "Linear.forward", "sin"),),
    (Origin(MODEL, 12, "<lambda>", "cos"),),
]


def origins_of(text: str) -> list[tuple[Origin, ...]]:
    return [meta.origins(node) for node in aten.parse_ir(text).graph.nodes if node.op == "call_function"]


def test_a_text_names_each_file_and_each_line_of_a_group_once() -> None:
    assert origins_of(TEXT) == EXPECTED
    assert aten.print_ir(aten.parse_ir(TEXT)) == TEXT


def test_a_text_reads_the_same_in_another_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / "moved.ir").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    text = (tmp_path / "moved.ir").read_text(encoding="utf-8")
    assert origins_of(text) == EXPECTED and aten.print_ir(aten.parse_ir(text)) == TEXT


def test_nodes_keep_their_lines_when_others_are_dropped_and_comments_too() -> None:
    lines = [line for line in TEXT.splitlines(keepends=True) if "%4: " not in line and not line.startswith("  # ")]
    assert origins_of("".join(lines).replace("(%4)", "(%3)")) == [*EXPECTED[:4], EXPECTED[5]]


def test_a_text_of_the_version_before_is_read() -> None:
    old = TEXT[: TEXT.index("origins")].replace("aten 2", "aten 1").splitlines()
    in_full = [OriginWriter().comment(where) for where in EXPECTED]
    calls = [line.partition("  #")[0] for line in old if line.startswith("  %")]
    body = [call + comment for call, comment in zip(calls, in_full, strict=True)]
    text = "\n".join([*old[:2], *body, "  return (%5,)", "}", ""])
    assert origins_of(text) == EXPECTED
    assert aten.print_ir(aten.parse_ir(text)) == TEXT


def test_lines_that_are_quoted_have_theirs_in_whole() -> None:
    lines = lines_in_full(TEXT)
    assert lines[2] == f"  %0: f32[4] = aten.relu.default(%x)  # {MODEL}:12 in forward (relu)"
    assert [line.partition("  #")[0] for line in lines[2:8]] == [f"  %{n}: {OPS[n]}" for n in range(6)]
    assert lines[8:] == ["  return (%5,)", "}"]


OPS = [line.partition(": ")[2].partition("  #")[0] for line in TEXT.splitlines() if line.startswith("  %")]
REFUSED = {
    ("#4:134 sin", "#4:135 sin"): "line 11 .* #4:135 is no line of a file below `origins`",
    ("#4:134 sin", "#4:134 sin cos"): "line 11 .* expected `#<line> <operation>",
    ("join: 7", "join: seven"): "line 21 .* below `origins` are files",
    ("  2 blocks/layers.py\n", "  2 blocks/layers.py\n    again: 7\n"): "line 22 .* #2:7 is a line of two places",
}


@pytest.mark.parametrize("edit", REFUSED)
def test_refused(edit: tuple[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match=REFUSED[edit]):
        aten.parse_ir(TEXT.replace(*edit))


FILES = st.sampled_from(
    ["model.py", "/a/model.py", "/a/b/c.py", "/a/../b.py", "//a/b.py", "/", "", "<stdin>", "C:\\x;y#z.py", "/a/ b.py"]
) | st.text()  # fmt: skip
ORIGINS = st.builds(Origin, FILES, st.integers(0, 20), st.sampled_from(["f", "g", "f (a)"]) | st.text(), st.text())


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.lists(st.lists(ORIGINS, max_size=4), max_size=6))
def test_any_lines_come_back(nodes: list[list[Origin]]) -> None:
    table = OriginTable()
    comments = [table.comment(where).strip() for where in nodes]
    groups = [line for where in nodes for line in table.group(where)]
    text = "\n".join([*comments, *groups, "}", *table.lines()]) + "\n"
    body, places = split_origins(text)
    assert body.split("\n") == [*comments, *groups, "}", ""]
    assert [list(origins_of_comment(comment, places, 1)) if comment else [] for comment in comments] == nodes
