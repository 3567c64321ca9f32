"""KernelSource -> machine code in memory, through the cache."""

from __future__ import annotations

import functools
import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import torch  # noqa: F401  (loads the OpenMP library that kernels are bound to)

from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_ir.records import KernelSource, Target
from intarsia_runtime.cache import Cache, check_room
from intarsia_runtime.compiler import (
    LINK_FLAGS,
    compile_shared_object,
    compiler_flags,
    is_available,
    libraries,
    no_compiler,
)
from intarsia_runtime.cuda_unit import launch_list, segments
from intarsia_runtime.library import Library, trampolines
from intarsia_runtime.target import compiler_identity, host_identity
from intarsia_runtime.triton_build import compile_kernels, triton_version

__all__ = ["build", "machine_code"]

SCHEMA = 1
_log = logging.getLogger("intarsia.runtime.build")


def build(source: KernelSource, target: Target, *, cache: Cache, timeout_s: float = 120.0) -> Library:
    """Return the machine code of `source`, taken from `cache` or compiled.

    Args:
        source: A unit or a single kernel, in C++ or Triton. Several `parts`, or kernels, are compiled side by side.
        target: Names the compiler; only the machine that runs this can be built for.
        cache: Where machine code is kept. Damaged entries are compiled again.
        timeout_s: Seconds that the compiler gets.

    Raises:
        UnsupportedError: `runtime.no_compiler`, `runtime.no_triton`, `runtime.compiler_timeout`, `runtime.language`.
        InternalError: `runtime.compiler_failed` or `runtime.triton_failed`, with the compiler's message and where the
            source is kept; `runtime.load_failed`.
    """
    if source.language not in ("cpp", "triton"):
        raise UnsupportedError(f"units in {source.language!r} can't be built", code="runtime.language")
    flags = compiler_flags(source, target)
    linked = libraries(source)
    key = _key(source, target, " ".join((*flags, *LINK_FLAGS, *linked)))
    library = _load_cached(cache, key)
    if library is not None:
        return library
    if not is_available(target.compiler):
        raise no_compiler(target.compiler)
    with cache.lock(key, patience_s=1.25 * timeout_s):
        library = _load_cached(cache, key)  # another process may have been faster
        if library is None:
            make = functools.partial(_compile, source, target, flags, linked, cache, key, timeout_s)
            try:
                library = make()
            except OSError as error:  # the directory was deleted, or there is no more room in it
                cache.recover(error)
                library = _or_no_room(make, cache)
    return library


def machine_code(source: KernelSource, target: Target, *, cache: Cache, timeout_s: float = 120.0) -> bytes:
    """Return the bytes of the shared object that `build` loads; arguments and errors are its own."""
    library = build(source, target, cache=cache, timeout_s=timeout_s)
    image = cache.get(library.key)
    if image is None:  # another process trimmed the cache meanwhile, or nothing can be kept in it
        with tempfile.TemporaryDirectory() as folder:
            apart = Cache(folder)
            image = apart.get(build(source, target, cache=apart, timeout_s=timeout_s).key)
    if image is None:
        raise UnsupportedError("machine code can't be kept on this disk", code="runtime.no_directory")
    return image


def _or_no_room(make: Callable[[], Library], cache: Cache) -> Library:
    try:
        return make()
    except OSError as error:
        raise UnsupportedError(
            f"there is no room to build in {cache.directory}: {error}", code="runtime.no_directory"
        ) from error


def _key(source: KernelSource, target: Target, settings: str) -> str:
    """Return the cache key: everything that the machine code depends on."""
    compiler = compiler_identity(target.compiler)
    if source.language == "triton":
        made_for = (target.isa, triton_version(), repr(source.launches))
        return Cache.key(f"launch list {SCHEMA}", settings, compiler, host_identity(), *made_for, source.text)
    return Cache.key(f"shared object {SCHEMA}", settings, compiler, host_identity(), *_units(source))


def _units(source: KernelSource) -> tuple[str, ...]:
    """Return the texts to compile; the trampolines join the first one, which costs no further process."""
    counts = {len(launch.buffers) + len(launch.sizes) for launch in source.launches}
    if source.entry:
        counts.add(len(source.signature))
    first, *rest = source.parts or (source.text,)
    return (first + trampolines(counts), *rest)


def _load_cached(cache: Cache, key: str) -> Library | None:
    image = cache.get(key)
    if image is None:
        return None
    try:
        return Library(image, cache.directory / "tmp", key)
    except InternalError as error:  # intact, but from a host with another C library: not usable here
        _log.warning("cached machine code %s can't be loaded and will be built again: %s", key[:16], error)
        return None


def _compile(
    source: KernelSource,
    target: Target,
    flags: tuple[str, ...],
    linked: tuple[str, ...],
    cache: Cache,
    key: str,
    timeout_s: float,
) -> Library:
    start = perf_counter()
    units: tuple[str, ...] = (source.text,)
    try:
        with cache.scratch() as folder:
            if source.language == "triton":
                facts = compile_kernels(source, target, folder=folder, timeout_s=timeout_s)
                counts = {len(launch.buffers) + len(launch.sizes) + 1 for launch in segments(source)}
                units = (launch_list(source, facts) + trampolines(counts, checked=True),)
            else:
                units = _units(source)
            image = _compiled(units, target, flags, linked, folder, timeout_s)
            library = Library(image, folder, key)  # before it's stored: what can't be loaded must not be kept
    except InternalError as error:
        raise _with_source(error, cache, key, units) from error.__cause__
    cache.put(key, image)
    _log.info("built %s: %d part(s), %.3f s", key[:16], len(units), perf_counter() - start)
    return library


def _compiled(
    units: Sequence[str],
    target: Target,
    flags: tuple[str, ...],
    linked: tuple[str, ...],
    folder: Path,
    timeout_s: float,
) -> bytes:
    """Return the shared object made of `units`.

    Raises:
        OSError: There is no folder any more, or no room in it, whatever the compiler says of that.
    """
    try:
        return compile_shared_object(
            units, compiler=target.compiler, flags=flags, libraries=linked, folder=folder, timeout_s=timeout_s
        )
    except InternalError:
        check_room(folder)
        raise


def _with_source(error: InternalError, cache: Cache, key: str, units: tuple[str, ...]) -> InternalError:
    path = cache.keep_failed(key, "\n".join(units))
    hint = f"the source is kept in {path}" if path else "the source could not be kept"
    return InternalError(error.explanation, code=error.code, where=error.where, hints=(*error.hints, hint))
