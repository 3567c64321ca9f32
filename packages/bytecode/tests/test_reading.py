"""Try regions survive being written and read any number of times."""

import pytest
from bytecode.instr import TryBegin

from intarsia_bytecode.decode import decode
from intarsia_bytecode.reading import read

MANY = "\n".join(f"    x = {number + 1000}" for number in range(300))
LOOP = "\n".join("            x = x.real + len((x, x, x))" for _ in range(30))
AFTER = "    except AttributeError:\n        x = 1\n    return x\n"
SOURCES = {
    "a long argument": f"def f(x):\n{MANY}\n    try:\n        x = 5555\n        x.nothing\n{AFTER}",
    "a long loop": f"def f(x):\n    try:\n        for n in (1, 2):\n{LOOP}\n        x.nothing\n{AFTER}",
}


@pytest.mark.parametrize("name", SOURCES)
def test_regions_survive(name):
    namespace = {}
    exec(SOURCES[name], namespace)
    function = namespace["f"]
    want, handlers = function(3), [bool(h) for h in decode(function.__code__).handlers]
    for _ in range(3):
        items = read(function.__code__)
        assert sum(isinstance(item, TryBegin) for item in items) >= 2
        function.__code__ = items.to_code(stacksize=20, compute_exception_stack_depths=False)
        assert function(3) == want
        assert [bool(h) for h in decode(function.__code__).handlers] == handlers
