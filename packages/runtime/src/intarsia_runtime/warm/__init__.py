"""Warm start: what was captured, as text, finds the finished plan of an earlier process, so that no pass runs.

    store = PlanStore(Cache(folder), made_by=(fingerprint(packages), ...))
    asked = store.look_up(captured)        # Hit, Miss or Refused
    finish(half, cache)                    # for each graph of what was found: build, from the cache, and link
    store.keep(asked, finished)            # after the passes have run, where nothing was found

A key is everything that the passes read: the text of the captured value, what tensors say that isn't in it, torch's
settings, the machine, versions, and the sources of our own packages. What has no stable text is refused, with the
reason, and the graph is compiled as ever.

Invariants:
    - An entry is text. Nothing in it is imported by name or executed but the source of its kernels, which goes through
      the compiler and the cache of machine code as any other does.
    - A value whose text isn't all of it has no key: functions and tensors of the user's, operators from outside of
      torch, sizes that depend on data, devices other than the CPU.
    - An entry that can't be read is a miss; it is told once a process.
"""

from intarsia_runtime.warm.finished import Finished, buildable, finish, parse_finished, text_and_tensors
from intarsia_runtime.warm.keys import Refused
from intarsia_runtime.warm.settings import fingerprint, settings
from intarsia_runtime.warm.store import Hit, Miss, PlanStore

__all__ = [
    "Finished",
    "Hit",
    "Miss",
    "PlanStore",
    "Refused",
    "buildable",
    "fingerprint",
    "finish",
    "parse_finished",
    "settings",
    "text_and_tensors",
]
