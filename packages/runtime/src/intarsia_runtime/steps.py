"""The calls that run a program: launches of its source and library calls, in order."""

from __future__ import annotations

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Launch
from intarsia_loops.called import Called
from intarsia_loops.program import Extern, Program
from intarsia_runtime._calls import is_ref

__all__ = ["last_uses", "steps_of"]


def steps_of(program: Program | Called, launches: tuple[Launch, ...]) -> list[Launch | Extern]:
    """Return native and extern calls in program order; together they cover every item exactly once."""
    starts = {launch.items[0]: launch for launch in launches}
    steps: list[Launch | Extern] = []
    position = 0
    while position < len(program.items):
        item = program.items[position]
        if isinstance(item, Extern):
            steps.append(item)
            position += 1
            continue
        launch = starts.pop(position, None)
        if launch is None or launch.items[1] <= position:
            raise InvalidArgumentError(f"no launch of the source covers item {position}", code="runtime.launches")
        steps.append(launch)
        position = launch.items[1]
    if starts:
        raise InvalidArgumentError(f"launches of {sorted(starts)} start inside others", code="runtime.launches")
    return steps


def last_uses(program: Program | Called, steps: list[Launch | Extern]) -> dict[str, int]:
    """Map each buffer to the position of the last step that touches it; results are used after all steps."""
    last: dict[str, int] = {}
    for position, step in enumerate(steps):
        touched = step.buffers if isinstance(step, Launch) else (*filter(None, step.outs), *sorted(step.reads()))
        last.update(dict.fromkeys(touched, position))
    last.update({o.buffer: len(steps) for o in program.outputs if is_ref(o)})
    return last
