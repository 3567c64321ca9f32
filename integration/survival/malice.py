"""Entries by somebody else: machine code that leaves a mark when it is loaded, put where the cache looks for its own.

Some are forged without the secret, some carry a right signature but lie where others can write, some take the place of
a good entry while it is being loaded. None may run, and each time the result must be right. That the mark is left at
all where the code is loaded on purpose is looked at first.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import intarsia_runtime
from intarsia_ir.records import KernelSource, Launch
from intarsia_runtime import Cache, Library
from intarsia_runtime.trust import SCHEMA, read_secret, signed
from integration.survival.compilers import Remembering

__all__ = ["Attack", "attacks", "main", "ran"]

GOOD = 'extern "C" void seg0(float* x, float* y) { for (int i = 0; i < 8; i++) y[i] = x[i] + 1; }'
EVIL = """
extern "C" int open(const char*, int, ...);
extern "C" void seg0(float* x, float* y) { for (int i = 0; i < 8; i++) y[i] = 666; }
__attribute__((constructor)) static void mark() { open("MARK", 0102, 0600); }
"""
NOBODY = 65534


class Scene:
    """A cache with a good entry, and code that isn't."""

    def __init__(self, folder: Path) -> None:
        self.mark, self.theirs = folder / "mark", folder / "theirs"
        self.theirs.mkdir()
        self.source = KernelSource(GOOD, "cpp", launches=(Launch("seg0", ("x", "y")),))
        self.compiler = Remembering(folder)
        self.target = replace(intarsia_runtime.detect_target(), compiler=self.compiler.path)
        text = EVIL.replace("MARK", str(self.mark))
        bad = replace(self.source, text=text)
        self.evil = self._image(bad, folder / "evil")
        self.mark.unlink()  # building it loaded it
        self.directory = folder / "cache"
        self.root = self.directory / SCHEMA
        self.begin()

    def _image(self, source: KernelSource, folder: Path) -> bytes:
        cache = Cache(folder)
        intarsia_runtime.build(source, self.target, cache=cache)
        (path,) = cache.directory.glob("??/*")
        return cache.get(path.name) or b""

    def begin(self) -> None:
        """Make the cache anew, with a good entry in it."""
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(self.theirs)
        self.theirs.mkdir()
        self.cache = Cache(self.directory)
        intarsia_runtime.build(self.source, self.target, cache=self.cache)
        (self.path,) = self.root.glob("??/*")
        self.key, self.good = self.path.name, self.path.read_bytes()
        self.secret = read_secret(self.root) or b""
        self.signed = signed(self.secret, self.key, self.evil)

    def is_right(self, cache: Cache) -> bool:
        """Build and run."""
        library = intarsia_runtime.build(self.source, self.target, cache=cache)
        x, y = torch.zeros(8), torch.zeros(8)
        library.launcher("seg0", 2)(x.data_ptr(), y.data_ptr())
        return bool((y == 1).all())


Attack = tuple[str, Callable[[Scene], Any]]


def forged() -> list[Attack]:
    """Return entries that are written without the secret."""

    def with_tag(tag: Callable[[Scene], str]) -> Callable[[Scene], Any]:
        return lambda s: s.path.write_bytes(f"intarsia-cache {SCHEMA} {s.key} {tag(s)}\n".encode() + s.evil)

    def with_secret(secret: Callable[[Scene], bytes]) -> Callable[[Scene], Any]:
        return lambda s: s.path.write_bytes(signed(secret(s), s.key, s.evil))

    def header(s: Scene) -> bytes:
        return s.good.partition(b"\n")[0]

    sha = lambda s: hashlib.sha256(s.evil).hexdigest()
    return [
        ("code alone", lambda s: s.path.write_bytes(s.evil)),
        ("a plain hash", with_tag(sha)),
        ("the header of before", with_tag(lambda s: f"{sha(s)} {len(s.evil)}")),
        ("no hash", with_tag(lambda s: "")),
        ("zeros", with_tag(lambda s: "0" * 64)),
        ("the good hash", lambda s: s.path.write_bytes(header(s) + b"\n" + s.evil)),
        ("the good hash, two lines", lambda s: s.path.write_bytes(header(s) + b"\n\n" + s.evil)),
        ("behind the good one", lambda s: s.path.write_bytes(s.good + s.evil)),
        ("before the good one", lambda s: s.path.write_bytes(s.evil + s.good)),
        ("in place of its end", lambda s: s.path.write_bytes(s.good[: -len(s.evil)] + s.evil)),
        ("no secret", with_secret(lambda s: b"")),
        ("a secret of zeros", with_secret(lambda s: bytes(32))),
        ("the key as the secret", with_secret(lambda s: s.key.encode())),
        ("half of the secret", with_secret(lambda s: s.secret[:16])),
        ("the secret and more", with_secret(lambda s: s.secret + b"\1")),
        ("signed for another key", lambda s: s.path.write_bytes(signed(s.secret, "0" * 64, s.evil))),
        ("cut", lambda s: s.path.write_bytes(s.signed[:-1])),
        ("longer", lambda s: s.path.write_bytes(s.signed + b"\0")),
        ("in capitals", lambda s: s.path.write_bytes(s.signed.partition(b"\n")[0].upper() + b"\n" + s.evil)),
        ("another line end", lambda s: s.path.write_bytes(s.signed.replace(b"\n", b"\r\n", 1))),
    ]


def exposed() -> list[Attack]:
    """Return entries with a right signature where others can write, or behind links."""

    def written(then: Callable[[Scene], Any]) -> Callable[[Scene], Any]:
        return lambda s: (s.path.write_bytes(s.signed), then(s))

    def moved(of: Callable[[Scene], Path]) -> Callable[[Scene], Any]:
        def link(s: Scene) -> None:
            there = s.theirs / "moved"
            shutil.move(of(s), there)
            of(s).symlink_to(there)

        return written(link)

    def secret_of_others(mode: int) -> Callable[[Scene], Any]:
        def replace_secret(s: Scene) -> None:
            (s.root / "secret").write_bytes(bytes(32))
            (s.root / "secret").chmod(mode)
            s.path.write_bytes(signed(bytes(32), s.key, s.evil))

        return replace_secret

    def short_secret(s: Scene) -> None:
        (s.root / "secret").write_bytes(b"short")
        s.path.write_bytes(signed(b"short", s.key, s.evil))

    return [
        ("the group writes the entry", written(lambda s: s.path.chmod(0o620))),
        ("all write the entry", written(lambda s: s.path.chmod(0o606))),
        ("the group writes its folder", written(lambda s: s.path.parent.chmod(0o770))),
        ("all write its folder", written(lambda s: s.path.parent.chmod(0o703))),
        ("the group writes the directory", written(lambda s: s.root.chmod(0o720))),
        ("all write the directory", written(lambda s: s.root.chmod(0o777))),
        ("a sticky directory of all", written(lambda s: s.root.chmod(0o1777))),
        ("a link to an entry", moved(lambda s: s.path)),
        ("a link to its folder", moved(lambda s: s.path.parent)),
        ("a link to the directory", moved(lambda s: s.root)),
        ("a link to the secret", moved(lambda s: s.root / "secret")),
        ("a secret that all read", secret_of_others(0o644)),
        ("a secret that all write", secret_of_others(0o602)),
        ("a secret that is short", short_secret),
    ]


def of_others() -> list[Attack]:
    """Return entries with a right signature that belong to another user; made by root alone."""

    def given(of: Callable[[Scene], Path]) -> Callable[[Scene], Any]:
        return lambda s: (s.path.write_bytes(s.signed), os.chown(of(s), NOBODY, NOBODY))

    return [
        ("another's entry", given(lambda s: s.path)),
        ("another's folder", given(lambda s: s.path.parent)),
        ("another's directory", given(lambda s: s.root)),
        ("another's secret", given(lambda s: s.root / "secret")),
    ]


def raced() -> list[Attack]:
    """Return entries that take a good one's place: once it was read, or again and again while it is."""

    def after_reading(then: Callable[[Scene], Any]) -> Callable[[Scene], Any]:
        def attack(s: Scene) -> None:
            real = s.cache.get

            def get(key: str) -> bytes | None:
                found = real(key)
                then(s)
                return found

            s.cache.get = get  # type: ignore[method-assign]

        return attack

    def folder_of_copies(s: Scene) -> None:
        shutil.rmtree(s.root / "tmp")
        (s.root / "tmp").symlink_to(s.theirs)

    def in_turn(s: Scene) -> Callable[[], None]:
        """Put evil and good code in place until told to stop."""
        stop = threading.Event()

        def run() -> None:
            for n in range(10**9):
                aside = s.theirs / "aside"
                aside.write_bytes(s.good if n % 2 else s.good.partition(b"\n")[0] + b"\n" + s.evil)
                if stop.is_set():
                    return
                os.replace(aside, s.path)

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.01)
        return lambda: (stop.set(), thread.join())  # type: ignore[func-returns-value,return-value]

    return [
        ("written over, once read", after_reading(lambda s: s.path.write_bytes(s.evil))),
        ("replaced, once read", after_reading(lambda s: shutil.copy(s.theirs.parent / "evil.so", s.path))),
        ("a folder for copies of theirs", after_reading(folder_of_copies)),
        ("the directory is gone, once read", after_reading(lambda s: shutil.rmtree(s.root, ignore_errors=True))),
        *[(f"in turn {n}", in_turn) for n in range(8)],
    ]


def attacks() -> list[Attack]:
    """Return all that this user can do."""
    return [*forged(), *exposed(), *(of_others() if os.getuid() == 0 else []), *raced()]


def ran(count: int, folder: Path) -> tuple[int, list[str]]:
    """Attack a cache `count` times. Return how often something was loaded that isn't ours, and what went wrong."""
    scene, n_ran, wrong = Scene(folder), 0, list[str]()
    (folder / "evil.so").write_bytes(scene.evil)
    if (scene.cache.put("0" * 64, b""), Library(scene.evil, scene.root / "tmp"), scene.mark.exists())[-1]:
        scene.mark.unlink()
    else:
        wrong.append("the mark isn't left where it is loaded on purpose: nothing is tested here")
    chosen = attacks()
    for n in range(count):
        name, attack = chosen[n % len(chosen)]
        scene.begin()
        undo = attack(scene)
        # by a process that had looked at the directory before, and by a new one
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            is_right = scene.is_right(scene.cache) and scene.is_right(Cache(scene.directory))
        if callable(undo):
            undo()
        if scene.mark.exists():
            scene.mark.unlink()
            n_ran += 1
            wrong.append(f"{name}: it ran")
        if not is_right:
            wrong.append(f"{name}: another result")
    return n_ran, wrong


def main(arguments: list[str]) -> int:
    """Attack, and print how often something ran."""
    parser = argparse.ArgumentParser(prog="python -m integration.survival malice")
    parser.add_argument("--entries", type=int, default=50)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        n_ran, wrong = ran(given.entries, Path(name))
    kinds = min(given.entries, len(attacks()))
    print(f"{n_ran} of {given.entries} malicious entries ran ({kinds} ways); {len(wrong)} wrong", *wrong, sep="\n")
    return bool(wrong)
