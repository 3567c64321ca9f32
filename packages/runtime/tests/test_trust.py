"""What is refused in a cache directory: what others own, can write or can read the secret of, and what isn't signed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from intarsia_runtime import Cache
from intarsia_runtime.trust import read_secret, signed

KEY = Cache.key("a")


def entry(cache: Cache) -> Path:
    return cache.directory / KEY[:2] / KEY


@pytest.fixture
def kept(cache: Cache) -> Cache:
    assert cache.put(KEY, b"mine") and cache.get(KEY) == b"mine"
    return cache


def group_writes_the_entry(cache: Cache) -> None:
    entry(cache).chmod(0o660)


def all_write_the_entry(cache: Cache) -> None:
    entry(cache).chmod(0o602)


def others_write_its_folder(cache: Cache) -> None:
    entry(cache).parent.chmod(0o777)


def others_write_the_directory(cache: Cache) -> None:
    cache.directory.chmod(0o770)


def others_read_the_secret(cache: Cache) -> None:
    (cache.directory / "secret").chmod(0o644)


def no_secret(cache: Cache) -> None:
    (cache.directory / "secret").unlink()


def another_secret(cache: Cache) -> None:
    (cache.directory / "secret").write_bytes(bytes(32))


def a_short_secret(cache: Cache) -> None:
    (cache.directory / "secret").write_bytes(b"")
    entry(cache).write_bytes(signed(b"", KEY, b"theirs"))


def a_linked_secret(cache: Cache) -> None:
    other = cache.directory / "other"
    (cache.directory / "secret").rename(other)
    (cache.directory / "secret").symlink_to(other)


def the_secret_is_a_folder(cache: Cache) -> None:
    no_secret(cache)
    (cache.directory / "secret").mkdir()


REPAIRED = (
    group_writes_the_entry,
    all_write_the_entry,
    others_read_the_secret,
    no_secret,
    another_secret,
    a_short_secret,
    a_linked_secret,
    the_secret_is_a_folder,
)


@pytest.mark.parametrize("attack", REPAIRED, ids=lambda f: f.__name__)
def test_what_is_not_trusted_is_made_again(kept: Cache, attack: Callable[[Cache], None]) -> None:
    attack(kept)
    assert kept.get(KEY) is None
    assert kept.get_or_make(KEY, lambda: b"again") == b"again"
    assert kept.get(KEY) == b"again" and entry(kept).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("attack", [others_write_its_folder, others_write_the_directory], ids=lambda f: f.__name__)
def test_folders_that_others_can_write_are_refused(kept: Cache, attack: Callable[[Cache], None]) -> None:
    attack(kept)
    assert kept.get(KEY) is None
    with pytest.warns(RuntimeWarning, match="can be written by other users .*remove it, or set another directory"):
        assert kept.get_or_make(KEY, lambda: b"again") == b"again"
    assert kept.get(KEY) is None


def test_a_directory_that_others_can_write_is_not_used(kept: Cache) -> None:
    others_write_the_directory(kept)
    with pytest.warns(RuntimeWarning, match="can be written by other users"):
        other = Cache(kept.directory.parent)
    assert other.temporary and other.get(KEY) is None


def test_whatever_the_umask_nobody_else_can_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "a" / "b")
        cache.put(KEY, b"mine")
    finally:
        os.umask(before)
    assert cache.get(KEY) == b"mine"
    modes = {path.name: path.stat().st_mode & 0o777 for path in cache.directory.rglob("*")}
    assert set(modes.values()) <= {0o600, 0o700} and modes["secret"] == 0o600
    assert cache.directory.stat().st_mode & 0o777 == 0o700


def test_each_directory_has_its_own_secret(tmp_path: Path) -> None:
    caches = [Cache(tmp_path / name) for name in "ab"]
    [cache.put(KEY, b"mine") for cache in caches]
    first, second = (read_secret(cache.directory) for cache in caches)
    assert first and second and first != second
    entry(caches[1]).write_bytes(entry(caches[0]).read_bytes())
    assert caches[1].get(KEY) is None, "entries of another directory aren't taken"


def test_where_links_can_not_be_made_there_is_a_secret_all_the_same(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert cache.put(KEY, b"mine") and cache.get(KEY) == b"mine"
