"""The cache under attack: whatever lies on the disk, an answer is right or absent, and the next write repairs it."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_runtime import Cache
from intarsia_runtime import cache as cache_module

KEY = Cache.key("a")
PAYLOAD = bytes(range(256)) * 40


def entry(cache: Cache, key: str = KEY) -> Path:
    return cache.directory / key[:2] / key


def test_round_trip(cache: Cache) -> None:
    assert cache.get(KEY) is None
    assert cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD
    assert Cache(cache.directory.parent).get(KEY) == PAYLOAD
    assert not list((cache.directory / "tmp").iterdir())


def test_empty_payload(cache: Cache) -> None:
    cache.put(KEY, b"")
    assert cache.get(KEY) == b""


def test_keys_depend_on_where_parts_end() -> None:
    keys = {Cache.key(), Cache.key(""), Cache.key("ab", "c"), Cache.key("a", "bc"), Cache.key("abc")}
    assert len(keys) == 5


@pytest.mark.parametrize("key", ["", "ab", "../../etc/passwd", KEY.upper(), KEY + "0", "g" * 64, f"{KEY}\n"])
def test_only_keys_are_paths(cache: Cache, key: str) -> None:
    with pytest.raises(InvalidArgumentError):
        cache.get(key)


def test_an_entry_that_another_process_writes_meanwhile_is_read(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read = cache_module.read_entry
    told: list[str] = []

    def late(root: Path, shard: str, key: str) -> bytes | None:
        found = read(root, shard, key)
        if not told:
            told.append(key)
            Cache(cache.directory.parent).put(KEY, PAYLOAD)
        return found

    monkeypatch.setattr(cache_module, "read_entry", late)
    assert cache.get(KEY) == PAYLOAD and told == [KEY] and not caplog.records
    entry(cache).chmod(0o666)
    assert cache.get(KEY) is None and "is refused" in caplog.text


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def only_header(path: Path) -> None:
    path.write_bytes(path.read_bytes().partition(b"\n")[0])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def link_to_good_copy(path: Path) -> None:
    other = path.parent.parent / "elsewhere"
    shutil.move(path, other)
    path.symlink_to(other)


def dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing")


def link_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_text("x")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def other_version(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b" v2 ", b" v9 ", 1))


def fan_out_is_a_file(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("x")


def fan_out_is_a_link(path: Path) -> None:
    other = path.parent.parent / "elsewhere"
    shutil.move(path.parent, other)
    path.parent.symlink_to(other / "nothing")


def gone(path: Path) -> None:
    shutil.rmtree(path.parent.parent)


ATTACKS = [
    truncate,
    empty,
    only_header,
    grow,
    link_to_good_copy,
    dangling_link,
    link_loop,
    folder,
    pipe,
    other_version,
    fan_out_is_a_file,
    fan_out_is_a_link,
    gone,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
def test_damaged_entry_is_made_again(cache: Cache, attack: Callable[[Path], None]) -> None:
    cache.put(KEY, PAYLOAD)
    attack(entry(cache))
    assert cache.get(KEY) is None
    assert cache.get_or_make(KEY, lambda: b"again") == b"again"
    assert cache.get(KEY) == b"again", "the entry was not repaired"


def test_every_flipped_bit_is_noticed(cache: Cache) -> None:
    cache.put(KEY, b"payload")
    good = entry(cache).read_bytes()
    for position in range(0, len(good) * 8, 3):
        bad = bytearray(good)
        bad[position // 8] ^= 1 << position % 8
        entry(cache).write_bytes(bad)
        assert cache.get(KEY) is None, position


def test_random_damage(cache: Cache) -> None:
    """Damaged copies: spliced, shuffled, overwritten, cut."""
    cache.put(KEY, PAYLOAD)
    good = entry(cache).read_bytes()
    numbers = random.Random(0)
    for _ in range(300):
        a, b = sorted(numbers.randrange(len(good) + 1) for _ in range(2))
        filler = numbers.randbytes(numbers.choice([0, b - a, 7]))
        bad = good[:a] + filler + good[b:]
        entry(cache).write_bytes(bad)
        assert cache.get(KEY) == (PAYLOAD if bad == good else None)


def test_swapped_entries(cache: Cache) -> None:
    other = Cache.key("b")
    cache.put(KEY, b"one")
    cache.put(other, b"two")
    one, two = entry(cache).read_bytes(), entry(cache, other).read_bytes()
    entry(cache).write_bytes(two)
    entry(cache, other).write_bytes(one)
    assert cache.get(KEY) is None
    assert cache.get(other) is None


def test_lock_that_cannot_be_had(cache: Cache) -> None:
    (cache.directory / "locks").mkdir()
    (cache.directory / "locks" / KEY[:2]).mkdir()
    with cache.lock(KEY) as held:
        assert not held
    assert cache.get_or_make(KEY, lambda: b"made") == b"made"


def test_patience_ends(cache: Cache) -> None:
    with cache.lock(KEY) as first:
        assert first
        start = time.monotonic()
        assert cache.get_or_make(KEY, lambda: b"made", patience_s=0.05) == b"made"
        assert time.monotonic() - start < 5


def test_a_failing_maker_leaves_the_lock_free(cache: Cache) -> None:
    def fail() -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get_or_make(KEY, fail)
    with cache.lock(KEY, patience_s=0.1) as held:
        assert held


def test_threads_make_an_entry_once(cache: Cache) -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        time.sleep(0.05)
        return PAYLOAD

    threads = [threading.Thread(target=cache.get_or_make, args=(KEY, make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def race(directory: Path, log: Path) -> None:
    cache = Cache(directory)

    def make() -> bytes:
        with log.open("a") as file:
            file.write("made\n")
        time.sleep(0.02)
        return b"payload"

    for n in range(10):
        assert cache.get_or_make(Cache.key(str(n)), make) == b"payload"


def test_processes_make_each_entry_once(tmp_path: Path) -> None:
    racer = multiprocessing.get_context("fork").Process
    racers = [racer(target=race, args=(tmp_path / "shared", tmp_path / "log")) for _ in range(6)]
    for process in racers:
        process.start()
    for process in racers:
        process.join(timeout=120)
    assert [process.exitcode for process in racers] == [0] * 6
    assert (tmp_path / "log").read_text().count("made") == 10


def test_killed_writer_leaves_nothing_for_long(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    left = cache.directory / "tmp" / "left"
    left.mkdir()
    (left / "entry").write_bytes(b"half")
    (cache.directory / "tmp" / "file").write_bytes(b"half")
    Cache(tmp_path)
    assert left.exists(), "another process may still be at work here"
    old = time.time() - 2 * 3600
    for path in (left, cache.directory / "tmp" / "file"):
        os.utime(path, (old, old))
    Cache(tmp_path)
    assert not list((cache.directory / "tmp").iterdir())


def test_the_directory_is_private(tmp_path: Path) -> None:
    (tmp_path / "v2").mkdir(mode=0o755)
    cache = Cache(tmp_path)
    cache.put(KEY, PAYLOAD)
    assert cache.directory.stat().st_mode & 0o077 == 0
    assert entry(cache).parent.stat().st_mode & 0o077 == 0


def test_a_directory_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(tmp_path).put(KEY, PAYLOAD)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    monkeypatch.setattr("intarsia_runtime.cache._make_private", _refuse_once(tmp_path))
    with pytest.warns(RuntimeWarning, match="belongs to user"):
        cache = Cache(tmp_path)
    assert cache.temporary
    assert cache.get(KEY) is None


def _refuse_once(directory: Path) -> Callable[[Path], None]:
    """The real check for `directory`; the temporary directory would fail the faked user id too, so it passes."""
    from intarsia_runtime.cache import _make_private

    return lambda root: _make_private(root) if directory in root.parents else (root / "tmp").mkdir(parents=True)


def test_entries_of_another_user_are_not_read(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KEY, PAYLOAD)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert cache.get(KEY) is None


def test_an_unusable_directory_warns_once_and_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.warns(RuntimeWarning, match="won't outlive") as seen:
        cache = Cache(tmp_path / "file" / "cache")
    assert len(seen) == 1
    assert cache.temporary
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get_or_make(KEY, lambda: b"made") == b"made"
        assert cache.get(KEY) == b"made"
    directory = cache.directory
    del cache
    assert not directory.exists()


def test_no_directory_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nothing"))
    monkeypatch.setattr("intarsia_runtime.cache.TEMPORARY", (str(tmp_path / "nothing, either"),))
    with pytest.raises(UnsupportedError, match="TMPDIR"):
        Cache(tmp_path / "file" / "cache")


def test_a_disk_that_becomes_full(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert not cache.put(KEY, PAYLOAD)
    assert cache.get_or_make(KEY, lambda: b"made") == b"made"
    assert cache.keep_failed(KEY, "text") is not None
