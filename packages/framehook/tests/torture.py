"""Run the standard library's own tests with every function frame replaced by a larger copy of its code. Slow; opt-in.

`python torture.py --all` runs all modules below, each in processes of its own: without the hook, in place, and by the
slow way; it prints what newly fails, and exits with the number of modules that crash or fail beyond `KNOWN`.
`python torture.py off|place|call test_json ...` runs some modules in this process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import types
import unittest

import intarsia_framehook as hook
from intarsia_framehook import _hook

MODULES = [
    "test_json",
    "test_functools",
    "test_generators",
    "test_collections",
    "test_dataclasses",
    "test_decimal",
    "test_exceptions",
    "test_contextlib",
    "test_descr",
    "test_class",
    "test_scope",
    "test_super",
    "test_extcall",
    "test_keywordonlyarg",
    "test_positional_only_arg",
    "test_coroutines",
    "test_asyncgen",
    "test_listcomps",
    "test_traceback",
    "test_frame",
    "test_dis",
    "test_inspect",
    "test_queue",
    "test_gc",
    "test_weakref",
    "test_pickle",
    "test_copy",
    "test_ast",
    "test_typing",
    "test_enum",
    "test_re",
    "test_logging",
    "test_unpack_ex",
    "test_with",
    "test_raise",
]
# tests that count objects, look at specialised bytecode of the original, or recurse to the last C frame
KNOWN = {
    "test_frame",
    "test_loop_quicken",
    "test_lru_recursion",
    "test_show_caches",
    "test_slots",
    "test_super_instructions",
}


def main(arguments: list[str]) -> int:
    """Dispatch on the first argument."""
    if arguments[:1] == ["--all"]:
        return sum(compare(module) for module in arguments[1:] or MODULES)
    mode, *modules = arguments
    print(json.dumps(run(modules, mode)))
    return 0


def compare(module: str) -> bool:
    """Run one module in all three modes; whether the hook broke anything that isn't known."""
    native, in_place, by_call = (subprocess_run(module, mode) for mode in ("off", "place", "call"))
    broken = False
    for mode, outcome in (("in place", in_place), ("by call", by_call)):
        if outcome is None or native is None:
            print(f"{module:28} {mode:9} CRASHED OR TIMED OUT", flush=True)
            broken = True
            continue
        new = sorted(set(outcome["bad"]) - set(native["bad"]))
        unknown = [name for name in new if name.split()[0] not in KNOWN]
        print(
            f"{module:28} {mode:9} {outcome['run']:5} tests, {outcome['replaced']:5} codes replaced; new: {new}",
            flush=True,
        )
        broken |= bool(unknown) or outcome["run"] != native["run"]
    return broken


def subprocess_run(module: str, mode: str) -> dict | None:
    """Return what `run` returned in a fresh process, or None."""
    command = [sys.executable, "-X", "faulthandler", __file__, mode, module]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"run"')]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else None


def run(modules: list[str], mode: str) -> dict:
    """Run test modules in this process."""
    replaced = [0]
    if mode != "off":
        _hook.replace_by_call(mode == "call")
        install(replaced)
    suite = unittest.TestSuite()
    for name in modules:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromName("test." + name))
    with open(os.devnull, "w") as nowhere:
        result = unittest.TextTestRunner(verbosity=0, stream=nowhere).run(suite)
    hook.set_callback(None)
    bad = sorted(str(test) for test, _ in result.failures + result.errors)
    return {"run": result.testsRun, "bad": bad, "replaced": replaced[0]}


def install(replaced: list[int]) -> None:
    """Replace every code in every thread by a larger copy of itself."""

    def callback(code: types.CodeType, info: hook.FrameInfo):
        replaced[0] += 1
        more: dict = {"co_stacksize": code.co_stacksize + replaced[0] * 37 % 211}
        if not code.co_cellvars and not code.co_freevars:  # else the slots of cells would move
            names = tuple(f"_extra{i}" for i in range(replaced[0] % 50))
            more |= {"co_varnames": code.co_varnames + names, "co_nlocals": code.co_nlocals + len(names)}
        try:
            return hook.always, code.replace(**more)
        except ValueError:
            return None

    start = threading.Thread.run

    def thread_run(self):
        hook.set_callback(callback)
        start(self)

    threading.Thread.run = thread_run
    hook.set_callback(callback)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
