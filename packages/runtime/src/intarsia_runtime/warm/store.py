"""Where finished plans are kept: entries of the cache of machine code, under keys of their own."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass

from intarsia_ir.errors import IntarsiaError, UnsupportedError
from intarsia_ir.values import Captured
from intarsia_ir.where import warn_user
from intarsia_runtime.cache import Cache
from intarsia_runtime.warm.finished import Finished, parse_finished, print_finished
from intarsia_runtime.warm.keys import Refused, key_parts
from intarsia_runtime.warm.settings import settings

__all__ = ["Hit", "Miss", "PlanStore"]

_log = logging.getLogger("intarsia.runtime.warm")


@dataclass(frozen=True, slots=True)
class Hit:
    """The plan of a graph, from an earlier compilation."""

    finished: Finished


@dataclass(frozen=True, slots=True)
class Miss:
    """There is no plan of a graph yet.

    Args:
        key: Where it is going to be.
    """

    key: str


@dataclass(frozen=True, slots=True)
class PlanStore:
    """Finished plans by what they were made of.

    Args:
        cache: Where entries are; it bounds and checks them.
        made_by: What decides besides the captured value and torch's settings: the fingerprint of the packages that
            compile, the target, options and tables that have a text.
    """

    cache: Cache
    made_by: tuple[str, ...]

    def look_up(self, captured: Captured, promises: tuple[str, ...] = ()) -> Hit | Miss | Refused:
        """Return the plan of a captured graph, where it would be, or why it has none.

        Args:
            captured: As it goes into the first stage.
            promises: What the user's marks promise of its sizes: passes may ask for no more.
        """
        parts = key_parts(captured)
        if isinstance(parts, Refused):
            return parts
        key = Cache.key("plan", *self.made_by, settings(), repr(promises), *parts)
        payload = self.cache.get(key)
        if payload is None:
            return Miss(key)
        try:
            return Hit(parse_finished(payload.decode()))
        except (ValueError, KeyError, TypeError, IndexError, IntarsiaError) as error:
            _log.warning("the plan %s can't be read: %s", key[:16], error)
            _warn_once(f"a finished plan in {self.cache.directory} can't be read and will be made again")
            return Miss(key)

    def keep(self, key: str, finished: Finished) -> str:
        """Keep a plan under the key that `look_up` gave; return why it can't be kept, or ""."""
        if derived := finished.facts.ranges.keys() - finished.facts.symbols.keys():
            return f"the size {min(derived)} depends on data"
        try:
            text = print_finished(finished)
        except UnsupportedError as error:
            return error.explanation
        kept = self.cache.put(key, text.encode())
        _log.info("kept the plan %s: %d bytes", key[:16], len(text))
        return "" if kept else "the cache can't be written"


@functools.cache
def _warn_once(message: str) -> None:
    warn_user(message, RuntimeWarning)
