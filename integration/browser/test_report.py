"""Pages of reports in a headless Chromium: no error, nothing loaded, no sideways scrolling, everything found."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn

import intarsia

browsers = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
WIDTHS = (1280, 390)
HOSTILE = "<script>document.title='broken'</script>"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(16, 64), nn.Linear(64, 16), nn.LayerNorm(16)

    def forward(self, x):
        y = self.norm(x + self.second(torch.nn.functional.gelu(self.first(x))))
        print(end="")
        return torch.softmax(y * 2, -1).square().sum()


@pytest.fixture(scope="module")
def told():
    return intarsia.explain(Net())(torch.randn(4, 16, requires_grad=True))


@pytest.fixture(scope="module")
def path(told, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "out.html"
    told.html(path)
    return path


@pytest.fixture(scope="module")
def chromium():
    with browsers.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(params=WIDTHS)
def opened(request, chromium, path):
    """The page, opened; nothing may have gone wrong in the end."""
    page = chromium.new_page(viewport={"width": request.param, "height": 844})
    wrong, loaded = [], []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: loaded.append(asked.url))
    page.goto(path.as_uri())
    yield page
    page.close()
    assert wrong == [] and loaded == [path.as_uri()]


def until(page, condition, *given):
    """Wait for a condition; not by the browser's own means, which the page's policy forbids."""
    for _ in range(200):
        if page.evaluate(condition, *given):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never: {condition}")


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def test_nothing_scrolls_sideways(opened):
    assert overflow(opened) <= 0
    opened.evaluate("for (const folded of document.querySelectorAll('details')) folded.open = true")
    assert overflow(opened) <= 0


def test_every_level_is_found_by_search(opened, told):
    for number, graph in enumerate(told.graphs):
        for at, stage in enumerate(graph.stages):
            if stage.after == stage.before or not stage.after:
                continue
            wanted = stage.after[0].splitlines()[0]  # its level
            opened.fill("#query", wanted)
            until(opened, "wanted => state.query === wanted", wanted)
            found = opened.evaluate(
                "id => state.matches.some(([node]) => node.parentElement.closest('#' + id) !== null)",
                f"g{number}-s{at}",
            )
            assert found, (number, stage.name)


def test_a_match_in_something_folded_is_shown(opened):
    opened.fill("#query", "// level: Kernels")
    until(opened, "state.query === '// level: Kernels'")
    assert not opened.locator("#g0-s12").evaluate("e => e.open")
    opened.click("form button[type=submit]")
    assert opened.inner_text("#count").startswith("1 of ")
    assert opened.locator("details.stage[open] .ir", has_text="// level: Kernels").first.is_visible()


def test_links_lead_to_what_is_folded(opened, told):
    kernel = opened.locator("details.kernel").first
    assert not kernel.evaluate("e => e.open")
    opened.locator("#lines a.chip").first.click()
    until(opened, "document.querySelector('details.kernel').open")
    assert told.graphs[0].details[0].source.splitlines()[0] in kernel.inner_text()


def test_a_name_is_followed_through_the_levels(opened):
    opened.evaluate("location.hash = '#g0-s11'")  # lower
    until(opened, "document.querySelector('#g0-s11').open")
    name = opened.evaluate("""
        [...document.querySelectorAll("#g0-s11 [data-n]")].find(
            (e) => e.dataset.o !== "" && !e.textContent.startsWith("graph")).dataset.n
    """)
    spot = opened.evaluate(
        """name => {
          const line = document.querySelector(`#g0-s11 [data-n="${name}"]`);
          line.scrollIntoView({ block: "center" });
          const text = document.createTreeWalker(line, NodeFilter.SHOW_TEXT).nextNode();
          const range = new Range();
          range.setStart(text, text.data.indexOf("%"));
          range.setEnd(text, text.data.indexOf("%") + 4);
          const box = range.getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }""",
        name,
    )
    opened.mouse.click(*spot)
    panel = opened.locator("#panel")
    assert panel.is_visible() and f"%{name}" in panel.inner_text()
    listed = panel.locator("a").all_inner_texts()
    assert listed[0].startswith("your line ") and any(text.startswith("captured: ") for text in listed)
    assert overflow(opened) <= 0
    panel.locator("a").first.click()
    until(opened, "location.hash.startsWith('#u')")


def test_a_name_with_a_script_in_it_runs_nothing(chromium, told, tmp_path):
    from intarsia_report import page

    path = tmp_path / "out.html"
    path.write_text(page(told, title=HOSTILE, line_of=lambda file, line: HOSTILE), encoding="utf-8")
    opened = chromium.new_page()
    opened.goto(path.as_uri())
    assert opened.title() == f"{HOSTILE}: what Intarsia compiled" and opened.inner_text("h1") == HOSTILE
    path.write_text(path.read_text(encoding="utf-8").replace("<h1>", f"<h1>{HOSTILE}"), encoding="utf-8")
    opened.goto(path.as_uri())  # even if it weren't escaped
    assert "what Intarsia compiled" in opened.title()
    opened.close()
