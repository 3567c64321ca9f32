"""A shared object in memory, and how Python calls into it.

`ctypes` needs about 1 us for a call, half as long as a whole tiny graph takes. So `build` appends a trampoline for each
argument count to the unit: a function in CPython's own calling convention that turns Python ints into 64-bit words,
lets other threads run, and jumps to the address kept in its `self`. It uses the stable C API, declared here by hand:
neither Python's nor torch's headers are needed to build it. What it needs of Python is declared weak, so that a process
without Python loads the unit too, and calls the entries themselves.
"""

from __future__ import annotations

import _ctypes
import ctypes
import fcntl
import functools
import itertools
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from intarsia_ir.errors import InternalError

__all__ = ["Library", "trampolines"]

_PRELUDE = """
// ---- trampolines: Python ints to 64-bit words, then a jump to the entry whose address is `self` ----
extern "C" {
struct intarsia_object;
struct intarsia_method { const char* name; void* function; int flags; const char* doc; };
extern intarsia_object _Py_NoneStruct __attribute__((weak));
extern intarsia_object *PyExc_TypeError __attribute__((weak)), *PyExc_RuntimeError __attribute__((weak));
void Py_IncRef(intarsia_object*) __attribute__((weak));
unsigned long PyLong_AsUnsignedLongMask(intarsia_object*) __attribute__((weak));
void* PyLong_AsVoidPtr(intarsia_object*) __attribute__((weak));
intarsia_object* PyErr_Occurred() __attribute__((weak));
void PyErr_SetString(intarsia_object*, const char*) __attribute__((weak));
intarsia_object* PyErr_Format(intarsia_object*, const char*, ...) __attribute__((weak));
void* PyEval_SaveThread() __attribute__((weak));
void PyEval_RestoreThread(void*) __attribute__((weak));
"""
_STATUS = """\
  if (status) return PyErr_Format(PyExc_RuntimeError, "a kernel launch was refused with status %d", status);
"""
_METH_FASTCALL = 0x80
MAPPED = "intarsia"  # what /proc/PID/maps calls the memory
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_numbers = itertools.count()
_UNDEFINED_OPENMP = re.compile(r"undefined symbol: (GOMP|omp|__kmpc)_")


def trampolines(counts: Iterable[int], *, checked: bool = False) -> str:
    """Return C++ text with one trampoline for each of the argument counts.

    Args:
        counts: Numbers of arguments.
        checked: The entries return an int, and any but 0 raises a RuntimeError.
    """
    return _PRELUDE + "".join(_trampoline(n, checked) for n in sorted(set(counts))) + "}\n"


def _trampoline(n: int, checked: bool) -> str:
    words = "".join(f"  unsigned long w{i} = PyLong_AsUnsignedLongMask(args[{i}]);\n" for i in range(n))
    types, values = ", ".join(["unsigned long"] * n), ", ".join(f"w{i}" for i in range(n))
    return (
        f"static intarsia_object* intarsia_call{n}(intarsia_object* self, intarsia_object* const* args, long n) {{\n"
        f'  if (n != {n}) {{ PyErr_SetString(PyExc_TypeError, "this kernel takes {n} arguments"); return 0; }}\n'
        f"{words}"
        f"  void* entry = PyLong_AsVoidPtr(self);\n"
        f"  if (PyErr_Occurred()) return 0;\n"
        f"  void* thread = PyEval_SaveThread();\n"
        f"  {'int status = ' if checked else ''}(({'int' if checked else 'void'} (*)({types}))entry)({values});\n"
        f"  PyEval_RestoreThread(thread);\n"
        f"{_STATUS if checked else ''}"
        f"  Py_IncRef(&_Py_NoneStruct);\n"
        f"  return &_Py_NoneStruct;\n"
        f"}}\n"
        f'intarsia_method intarsia_method{n} = {{"kernel", (void*)intarsia_call{n}, {_METH_FASTCALL}, 0}};\n'
    )


class Library:
    """Machine code of one unit. It is unloaded when this object and all its launchers are gone.

    Args:
        image: Bytes of the shared object.
        folder: Private folder for the copy that is mapped where memory can't be. Either makes the mapping immune to
            later changes of a cached file (a file truncated under a mapping kills the process).
        key: Cache key of the unit, for messages.

    Raises:
        InternalError: `runtime.load_failed`: the loader rejects the image.
    """

    def __init__(self, image: bytes, folder: Path, key: str = "") -> None:
        self.key = key
        self._dll = _load(image, folder)
        self._handle = _new_capsule(self._dll._handle, None, ctypes.cast(_unload, ctypes.c_void_p))

    def address(self, entry: str) -> int:
        """Return the address of a C entry.

        Raises:
            InternalError: The unit has no such symbol.
        """
        try:
            return ctypes.cast(getattr(self._dll, entry), ctypes.c_void_p).value or 0
        except AttributeError:
            raise InternalError(f"the built unit has no symbol {entry!r}", code="runtime.no_symbol") from None

    def prepare(self) -> None:
        """Load the kernels of a unit for a GPU into its driver.

        Raises:
            InternalError: `runtime.driver`: there is no driver, or it rejects a kernel.
        """
        status = ctypes.CFUNCTYPE(ctypes.c_int)(self.address("intarsia_load"))()
        if status:
            why = "there is no CUDA driver, or an old one" if status < 0 else f"the driver's error {status}"
            raise InternalError(f"kernels can't be loaded: {why}", code="runtime.driver")

    def launcher(self, entry: str, n_arguments: int) -> Callable[..., None]:
        """Return a callable that passes `n_arguments` ints, as 64-bit words, to the C entry.

        Raises:
            InternalError: The unit has no such symbol, or was built without a trampoline for that many arguments.
        """
        method = self.address(f"intarsia_method{n_arguments}")
        launcher: Callable[..., None] = _new_function(method, self.address(entry), self._handle)
        return launcher


# The handle of a loaded library is a capsule, which the garbage collector doesn't know. It would finalize all members
# of a dead cycle before it frees any, and would look at launchers whose code is already gone. The capsule dies with the
# last launcher, after that one's last look at its own code.
_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_capsule_content = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _close(capsule: int, content: Any = _capsule_content, close: Callable[[int], None] = _ctypes.dlclose) -> None:
    close(content(capsule, None))


_unload = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_close)
# capsules may die after this module, when the interpreter ends
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_unload))


def _load(image: bytes, folder: Path) -> ctypes.CDLL:
    try:
        return _load_sealed(image)
    except OSError as error:
        problem = error
    if _UNDEFINED_OPENMP.search(str(problem)) and _expose_openmp():
        return _load_or_raise(_load_sealed, image)
    if problem.errno is not None or "failed to map" in str(problem):  # no memory files here, or none that may be run
        return _load_or_raise(functools.partial(_load_copy, folder=folder), image)
    raise _rejected(problem) from problem


def _load_or_raise(load: Callable[[bytes], ctypes.CDLL], image: bytes) -> ctypes.CDLL:
    try:
        return load(image)
    except OSError as error:
        raise _rejected(error) from error


def _rejected(error: OSError) -> InternalError:
    return InternalError(f"the built unit can't be loaded: {error}", code="runtime.load_failed")


def _load_sealed(image: bytes) -> ctypes.CDLL:
    """Map a file that has no name and can't be written any more: no other bytes can take the place of `image`."""
    descriptor = os.memfd_create(MAPPED, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(descriptor, "wb") as file:
        file.write(image)
        file.flush()
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return ctypes.CDLL(_path_never_used(descriptor))


def _path_never_used(descriptor: int) -> str:
    """Return a path of an open file: the loader takes a path that it knows for a library that it has.

    Descriptors come again, so the bits of a number that doesn't are written as steps that lead nowhere.
    """
    steps = "".join("/." if bit == "0" else "//." for bit in f"{next(_numbers):b}")
    return f"/proc/self/fd{steps}/{descriptor}"


def _load_copy(image: bytes, folder: Path) -> ctypes.CDLL:
    """Map a copy in a folder that only this user can enter, under a name never used before."""
    descriptor, path = tempfile.mkstemp(suffix=".so", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(image)
        return ctypes.CDLL(path)
    finally:
        os.unlink(path)


def _expose_openmp() -> bool:
    """Make the OpenMP library that torch loaded visible to libraries loaded later. Return whether there is one."""
    with open("/proc/self/maps") as maps:
        paths = re.findall(r"(/\S*/lib(?:gomp|iomp5|omp)[^/\s]*\.so[^/\s]*)$", maps.read(), re.MULTILINE)
    for path in dict.fromkeys(paths):
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return bool(paths)
