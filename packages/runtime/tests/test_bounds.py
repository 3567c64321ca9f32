"""The cache takes no more room than it may: what wasn't used for the longest time goes first."""

from __future__ import annotations

import os
import time
from pathlib import Path

from intarsia_runtime import Cache
from intarsia_runtime.bounds import note_use, trim

KEYS = [Cache.key(str(n)) for n in range(40)]


def filled(cache: Cache) -> None:
    """Put 40 entries of 1,000 bytes and a header, each used an hour before the next one."""
    for n, key in enumerate(KEYS):
        cache.put(key, bytes(1000))
        at = time.time() - 3600 * (len(KEYS) - n)
        os.utime(cache.directory / key[:2] / key, (at, at))


def kept(cache: Cache) -> list[bool]:
    return [cache.get(key) is not None for key in KEYS]


def size(cache: Cache) -> int:
    return sum(path.stat().st_size for path in cache.directory.glob("??/*"))


def test_what_was_used_last_stays(cache: Cache) -> None:
    filled(cache)
    for key in KEYS[:4]:
        assert cache.get(key) is not None  # reading is a use
    trim(cache.directory, size(cache) // 2)
    left = kept(cache)
    assert all(left[:4]) and not any(left[4:23]) and all(left[-12:])


def test_below_the_limit_nothing_goes(cache: Cache) -> None:
    filled(cache)
    assert trim(cache.directory, size(cache)) == size(cache) and all(kept(cache))


def test_a_cache_that_is_written_to_for_long_stays_within_its_limit(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=32_000)
    for n in range(200):
        cache.put(Cache.key(str(n)), bytes(1000))
        assert size(cache) <= 32_000 * 17 // 16 + 1200, n
    assert size(cache) > 20_000 and cache.get(Cache.key("199")) is not None


def test_one_process_finds_what_others_left(tmp_path: Path) -> None:
    filled(Cache(tmp_path))
    cache = Cache(tmp_path, limit_bytes=20_000)
    cache.put(Cache.key("new"), b"")
    assert size(cache) <= 20_000 and cache.get(Cache.key("new")) == b""


def test_failed_sources_count(cache: Cache) -> None:
    for key in KEYS:
        cache.keep_failed(key, "x" * 1000)
    cache.put(KEYS[0], bytes(1000))
    trim(cache.directory, 8_000)
    assert len(list((cache.directory / "failed").iterdir())) == 5


def test_an_entry_larger_than_the_limit_is_served_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=100)
    assert cache.get_or_make(KEYS[0], lambda: bytes(1000)) == bytes(1000) and size(cache) == 0


def test_noting_a_use_changes_times_by_the_minute(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    for age, noted in ((3600, True), (5, False)):
        at = time.time() - age
        os.utime(path, (at, at))
        note_use(path)
        assert (path.stat().st_mtime > at + 1) is noted
    note_use(tmp_path / "missing")
