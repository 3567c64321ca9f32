"""CPython's own tests with every frame captured and replaced, beside plain CPython.

    python benchmarks/stdlib_capture.py                        # fifty modules: an hour
    python benchmarks/stdlib_capture.py test_with test_scope
    python benchmarks/stdlib_capture.py --results FILE         # keep what was found; a run that was stopped goes on

Each module runs in two processes, natively and by captures. Every test stands between two operations on a tensor, which
are captured with it. No frame is skipped for having no tensors: the replacement bytecode is always ours. Printed:
outcomes that differ, frames that were replaced, frames without a break, tests that are one graph. It fails
when an outcome differs that isn't named below with its reason, or when fewer than 80% of the frames are replaced.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import subprocess
import sys
import time
import types
import unittest
from pathlib import Path

MODULES = [
    "test_generators", "test_exceptions", "test_with", "test_scope", "test_dict", "test_set", "test_listcomps",
    "test_fstring", "test_patma", "test_contextlib", "test_augassign", "test_binop", "test_bool", "test_call",
    "test_class", "test_collections", "test_colorsys", "test_compare", "test_complex", "test_contains", "test_copy",
    "test_dataclasses", "test_decorators", "test_defaultdict", "test_deque", "test_dictviews", "test_enumerate",
    "test_extcall", "test_exception_group", "test_except_star", "test_fractions", "test_functools", "test_genexps",
    "test_heapq", "test_int", "test_isinstance", "test_iter", "test_itertools", "test_keywordonlyarg", "test_list",
    "test_named_expressions", "test_operator", "test_ordered_dict", "test_pow", "test_property", "test_raise",
    "test_range", "test_slice", "test_tuple", "test_unpack",
]  # fmt: skip
#: The function that every test is called from; in a file of its own, since the frames of this one aren't captured.
BETWEEN = """
def between(test, x):
    y = x + 1
    test()
    return y * 2
"""
AROUND = "between tensors"  # its file
CALLS = 3  # captures of one code object; later calls run natively
REPLACED = 0.8

_HELD = "waits for an object to die; while a frame hook is set, CPython's caller holds the arguments of a call"
_FRAMES = "counts or names frames; resume functions have their own"
_TRACEBACK = "asks for the traceback of an exception that was raised and caught while tracing: it has passed no frame"
_SAME = "wants two equal texts, one of them computed, to be two objects"
_DEPTH = "wants the recursion of a method in C to be too deep, which the operations of a capture aren't"
#: Tests that run natively: what they change is what a capture itself needs.
NATIVE = {"test_reduce_mutating_builtins_iter": "takes `iter` and `reversed` out of the builtins"}
#: Outcomes that differ, and why.
NAMED = {
    "test_exceptions": {
        "testExceptionCleanupState": _HELD,
        "test_3114": _HELD,
        "test_memory_error_cleanup": _HELD,
        "test_unraisable": _HELD,
        "test_name_error_suggestions": "wants suggestions from the locals of a frame that has only the live ones",
    },
    "test_generators": {
        "test_frame_resurrect": _HELD,
        "test_refcycle": _HELD,
        "test_send_with_yield_from": _FRAMES,
        "test_throw_with_yield_from": _FRAMES,
    },
    "test_dict": {
        "test_container_iterator": _HELD,
        "test_free_after_iterating": _HELD,
        "test_oob_indexing_dictiter_iternextitem": _HELD,
        "test_splittable_popitem": "counts the bytes of a dict",
    },
    "test_set": {
        "test_container_iterator": _HELD,
        "test_free_after_iterating": _HELD,
        "test_weakref": _HELD,
    },
    "test_scope": {"testCellLeak": _HELD},
    "test_iter": {"test_ref_counting_behavior": _HELD},
    "test_exception_group": {
        "test_basics_ExceptionGroup_fields": _TRACEBACK,
        "test_iteration_full_tracebacks": _TRACEBACK,
        "test_nested_exception_group_tracebacks": _TRACEBACK,
        "test_deep_split": _DEPTH,
        "test_deep_subgroup": _DEPTH,
    },
    "test_class": {"testSetattrWrapperNameIntern": _SAME},
    "test_isinstance": {"test_isinstance_recursion_limit": _DEPTH, "test_subclass_recursion_limit": _DEPTH},
    "test_operator": {"test_is": _SAME, "test_is_not": _SAME},
    "test_enumerate": {"test_bug1229429": "counts the references to an object"},
    "test_contextlib": {"test_exit_exception_traceback": _FRAMES},
}


def main(arguments: list[str]) -> int:
    """Compare, or run one module in this process."""
    if arguments[:1] in (["--native"], ["--captured"]):
        print(json.dumps(run(arguments[1], arguments[0] == "--captured")))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, help="counts of modules, one a line; those in it aren't run again")
    parser.add_argument("modules", nargs="*", default=MODULES)
    options = parser.parse_args(arguments)
    known = kept(options.results)
    for module in options.modules:
        if module not in known:
            known[module] = compare(module)
            keep(options.results, module, known[module])
    totals: collections.Counter[str] = collections.Counter()
    for module in options.modules:
        totals.update(known[module])
    frames = max(totals["frames"], 1)
    replaced, whole = totals["replaced"] / frames, totals["without a break"] / frames
    print(f"{totals['tests']} tests, {totals['frames']} frames: {replaced:.0%} replaced, {whole:.0%} without a break")
    print(f"tests between two operations on a tensor: {totals['between']}, in one graph: {totals['one graph']}")
    print(f"outcomes that differ: {totals['named']} named, {totals['unnamed']} others")
    return int(totals["unnamed"] > 0 or replaced < REPLACED)


def kept(results: Path | None) -> dict[str, dict[str, int]]:
    """Read the counts of the modules that ran before."""
    if results is None or not results.exists():
        return {}
    return dict(json.loads(line) for line in results.read_text(encoding="utf-8").splitlines())


def keep(results: Path | None, module: str, counts: dict[str, int]) -> None:
    """Add the counts of a module; one with differences runs again next time, since mending them is the point."""
    if results is not None and not counts["unnamed"]:
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps([module, counts]) + "\n")


def compare(module: str) -> dict[str, int]:
    """Run one module both ways; return the counts."""
    native, captured = (one(module, way) for way in ("--native", "--captured"))
    if captured is None or native is None:
        print(f"{module}: crashed")
        return {"unnamed": 1}
    worse = sorted(set(captured["failed"]) - set(native["failed"]))
    named = [name for name in worse if name in NAMED.get(module, {})]
    others = [name for name in worse if name not in named]
    ran, seconds, frames = captured["ran"], captured["seconds"], captured["frames"]
    shares = ", ".join(f"{frames.get(k, 0) / max(frames.get('frames', 0), 1):.0%} {k}" for k in SHARES)
    print(f"{module}: {ran} tests, {len(named)} named and {len(others)} other differences, {seconds:.0f} s, {shares}")
    for name in others:
        print("   ", name, "\n        ", captured["failed"][name][-400:].replace("\n", "\n         "))
    for error in captured["errors"]:
        print("    internal error:", error)
    counts = {"tests": ran, "named": len(named), "unnamed": len(others) + len(captured["errors"])}
    return {**counts, **{k: frames.get(k, 0) for k in ("frames", *SHARES, *COUNTS)}}


SHARES = ("replaced", "without a break")
COUNTS = ("between", "one graph")


def one(module: str, way: str) -> dict | None:
    """Run in a process of its own."""
    done = subprocess.run([sys.executable, __file__, way, module], capture_output=True, text=True, timeout=1800)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        print(done.stdout[-500:], done.stderr[-3000:])
        return None


def run(module: str, captured: bool) -> dict:
    """Run the tests of a module; return what failed and what was captured."""
    suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{module}")
    result = unittest.TestResult()
    callback = Callback()
    begin = time.time()
    if captured:
        import intarsia_framehook as framehook

        for test in map(between_tensors, tests_of(suite)):
            framehook.set_callback(None if test._testMethodName in NATIVE else callback)
            try:
                unittest.TestSuite([test]).run(result)  # which sets its class up
            finally:
                framehook.set_callback(None)
    else:
        suite.run(result)
    failed = {str(test).split()[0]: text for test, text in result.failures + result.errors}
    return {
        "ran": result.testsRun,
        "failed": failed,
        "frames": dict(callback.counts),
        "errors": callback.errors[:5],
        "seconds": time.time() - begin,
    }


def between_tensors(test):
    """Put a test between two operations on a tensor, and see that those are right after it."""
    import torch

    method, x = getattr(test, test._testMethodName), torch.arange(3.0)
    names: dict = {}
    exec(compile(BETWEEN, AROUND, "exec"), names)

    @functools.wraps(method)
    def run_between():
        found = names["between"](method, x)
        if not torch.equal(found, torch.tensor([2.0, 4.0, 6.0])):
            raise AssertionError(f"the operations around the test gave {found}")

    setattr(test, test._testMethodName, run_between)
    return test


def tests_of(suite):
    """Yield single tests."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


class Callback:
    """Captures every frame that the hook offers."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.errors: list[str] = []
        self.calls: collections.Counter[types.CodeType] = collections.Counter()

    def __call__(self, code: types.CodeType, info):
        import traceback

        import intarsia_framehook as framehook
        from intarsia_pyeval import link
        from intarsia_tensorcapture import capture_frame

        skipped = (
            "<eval_with_key>",
            "/unittest/",
            "intarsia_",
            "<frozen",
            "importlib",
            "stdlib_capture.py",
            "bytecode",
            "/site-packages/",
        )
        if any(part in code.co_filename for part in skipped):
            return None
        if sys.gettrace() is not None:  # a debugger sees the original
            return False
        self.calls[code] += 1
        if self.calls[code] > CALLS and code.co_filename != AROUND:
            return None
        framehook.reset(code)
        try:
            found = capture_frame(code, info, force=True)
        except Exception:
            self.errors.append(f"{code.co_qualname} {code.co_filename}\n" + traceback.format_exc()[-1500:])
            return None
        self.counts["frames"] += 1
        if found.code.code is code:
            self.counts["native"] += 1
            self.counts[found.breaks[0].code if found.breaks else "?"] += 1
            return False
        self.counts["replaced"] += 1
        self.counts["without a break"] += not found.breaks
        for broken in found.breaks:
            self.counts[broken.code] += 1
        if code.co_filename == AROUND and code.co_name == "between":
            self.counts["between"] += 1
            self.counts["one graph"] += not found.breaks
        return never, link(found.code, dict.fromkeys(found.code.holes, found.graph_module))


def never(*values) -> bool:
    """A guard that doesn't let an entry be used again."""
    return False


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
