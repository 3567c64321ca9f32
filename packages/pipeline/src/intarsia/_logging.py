"""`INTARSIA_LOGS`: comma-separated logger names below `intarsia`, `+name` for debug, `-name` for errors only."""

from __future__ import annotations

import logging
import os

__all__ = ["configure_logging"]


def configure_logging(text: str | None = None) -> None:
    """Set levels of the loggers named in `text` (default: the environment), and print them to stderr.

    Args:
        text: Such as `"graph,+dispatch"`; `"all"` names every logger. An empty text changes nothing.

    Example:
        >>> configure_logging("+graph")
        >>> logging.getLogger("intarsia.graph").level == logging.DEBUG
        True
    """
    text = os.environ.get("INTARSIA_LOGS", "") if text is None else text
    names = [n.strip() for n in text.split(",") if n.strip()]
    root = logging.getLogger("intarsia")
    if names and not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname).1s %(name)s: %(message)s"))
        root.addHandler(handler)
    for name in names:
        level = {"+": logging.DEBUG, "-": logging.ERROR}.get(name[0], logging.INFO)
        bare = name.lstrip("+-")
        logger = root if bare == "all" else logging.getLogger(f"intarsia.{bare}")
        logger.setLevel(level)
