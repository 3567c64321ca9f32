"""Codes of breaks and errors that somebody compares with: whoever does takes the code from here, which tidy checks.

Where one is raised it may be written out, as every other code is; `docs/errors.md` lists them all.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "DISABLED",
    "EXTERN_BETWEEN",
    "LIFETIME",
    "MARK_VIOLATED",
    "OPERATION_RAISED",
    "OTHER_PROGRAM",
    "RAISED",
    "REPEATED",
    "REQUESTED",
    "SCHEDULE_CHOICE",
    "TENSOR_VALUE",
    "TOO_DEEP",
]

# breaks
RAISED: Final = "tracer.exception"  # the program's own exception leaves the frame
OPERATION_RAISED: Final = "tracer.operation_raised"  # eager has an error of its own to tell
TOO_DEEP: Final = "tracer.depth"
TENSOR_VALUE: Final = "tracer.tensor_value"
# breaks that are wanted, or that no graph is missed after
REQUESTED: Final = "tracer.requested"
DISABLED: Final = "tracer.disabled"
REPEATED: Final = "tracer.repeated"
LIFETIME: Final = "tracer.lifetime"
# errors and refusals
MARK_VIOLATED: Final = "shapes.mark_violated"
EXTERN_BETWEEN: Final = "fuse.extern_between"
OTHER_PROGRAM: Final = "fuser.other_program"
SCHEDULE_CHOICE: Final = "schedule.choice"
