"""Run every ```python block of the Markdown files given, one namespace a file; blocks inside lists count, too.

With `--apart` first, each block has a namespace of its own: whoever copies one alone can run it.

Lines are counted as in the file, so that tracebacks and `inspect.getsource` show the block's own.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def main(arguments: list[str]) -> int:
    apart = arguments[:1] == ["--apart"]
    for path in arguments[1:] if apart else arguments:
        text = Path(path).read_text(encoding="utf-8")
        blocks = ["\n" * text.count("\n", 0, b.start(2)) + textwrap.dedent(b[2]) for b in BLOCK.finditer(text)]
        if not blocks:
            print(f"{path}: no runnable example", file=sys.stderr)
            return 1
        namespace: dict[str, object] = {"__name__": "__main__"}
        for block in blocks:
            exec(compile(block, path, "exec"), dict(namespace) if apart else namespace)
        print(f"{path}: {len(blocks)} example(s) ran")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
