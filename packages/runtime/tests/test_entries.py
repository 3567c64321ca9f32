"""The entries of a cache directory: listed, checked, removed; nothing is made by looking."""

import os

from intarsia_runtime import Cache
from intarsia_runtime.entries import clear, entries, is_intact, problems_of


def test_entries_are_listed_and_damage_is_seen(tmp_path):
    cache = Cache(tmp_path)
    keys = sorted(Cache.key(str(n)) for n in range(5))
    for key in keys:
        assert cache.put(key, b"payload of " + key.encode())
    (tmp_path / "v2" / keys[0][:2] / "other").write_text("no entry")
    found = list(entries(tmp_path))
    assert [e.key for e in found] == keys and all(e.n_bytes > 75 and is_intact(e) for e in found)
    first, second, third, fourth, last = found
    first.path.write_bytes(second.path.read_bytes())
    second.path.unlink()
    second.path.symlink_to(last.path)
    third.path.write_bytes(b"")
    fourth.path.unlink()
    fourth.path.mkdir()
    assert [is_intact(e) for e in found] == [False, False, False, False, True]
    assert clear(tmp_path) == 5 and list(entries(tmp_path)) == [] and cache.get(keys[-1]) is None


def test_looking_makes_nothing(tmp_path):
    missing = tmp_path / "missing"
    assert list(entries(missing)) == [] and clear(missing) == 0 and problems_of(missing) == ()
    assert not missing.exists()


def test_problems_are_named(tmp_path):
    Cache(tmp_path)
    assert problems_of(tmp_path) == ()
    (tmp_path / "v2").chmod(0o755)
    assert "can be read by other users (mode 755)" in problems_of(tmp_path)[0]
    file = tmp_path / "file"
    file.write_text("")
    assert problems_of(file / "below") == (f"{file} is no directory",)


def test_a_folder_that_can_not_be_written_is_named(tmp_path, monkeypatch):
    tmp_path.chmod(0o500)
    if os.getuid() == 0:  # who may write everywhere: answer as its owner would be answered
        monkeypatch.setattr(os, "access", lambda path, how: bool(os.stat(path).st_mode & 0o200))
    assert "can't be written" in problems_of(tmp_path / "cache")[0]
