"""HTML pages read back: what is in them, and what they would load."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

__all__ = ["Page", "read_page"]

_LOADS = {"src", "srcset", "data", "action", "poster", "background"}
_VOID = {"meta", "input", "br", "link", "img", "hr", "base"}


@dataclass
class Page:
    """What is in a page.

    Args:
        ids: Of its elements, in order.
        links: Targets of its links, in order.
        loads: Values of attributes that make a browser load something.
        tags: Names of its elements, in order.
        text: All that is shown, styles and scripts left out.
        scripts: Texts of its scripts.
        unbalanced: End tags without a start, and starts without an end.
    """

    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    text: str = ""
    scripts: list[str] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)


def read_page(html: str) -> Page:
    """Return what is in a page.

    Example:
        >>> page = read_page('<p id="a">1 &lt; 2 <a href="#a">back</a></p>')
        >>> page.ids, page.links, page.text, page.unbalanced
        (['a'], ['#a'], '1 < 2 back', [])
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    reader.page.unbalanced += [f"<{tag}>" for tag in reader.open]
    reader.page.text = "".join(reader.shown)
    return reader.page


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.open: list[str] = []
        self.shown: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.page.ids.append(value or "")
            elif name == "href" and tag == "a":
                self.page.links.append(value or "")
            elif name in _LOADS or name == "href" or name.startswith("on"):
                self.page.loads.append(f"{tag} {name}={value}")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.page.unbalanced.append(f"</{tag}>")
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.page.scripts.append(data)
        elif inside != "style":
            self.shown.append(data)
