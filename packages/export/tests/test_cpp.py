"""The example in C++ is built against libtorch and runs an artefact: what it gives is what Python gives."""

from __future__ import annotations

import ast
import dataclasses
import math
import shutil
import subprocess
from pathlib import Path

import artefacts
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from intarsia_export import host_plan, load
from intarsia_export.building import compile_command

EXAMPLE = Path(__file__).parent.parent / "examples" / "run.cpp"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the example."""
    if shutil.which("g++") is None:
        raise AssertionError("these tests need g++")
    made = tmp_path_factory.mktemp("built") / "run"
    done = subprocess.run(compile_command(EXAMPLE, made), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("file")
    made = artefacts.artefact(folder)
    plan, why = host_plan.host_plan(made.variants[0], {"x": torch.ones(5, 3)})
    assert why == ""
    dataclasses.replace(made, variants=(dataclasses.replace(made.variants[0], plan=plan),)).save(folder / "f")
    return folder / "f"


def run(example: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(example), *words], capture_output=True, text=True, check=False)


def test_the_example_is_short() -> None:
    lines = [line for line in EXAMPLE.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith("//")]) <= 33


def test_it_gives_what_python_gives(example: Path, path: Path, tmp_path: Path) -> None:
    done = run(example, str(path), str(tmp_path / "out"), "4x3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["float [4, 3]", "8", "float [4, 3]", "float [3]", "text"]
    x = torch.arange(12.0).reshape(4, 3) / 8
    result, _, same, weight, _ = load(path)(x)
    wanted = torch.cat([result.reshape(-1), same.reshape(-1), weight])
    torch.testing.assert_close(
        torch.frombuffer(bytearray((tmp_path / "out").read_bytes()), dtype=torch.float32), wanted
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["9x3"], "s0 <= 8 doesn't hold"),
        (["1x3"], "2 <= s0 doesn't hold"),
        (["4x4"], "x has the sizes [4, 4], and ?;3 is needed"),
        (["4"], "x has the sizes [4]"),
        (["i4x3"], "x has another element type"),
        (["4x3", "4x3"], "1 tensors are needed, not 2"),
    ],
)
def test_other_arguments_are_refused(example: Path, path: Path, tmp_path: Path, words: list[str], said: str) -> None:
    done = run(example, str(path), str(tmp_path / "out"), *words)
    assert done.returncode == 1
    assert said in done.stderr


def test_other_files_are_refused(example: Path, path: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "other").write_bytes(b"\x02" + b"\0" * 7 + b"{}")
    (tmp_path / "cut").write_bytes(path.read_bytes()[:-5])
    for name in ("empty", "other", "cut", "nowhere"):
        done = run(example, str(tmp_path / name), str(tmp_path / "out"), "4x3")
        assert done.returncode == 1
        assert "intarsia: " in done.stderr


# ---- sizes ------------------------------------------------------------------------------------------------------


def computed(postfix: str, symbols: dict[str, int]) -> int:
    """Carry out postfix notation as `size_of` in export.h does."""
    stack: list[int] = []
    actions = {
        "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a // b,
        "%": lambda a, b: a % b, "max": max, "min": min, "and": lambda a, b: int(bool(a and b)),
        "or": lambda a, b: int(bool(a or b)), "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b),
        "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b), ">": lambda a, b: int(a > b),
        ">=": lambda a, b: int(a >= b),
    }  # fmt: skip
    for word in postfix.split(","):
        if word in actions:
            b, a = stack.pop(), stack.pop()
            stack.append(actions[word](a, b))  # type: ignore[no-untyped-call]
        else:
            stack.append(symbols[word] if word in symbols else int(word))
    (found,) = stack
    return found


EXPRESSIONS = st.recursive(
    st.sampled_from(["s0", "s1", "1", "3", "(-2)"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        st.tuples(inner, st.sampled_from(["//", "%"]), st.sampled_from(["2", "s1"])).map(
            lambda p: f"({p[0]} {p[1]} {p[2]})"
        ),
        st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
        inner.map(lambda text: f"(-{text})"),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, st.integers(0, 9), st.integers(1, 9))
def test_postfix_notation_means_what_python_does(text: str, s0: int, s1: int) -> None:
    symbols = {"s0": s0, "s1": s1}
    assert computed(host_plan.postfix(text), symbols) == eval(text, {}, symbols)
    relation = f"({text}) <= s1 and not ({text} == 0) or s0 >= 3"
    assert computed(host_plan.postfix(relation), symbols) == bool(eval(relation, {}, symbols))


def test_what_has_no_postfix_notation_is_told() -> None:
    assert ast.parse("s0 / 2")
    with pytest.raises(host_plan.NoPlanError, match="s0 / 2"):
        host_plan.postfix("s0 / 2")


def test_a_float_is_written_exactly() -> None:
    for value in (0.1, 1e-300, -0.0, math.inf, -math.inf):
        word = host_plan.literal(value)
        assert (float(word[2:]), math.copysign(1.0, float(word[2:]))) == (value, math.copysign(1.0, value))
    assert math.isnan(float(host_plan.literal(math.nan)[2:]))
