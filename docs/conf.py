"""Sphinx configuration."""

project = "Intarsia"
author = "the Intarsia authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
myst_heading_anchors = 3
# links into the source tree are for readers of the repository
suppress_warnings = ["myst.xref_missing"]
