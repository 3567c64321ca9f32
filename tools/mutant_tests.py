"""A pytest plugin for `mutants.py`: which tests run which lines, and the tests that a mutant is shown, in an order.

`MUTANT_LINES` names a file {source: [lines]}: each test's row, with the lines of these that it ran, is appended to
`MUTANT_ROWS`. `MUTANT_ORDER` names a file {"first": [tests], "not": [tests], "at": path}: those come first, in this
order, these are left out, and the test that runs is written to the path.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

TOOL = 4


class Recorder:
    """Notes which lines each test runs; needs `sys.monitoring`, of CPython 3.12 on. Without it none are noted.

    Args:
        lines: Which lines count, by the path of the source.
        rows: File to append to.
    """

    def __init__(self, lines: dict[str, list[int]], rows: Path) -> None:
        self.lines = {file: set(of_file) for file, of_file in lines.items()}
        self.rows, self.seen, self.failed = rows, set[tuple[str, int]](), False
        self.can = sys.version_info >= (3, 12)
        if self.can:
            sys.monitoring.use_tool_id(TOOL, "mutants")
            sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, self._line)
            sys.monitoring.set_events(TOOL, sys.monitoring.events.LINE)

    def _line(self, code: CodeType, line: int) -> Any:
        if line in self.lines.get(code.co_filename, ()):
            self.seen.add((code.co_filename, line))
        return sys.monitoring.DISABLE

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.seen, self.failed = set(), False
        if self.can:
            sys.monitoring.restart_events()
        start = time.monotonic()
        result = yield
        lines: dict[str, list[int]] = {}
        for name, line in sorted(self.seen):
            lines.setdefault(name[name.rindex("/packages/") + 1 :], []).append(line)
        row = {"test": item.nodeid, "seconds": round(time.monotonic() - start, 3), "failed": self.failed}
        with self.rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "lines": lines}) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed


class Order:
    """Shows the tests in an order."""

    def __init__(self, first: list[str], without: list[str], at: Path) -> None:
        self.rank, self.without, self.at = {test: n for n, test in enumerate(first)}, set(without), at

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        out = [item for item in items if item.nodeid in self.without]
        config.hook.pytest_deselected(items=out)
        kept = [item for item in items if item.nodeid not in self.without]
        items[:] = sorted(kept, key=lambda item: self.rank.get(item.nodeid, len(self.rank)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.at.write_text(f"{time.time()} {nodeid}", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Begin what the environment asks for."""
    if "MUTANT_LINES" in os.environ:
        lines = json.loads(Path(os.environ["MUTANT_LINES"]).read_text(encoding="utf-8"))
        config.pluginmanager.register(Recorder(lines, Path(os.environ["MUTANT_ROWS"])))
    if "MUTANT_ORDER" in os.environ:
        order = json.loads(Path(os.environ["MUTANT_ORDER"]).read_text(encoding="utf-8"))
        config.pluginmanager.register(Order(order["first"], order["not"], Path(order["at"])))
