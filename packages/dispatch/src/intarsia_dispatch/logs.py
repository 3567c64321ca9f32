"""Which of the loggers below `intarsia` print: `"graph,+frames"`."""

from __future__ import annotations

import logging

from intarsia_ir.choices import suggestion
from intarsia_ir.where import warn_user

__all__ = ["TOPICS", "configure_logging"]

# logger below "intarsia" -> what it tells; with "+", the part in brackets too
TOPICS = {
    "frames": "what became of each Python frame (+: of those without tensor work, too)",
    "graph": "each compiled graph, its kernels and library calls (+: how long each stage took)",
    "dispatch": "(+: the same as frames, without a pipeline around it)",
    "recompiles": "each recompilation: what changed, where, and the remedy; what changes again and again once",
    "guards": "whether guards are checked natively",
    "runtime": "what was built, and what is wrong with the cache",
}


def configure_logging(text: str) -> None:
    """Set levels of the loggers named in `text`, and print them to stderr.

    Args:
        text: Comma-separated topics, each with `+` for debug or `-` for errors only in front, such as
            `"graph,+dispatch"`; `"all"` names every one. An empty text changes nothing; a word that is no topic is
            warned of.

    Example:
        >>> configure_logging("+graph")
        >>> logging.getLogger("intarsia.graph").level == logging.DEBUG
        True
    """
    names = [n.strip() for n in text.split(",") if n.strip()]
    root = logging.getLogger("intarsia")
    if names and not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname).1s %(name)s: %(message)s"))
        root.addHandler(handler)
    for name in names:
        level = {"+": logging.DEBUG, "-": logging.ERROR}.get(name[0], logging.INFO)
        bare = name.lstrip("+-")
        if bare.partition(".")[0] not in (*TOPICS, "all"):
            hint = suggestion(bare, TOPICS) or f"; there are {', '.join((*TOPICS, 'all'))}"
            warn_user(f"no topic of logs is called {bare!r}{hint}", UserWarning)
        logger = root if bare == "all" else logging.getLogger(f"intarsia.{bare}")
        logger.setLevel(level)
