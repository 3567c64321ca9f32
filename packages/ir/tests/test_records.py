"""Records are values, sources read like Python, and every error renders the same four fields."""

import dataclasses

import pytest

import intarsia_ir as ir


def test_sources_read_like_python() -> None:
    source = ir.ItemSource(ir.AttributeSource(ir.ArgumentSource("self"), "layers"), 0)
    assert str(ir.TypeSource(source)) == "type(self.layers[0])"
    assert str(ir.AnswerSource(source)) == "operator.call(self.layers[0])"
    assert str(ir.ReferentSource(source)) == "self.layers[0]()"
    assert str(ir.GlobalSource("table")) == "globals['table']"
    assert str(ir.CellSource("n")) == "cell['n']"


def test_records_are_frozen_values() -> None:
    one, two = ir.InputSpec("x"), ir.InputSpec("x")
    assert one == two and hash(one) == hash(two)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "y"  # type: ignore[misc]


def test_error_text_has_every_field() -> None:
    where = (ir.Origin("model.py", 3, "forward"),)
    error = ir.UnsupportedError("the value 3 is odd", code="test.odd", where=where, hints=("use 4",))
    assert str(error) == "the value 3 is odd [test.odd]\n  at model.py:3 in forward\n  hint: use 4"


def test_every_error_is_an_intarsia_error() -> None:
    errors = [getattr(ir, name) for name in ir.__all__ if isinstance(getattr(ir, name), type)]
    classes = [cls for cls in errors if issubclass(cls, Exception)]
    assert len(classes) == 7 and all(issubclass(cls, ir.IntarsiaError) for cls in classes)


def test_needs_fact_names_the_relation() -> None:
    error = ir.NeedsFact("s0 >= 2")
    assert error.relation == "s0 >= 2" and "s0 >= 2" in str(error)


def test_verify_error_lists_all_findings() -> None:
    error = ir.VerifyError("aten", [("A1", "add", "broken"), ("A6", "mul", "no value")], excerpt="%0 = ...")
    assert "2 violation(s)" in str(error) and "A6 at mul: no value" in str(error) and "%0 = ..." in str(error)
