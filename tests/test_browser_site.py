"""The built site and slides in Chromium: nothing asks a network, nothing has an error, and axe finds no violation.

They run only when asked for, ``pytest -m browser``, and need the extra ``site``, Chromium and its driver; axe comes
from npm.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from chromium import CHROMIUM, DRIVER
from test_browser_pages import browser  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[1]
AXE = "axe-core@4.14.1"
NEEDED = ("sphinx", "myst_nb", "sphinx_book_theme", "sphinx_revealjs")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver on the path"),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in NEEDED), reason="needs pip install -e '.[site]'"
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built anew."""
    out = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, ROOT / "tools" / "build_site.py", "--out", out], check=True)
    return out


@pytest.fixture(scope="module")
def slides(tmp_path_factory):
    """The deck of one notebook, and the page that lists the decks."""
    out = tmp_path_factory.mktemp("slides")
    command = [sys.executable, ROOT / "tools" / "slides.py", "--notebooks", "02", "--out", out]
    subprocess.run(command, check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """The script of axe-core."""
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("needs npm on the path")
    subprocess.run([npm, "install", "--silent", "--no-audit", "--prefix", folder, AXE], check=True)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def pages(site):
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


#: One page of each kind, and every page of the playground, for what takes long.
KINDS = (
    "index",
    "playground",
    "results",
    "start",
    "instructors",
    "paths",
    "exam",
    "glossary",
    "06_image_transformer",
    "08_character_model",
    "functional",
    "search",
)


def some_pages(site):
    return [path for path in pages(site) if path.stem in KINDS or path.parent.name == "playground"]


class References(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self):
        super().__init__()
        self.links, self.anchors = [], set()

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name in ("id", "name"):
                self.anchors.add(value)


def complaints(browser):  # noqa: F811
    """What was asked of a network since the last look, and the errors of the pages."""
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]
    assert urls, "the browser keeps no log"
    asked = [url for url in urls if not re.match(r"file:|data:|blob:", url)]
    return asked + [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_every_link_within_the_site_leads_somewhere(site):
    read = {}
    for path in pages(site):
        read[path] = References()
        read[path].feed(path.read_text(encoding="utf-8"))
    broken = []
    for path, references in read.items():
        for link in references.links:
            if re.match(r"[a-z]+:|//", link):
                continue
            address, _, anchor = unquote(link).partition("#")
            target = (path.parent / address.partition("?")[0]).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            found = target.exists() and (not anchor or target not in read or anchor in read[target].anchors)
            broken += [] if found else [f"{path.relative_to(site)}: {link}"]
    assert broken == []


def test_no_page_asks_a_network_and_none_has_an_error(site, browser):  # noqa: F811
    assert len(pages(site)) > 40
    for path in pages(site):
        browser.get_log("performance"), browser.get_log("browser")
        browser.get(path.as_uri())
        assert complaints(browser) == [], path


def test_no_slide_asks_a_network_and_none_has_an_error(slides, browser):  # noqa: F811
    browser.get_log("performance"), browser.get_log("browser")
    browser.get((slides / "index.html").as_uri())
    assert complaints(browser) == []
    browser.get((slides / "02_scaled_dot_product.html").as_uri())
    seen = 1
    while not browser.execute_script("return Reveal.isLastSlide()"):
        browser.execute_script("Reveal.next()")
        seen += 1
    assert seen >= 10
    assert browser.execute_script("return document.querySelectorAll('mjx-container').length") > 0, "formulas are set"
    assert complaints(browser) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation(theme, site, axe, browser):  # noqa: F811
    found = []
    for path in some_pages(site):
        browser.get(path.as_uri())
        browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        browser.execute_script(axe)
        time.sleep(0.5)  # colours fade over
        violations = browser.execute_async_script(
            "const done = arguments[0]; axe.run().then(result => done(result.violations), error => done(String(error)))"
        )
        found += [
            f"{path.relative_to(site)}: {violation['id']}, {len(violation['nodes'])} times, first "
            f"{violation['nodes'][0]['html'][:200]}: {violation['nodes'][0]['failureSummary'][:300]}"
            for violation in violations
        ]
    assert found == [], "\n".join(found)


def test_nothing_is_wider_than_a_phone(site, browser):  # noqa: F811
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        wide = []
        for path in some_pages(site):
            browser.get(path.as_uri())
            if (width := browser.execute_script("return document.documentElement.scrollWidth")) > 390:
                wide.append(f"{path.relative_to(site)}: {width}")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide == []


def test_a_line_of_code_fits_at_1280_pixels(site, browser):  # noqa: F811
    """Of 120 characters, the notebooks' limit; what is longer has a scroll bar."""
    laptop = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", laptop)
    try:
        for path in sorted((site / "notebooks").glob("*.html")):
            browser.get(path.as_uri())
            cut = """const short = p => Math.max(...p.textContent.split("\\n").map(line => line.length)) <= 120;
                return [...document.querySelectorAll(".cell_input pre")].filter(short)
                    .filter(p => p.scrollWidth > p.clientWidth).map(p => p.textContent.slice(0, 60))"""
            assert browser.execute_script(cut) == [], path.stem
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_pictures_say_what_they_show(site):
    page = (site / "notebooks" / "06_image_transformer.html").read_text(encoding="utf-8")
    assert 'alt="a digit, and where one of its patches looks in each head"' in page


def test_what_it_is_and_how_to_start_stand_on_the_first_screen(site, browser):  # noqa: F811
    laptop = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", laptop)
    try:
        browser.get((site / "index.html").as_uri())
        below = "return arguments[0].getBoundingClientRect().bottom"
        for selector in (".what", ".how pre", '.how img[alt="Open in Colab"]'):
            assert browser.execute_script(below, browser.find_element("css selector", selector)) < 800, selector
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_light_and_dark_go_along_to_the_playground(site, browser):  # noqa: F811
    browser.get((site / "playground" / "words.html").as_uri())
    browser.execute_script("shade('light'); find('theme').click()")
    browser.get((site / "index.html").as_uri())
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    browser.get((site / "playground" / "draw.html").as_uri())
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    browser.execute_script("localStorage.clear()")


def test_the_search_finds_a_word(site, browser):  # noqa: F811
    browser.get((site / "search.html").as_uri() + "?q=softmax")
    browser.implicitly_wait(20)
    assert browser.find_elements("css selector", "#search-results li a")
    browser.implicitly_wait(0)
