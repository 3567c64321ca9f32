"""What is counted of emitted code: lanes, hoisted values, walks through memory."""

from __future__ import annotations

from fuser_programs import Builder, op

from intarsia_fuser import FusionGraph
from intarsia_loops.program import const


def emitted(program, kernel):
    return FusionGraph.of(program).work(kernel).emitted


def test_a_value_of_a_row_is_computed_once_a_row():
    b = Builder()
    x, v = b.input((64, 128)), b.input((64,))
    y = b.map((64, 128), lambda i, j: op("mul", b.load(x, i, j), op("exp", b.load(v, i))))
    found = emitted(b.program(y), y)
    assert (found.light, found.heavy, found.loads) == (64 * 128, 0, 64 * 128)
    assert found.scalar == 64 * (8 + 1) and found.loops == 64


def test_a_value_along_the_lanes_is_computed_at_each_point():
    b = Builder()
    x, v = b.input((64, 128)), b.input((128,))
    y = b.map((64, 128), lambda i, j: op("mul", b.load(x, i, j), op("exp", b.load(v, j))))
    assert emitted(b.program(y), y).heavy == 8 * 64 * 128


def test_lanes_run_where_memory_does():
    b = Builder()
    x = b.input((64, 128))
    rows = b.reduce("sum", (64,), (128,), lambda i, r: b.load(x, i, r))
    columns = b.reduce("sum", (128,), (64,), lambda j, r: b.load(x, r, j))
    program = b.program(rows, columns)
    for name, loops in ((rows, 64), (columns, 64)):
        found = emitted(program, name)
        assert (found.loads, found.strided, found.loops) == (64 * 128, 0, loops)


def test_a_transposed_read_is_strided_whichever_way_the_lanes_run():
    b = Builder()
    x, y = b.input((64, 128)), b.input((128, 64))
    z = b.map((64, 128), lambda i, j: op("add", b.load(x, i, j), b.load(y, j, i)))
    assert emitted(b.program(z), z).strided == 64 * 128


def test_scans_are_serial_and_short_lanes_waste_vectors():
    b = Builder()
    x = b.input((32, 3))
    scan = b.scan("cumsum", (32, 3), 1, lambda i, j: b.load(x, i, j))
    row = b.reduce("sum", (32,), (3,), lambda i, r: op("add", b.load(x, i, r), const(1.0, "f32")))
    program = b.program(scan, row)
    assert emitted(program, scan).serial == 32 * 3
    found = emitted(program, row)
    assert found.light in (32 * 8, 32 * 3)  # along three elements, or along the rows with a stride
    assert found.light == 32 * 3 or found.strided == 0
