"""The page of documentation that the rows of a sweep make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

__all__ = ["is_right", "page", "summary"]

Row = dict[str, Any]
TITLE = """# Models of transformers, timm and diffusers

Each is built small with random weights and compiled on a CPU with `on_error="raise"`; calls of up to three batch sizes
and the gradients of a training step are compared with eager. `python -m integration.sweep --library LIBRARY` runs those
that have no row in `integration/sweep/rows.jsonl` yet, `--again` those that aren't right as well, and
`--write docs/models.md` writes this page from the rows. "Versions" is how often code was compiled for all batch sizes;
"no" under training means that eager doesn't train the model, or that it has nothing to train.
"""
HEAD = """| family | model | equals eager | one graph | versions | training | reason |
| --- | --- | --- | --- | ---: | --- | --- |"""


def is_right(row: Row) -> bool:
    """Tell whether a row holds no fault of the compiler's."""
    return row["runs"] is not True or (row["inference"] == "right" and _trained(row) in ("right", "no"))


def _trained(row: Row) -> str:
    """Return "right", "no" or what is wrong, without its reason."""
    return str(row.get("training", "no")).split(":")[0]


def summary(rows: Iterable[Row]) -> list[str]:
    """Return what holds of the rows, as lines."""
    rows = list(rows)
    ran = [row for row in rows if row["runs"] is True]
    whole = sum(row.get("graphs") == 1 for row in ran)
    training = Counter(map(_trained, ran))
    wrong = [row["architecture"] for row in ran if not is_right(row)]
    right = sum(row["inference"] == "right" for row in ran)
    anew = [row["architecture"] for row in ran if row.get("versions", 1) > 2]
    return [
        f"{len(ran)} of {len(rows)} run in eager; right without gradients {right}; "
        f"fallbacks {sum(row.get('fallbacks', 0) for row in ran)}",
        f"one graph: {whole} ({whole / max(1, len(ran)):.0%})",
        f"trained: {training['right']} right of {sum(training.values()) - training['no']}",
        f"more than two versions for three batch sizes: {', '.join(anew) or 'none'}",
        f"not right: {', '.join(wrong) or 'none'}",
    ]


def page(rows: Iterable[Row]) -> str:
    """Return the page: a section a library, with what ran where and when, and a line a model that eager runs."""
    rows = sorted(rows, key=lambda row: (row["library"], row["family"], row["architecture"]))
    parts = [TITLE]
    for library in dict.fromkeys(row["library"] for row in rows):
        chosen = [row for row in rows if row["library"] == library]
        ran = [row for row in chosen if row["runs"] is True]
        days = sorted(row["date"] for row in chosen)
        when = " to ".join(dict.fromkeys((days[0], days[-1])))
        parts += [f"## {library}", ""]
        parts += [f"- {'; '.join(sorted({row['with'] for row in chosen}))}; {when}"]
        parts += [*(f"- {line}" for line in summary(chosen)), "", HEAD, *map(_line, ran), ""]
    return "\n".join(parts)


def _line(row: Row) -> str:
    right = row["inference"] == "right"
    told = [row[key] for key in ("inference", "training") if row.get(key, "right") != "right"]
    graphs = row.get("graphs", "")
    cells = (
        row["family"],
        row["architecture"],
        "yes" if right else "no",
        "yes" if graphs == 1 else graphs,
        row.get("versions", ""),
        {"right": "yes", "no": "no"}.get(_trained(row), "not right"),
        "; ".join((*told, *row.get("breaks", ()))),
    )
    return f"| {' | '.join(str(cell).replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"
