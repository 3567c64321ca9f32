"""Lines of recompilations: one each, a storm once, in the user's names."""

from intarsia_dispatch import EventKind, FrameEvent, recompile_lines
from intarsia_ir.records import Origin

WHERE = "m.py:4 in f (after the break in line 3)"
REASON = f"guard failed (constant): n was {{}}, now it is {{}}\n  at {WHERE}\n  remedy: keep n fixed"


def event(kind, reason="", name="f"):
    return FrameEvent(kind, name, Origin("m.py", 1, name), reason)


def test_a_line_each_in_the_users_names():
    name = "f (after the break in line 6)"
    events = [event(EventKind.COMPILED), event(EventKind.RECOMPILED, REASON.format(1, 2), name)]
    (line,) = recompile_lines(events)
    where, what = line.split(" is compiled again: ")
    assert where == "f (after the break in line 6) at m.py:1"
    assert what == "n was 1, now it is 2; at m.py:4 in f (after the break in line 3); remedy: keep n fixed"


def test_a_storm_is_told_once_and_its_end():
    storm = [event(EventKind.RECOMPILED, REASON.format(n, n + 1)) for n in range(7)]
    other = event(EventKind.RECOMPILED, REASON.replace(" n ", " m ").format(1, 2))
    lines = recompile_lines([*storm[:5], other, *storm[5:], event(EventKind.LIMIT, "compiled 8 times")])
    assert [line.partition(": ")[0].partition("m.py:1 ")[2] for line in lines] == [
        "is compiled again",
        "is compiled again",
        "is compiled again and again, further times aren't told",
        "is compiled again",
        "runs in eager from now on",
    ]


def test_other_functions_are_other_matters():
    events = [event(EventKind.RECOMPILED, REASON.format(1, 2), name) for name in "fghijk"]
    assert len(recompile_lines(events)) == 6
