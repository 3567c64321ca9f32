"""The golden-file helper compares whole texts and rewrites them on request only."""

from pathlib import Path

import pytest

from intarsia_testkit.fired import Tally
from intarsia_testkit.golden import check_golden


def test_difference_shows_diff_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPDATE_GOLDEN", raising=False)
    path = tmp_path / "a.ir"
    path.write_text("one\ntwo\n")
    check_golden("one\ntwo", path)
    with pytest.raises(AssertionError) as info:
        check_golden("one\nthree\n", path)
    message = str(info.value)
    assert "-two" in message and "+three" in message and "UPDATE_GOLDEN=1" in message
    assert path.read_text() == "one\ntwo\n"


def test_update_writes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPDATE_GOLDEN", "1")
    path = tmp_path / "golden" / "new.ir"
    check_golden("text", path)
    assert path.read_text() == "text\n"


def test_tally_orders_least_fired_first() -> None:
    tally = Tally("rules", ["a", "b"], print_at_exit=False)
    tally.count("b", 3)
    tally.count("c")
    assert list(tally.counts().items()) == [("a", 0), ("c", 1), ("b", 3)]
    assert tally.missing() == ["a"]
    assert tally.text().splitlines()[0] == "rules (3 names, 1 never fired)"
