"""Records are values, sources read like Python, and every error renders the same four fields."""

import dataclasses
import pickle

import pytest

import intarsia_ir as ir


def test_sources_read_like_python() -> None:
    source = ir.ItemSource(ir.AttributeSource(ir.ArgumentSource("self"), "layers"), 0)
    assert str(ir.TypeSource(source)) == "type(self.layers[0])"
    assert str(ir.AnswerSource(source)) == "operator.call(self.layers[0])"
    assert str(ir.ReferentSource(source)) == "self.layers[0]()"
    assert str(ir.GlobalSource("table")) == "globals['table']"
    assert str(ir.CellSource("n")) == "cell['n']"


def deep(n: int) -> ir.Source:
    source: ir.Source = ir.ArgumentSource("x")
    for _ in range(n):
        source = ir.AttributeSource(source, "inner")
    return source


def test_sources_are_hashed_however_deep_they_are() -> None:
    # deeper than Python's stack
    assert hash(deep(10_000)) == hash(deep(10_000)) != hash(deep(9_999))


def test_the_hash_of_a_source_is_kept_and_travels_with_nothing() -> None:
    class Key:
        hashed = 0

        def __hash__(self) -> int:
            self.hashed += 1
            return 3

    key = Key()
    source = ir.ItemSource(ir.ArgumentSource("x"), key)
    assert {source: "found"}[source] == "found" and key.hashed == 1
    again = pickle.loads(pickle.dumps(deep(3)))
    assert again == deep(3) and hash(again) == hash(deep(3))
    assert hash(ir.ItemSource(source, 1)) != hash(ir.DictItemSource(source, 1))


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
