"""Bisection: a program that is wrong or crashes -> the stage, the rewrite or decision, and a reproducer.

cases       the graphs of a program with the real inputs of their calls
boundaries  what a program means between two stages, as a function over the inputs of its graph
search      the first stage whose boundary is wrong, then the first rewrite or decision of it
shrink      fewer operations that still go wrong
reproducer  a script that shows it
"""

from intarsia_command.bisecting.cases import Case, cases_of
from intarsia_command.bisecting.reproducer import reproducer
from intarsia_command.bisecting.search import Culprit, find
from intarsia_command.bisecting.shrink import operations, shrink

__all__ = ["Case", "Culprit", "cases_of", "find", "operations", "reproducer", "shrink"]
