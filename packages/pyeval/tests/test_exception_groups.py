"""`except*` and groups of exceptions, captured whole, with the outcome of CPython."""

from __future__ import annotations

import pytest
from differential import differing

from intarsia_pyeval import capture

PRELUDE = """
log = []
def tree(error):
    if isinstance(error, BaseExceptionGroup):
        return [type(error).__name__, error.message, [tree(e) for e in error.exceptions]]
    return [type(error).__name__, error.args]
"""
PROGRAMS = {
    "two kinds": """
def f():
    try:
        raise ExceptionGroup("several", [ValueError("a"), KeyError("b"), ValueError("c")])
    except* ValueError as group:
        log.append(tree(group))
    except* KeyError as group:
        log.append(tree(group))
    return "behind"
""",
    "nested": """
def f():
    try:
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError(1), TypeError(2)]), TypeError(3)])
    except* TypeError as group:
        log.append(tree(group))
    except* (ValueError, OSError) as group:
        log.append(tree(group))
""",
    "a naked exception": """
def f():
    try:
        {}["a"]
    except* KeyError as group:
        log.append(tree(group))
    return 1
""",
    "what isn't handled goes on": """
def f():
    try:
        try:
            raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])
        except* ValueError:
            log.append("value")
    except ExceptionGroup as left:
        return tree(left)
""",
    "handlers raise": """
def f():
    try:
        try:
            raise ExceptionGroup("several", [ValueError("a"), KeyError("b"), OSError("c")])
        except* ValueError:
            raise TypeError("new")
        except* KeyError:
            raise
    except BaseException as left:
        return tree(left), left.__context__ is None
""",
    "one handler raises": """
def f():
    try:
        try:
            raise ExceptionGroup("several", [ValueError("a")])
        except* ValueError as group:
            raise TypeError("new") from group
    except BaseException as left:
        return tree(left)
""",
    "nothing is raised": """
def f():
    try:
        log.append("body")
    except* ValueError:
        log.append("handler")
    else:
        log.append("else")
    finally:
        log.append("finally")
""",
    "methods": """
def f():
    group = ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [KeyError("b")]), KeyError("c")])
    matched, rest = group.split(KeyError)
    found = group.subgroup(lambda e: isinstance(e, ValueError))
    return tree(matched), tree(rest), tree(found), group.subgroup(OSError), str(group), tree(group.derive([OSError(1)]))
""",
    "a group is returned": """
def f():
    group = BaseExceptionGroup("g", [ValueError("a")])
    return tree(group), type(group).__name__, isinstance(group, Exception), group
""",
    "handled within a handler": """
def f():
    def clean(group):
        for error in group.exceptions:
            try:
                raise error
            except ValueError as again:
                log.append(again is error)
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError as group:
        clean(group)
    except* Exception as group:
        log.append(len(group.exceptions))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_groups_of_exceptions(name):
    source = PRELUDE + PROGRAMS[name]
    assert differing(source) is None
    names = {}
    exec(source, names)
    assert capture(names["f"], (), force=True).breaks == ()


REFUSED = ["ExceptionGroup('a', [])", "ExceptionGroup('a', [1])", "ExceptionGroup(1, [ValueError()])",
           "ExceptionGroup('a', [KeyboardInterrupt()])"]  # fmt: skip


@pytest.mark.parametrize("made", REFUSED)
def test_what_cpython_refuses_to_group(made):
    source = f"{PRELUDE}\ndef f():\n  try: {made}\n  except Exception as e: return type(e).__name__, str(e)"
    assert differing(source) is None
