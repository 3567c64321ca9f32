"""The public surface is the pinned one, and the checker notices every change of it."""

import enum
import subprocess
import sys
import types
from pathlib import Path

import pytest

import intarsia_testkit
from intarsia_testkit import (
    aten_programs,
    contract,
    differential,
    effect_programs,
    fired,
    golden,
    loops_programs,
    public_api,
    strategies,
    torch_programs,
)
from intarsia_testkit.public_api import check_public_api


def test_public_api() -> None:
    modules = (aten_programs, contract, differential, effect_programs, fired, golden, loops_programs)
    modules += (public_api, strategies, torch_programs)
    check_public_api(intarsia_testkit, Path(__file__).parent / "public_api.txt", *modules)


def test_light_modules_import_neither_torch_nor_hypothesis() -> None:
    names = "intarsia_testkit, intarsia_testkit.public_api, intarsia_testkit.golden, intarsia_testkit.fired"
    script = f"import sys, {names}; sys.exit(bool({{'torch', 'hypothesis', 'pytest'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def make_module(**names: object) -> types.ModuleType:
    module = types.ModuleType("sample")
    module.__dict__.update(names, __all__=sorted(names))
    return module


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Shape:
    """A class with one public method and one property."""

    def __init__(self, sides: "int") -> None:
        self.sides = sides

    def scale(self, factor: "float" = 1.0) -> "Shape":
        return self

    @property
    def area(self) -> "float":
        return 0.0

    def _hidden(self) -> None: ...


def double(x: "int", *, times: "int" = 2) -> "int":
    return x * times


def test_text() -> None:
    module = make_module(Colour=Colour, Shape=Shape, double=double, limit=3)
    assert public_api.public_api(module) == (
        "sample.Colour: enum RED, GREEN\n"
        "sample.Shape: class (sides: int) -> None\n"
        "sample.Shape.area: property\n"
        "sample.Shape.scale(self, factor: float = 1.0) -> Shape\n"
        "sample.double(x: int, *, times: int = 2) -> int\n"
        "sample.limit: int\n"
    )


def test_change_is_reported_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPDATE_API", raising=False)
    path = tmp_path / "public_api.txt"
    with pytest.raises(AssertionError, match="UPDATE_API=1 python -m pytest"):
        check_public_api(make_module(double=double), path)
    monkeypatch.setenv("UPDATE_API", "1")
    check_public_api(make_module(double=double), path)
    monkeypatch.delenv("UPDATE_API")
    check_public_api(make_module(double=double), path)
    with pytest.raises(AssertionError, match=r"\+sample\.limit: int"):
        check_public_api(make_module(double=double, limit=1), path)


@pytest.mark.parametrize("names", [None, ["zebra", "apple"], ["absent"]])
def test_bad_all_is_reported(names: list[str] | None) -> None:
    module = make_module(zebra=1, apple=2)
    if names is None:
        del module.__dict__["__all__"]
    else:
        module.__dict__["__all__"] = names
    with pytest.raises(AssertionError, match="__all__"):
        public_api.public_api(module)


def test_what_siblings_import_is_part_of_the_surface(tmp_path, monkeypatch):
    module, below = make_module(double=double), make_module(triple=double, quad=double)
    monkeypatch.setitem(sys.modules, "siblings_are_here", below)
    path = tmp_path / "public_api.txt"
    (tmp_path / "siblings.txt").write_text("siblings_are_here.triple\n")
    monkeypatch.setenv("UPDATE_API", "1")
    check_public_api(module, path)
    assert [line.partition("(")[0].split(".")[-1] for line in path.read_text().splitlines()] == ["double", "triple"]
    (tmp_path / "siblings.txt").write_text("siblings_are_here.five\n")
    with pytest.raises(AssertionError, match="lacks five"):
        check_public_api(module, path)
