"""Schedules by measurement: what a policy decides by rule is tried out on this machine, once, and kept in a file.

    tuner  = Tuner(folder, cache)
    policy = tuner(kernels, target, Measured())     # measures the kernels that the table in the folder doesn't have
    plan   = intarsia_scheduler.schedule(kernels, target, policy)
    cost   = Predictor(folder)(target)              # a cost model of fusion, by the target's calibration in the folder

Example:
    >>> from intarsia_ir.records import Target
    >>> table = Table(Target(isa="avx2")).with_rows({"k": Row({"unroll 0": 8}, 10.0, 12.0, "measured 1", "")})
    >>> Tuned(table).name
    'measured, tuned'
"""

from intarsia_tuner.alone import alone, operands, why_not
from intarsia_tuner.calibrations import Predictor, calibrated_prices, calibration_path, cost_for
from intarsia_tuner.clock import Clock, TimedLibrary, clock_of
from intarsia_tuner.comparing import first_difference
from intarsia_tuner.search import searched
from intarsia_tuner.table import Row, Table
from intarsia_tuner.timing import times_of
from intarsia_tuner.tuned import Tuned
from intarsia_tuner.tuner import Tuner, missing, table_path, tuner_in

__version__ = "0.1.1"

__all__ = [
    "Clock",
    "Predictor",
    "Row",
    "Table",
    "TimedLibrary",
    "Tuned",
    "Tuner",
    "alone",
    "calibrated_prices",
    "calibration_path",
    "clock_of",
    "cost_for",
    "first_difference",
    "missing",
    "operands",
    "searched",
    "table_path",
    "times_of",
    "tuner_in",
    "why_not",
]
