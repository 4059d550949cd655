"""Explorers in JupyterLab, in a real browser: run whole, moved by the keyboard, saved, opened again.

Slow, so they run only when asked for: ``pytest -m browser``. They need Chromium and its driver.
"""

import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from chromium import CHROMIUM, DRIVER, windowless

ROOT = Path(__file__).parents[1]
WITH_EXPLORERS = [path for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if "explore(" in path.read_text()]
PATIENCE = 900  # seconds for a notebook, on a machine that may be busy
#: What the keyboard can reach in an explorer: handles of sliders, choices, squares to click.
HANDLES = ".noUi-handle, .jp-OutputArea select, .widget-gridbox button"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver on the path"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab on loopback over copies of the notebooks, so that what is saved changes nothing here."""
    pytest.importorskip("jupyterlab")
    folder, token = tmp_path_factory.mktemp("lab"), secrets.token_hex(16)
    for path in WITH_EXPLORERS:
        shutil.copy(path, folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    options = [
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={address.rpartition(':')[2]}",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.app_settings_dir={ROOT / 'tools' / 'lab'}",  # as make lab has it
        f"--LabApp.user_settings_dir={folder / 'settings'}",  # not those of whoever runs the test,
        f"--LabApp.workspaces_dir={folder / 'workspaces'}",  # nor the notebooks they have open
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.news_url=",
    ]
    with (folder / "lab.log").open("w") as log:
        server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options], stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: answers(f"{address}/api?token={token}"), "JupyterLab to answer")
        yield folder, lambda name: f"{address}/lab/tree/{name}?reset&token={token}"
    finally:
        server.terminate()
        server.wait(120)


@pytest.fixture
def browser():
    """A Chromium without a window."""
    driver = windowless("1300,1400")
    driver.set_page_load_timeout(PATIENCE)
    yield driver
    driver.quit()


def answers(address):
    try:
        return urllib.request.urlopen(address, timeout=2).status == 200
    except OSError:
        return False


def wait_for(condition, what, seconds=PATIENCE):
    """What ``condition`` gives, once that is true."""
    until = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.25)
    return result


def in_notebook(browser, script, *arguments):
    """Run JavaScript where ``panel`` is the notebook's panel and ``cells`` are its cells."""
    return browser.execute_script(
        "const panel = window.jupyterapp.shell.currentWidget, cells = panel?.content?.widgets;" + script, *arguments
    )


def open_notebook(browser, address):
    """Show a notebook with all its cells in the page, its kernel ready."""
    browser.get(address)
    wait_for(lambda: browser.execute_script("return !!window.jupyterapp?.shell?.currentWidget?.sessionContext"), "Lab")
    ready = "return panel.sessionContext.session?.kernel?.status === 'idle' && cells.length > 5"
    wait_for(lambda: in_notebook(browser, ready), "the kernel")
    in_notebook(browser, "panel.content.notebookConfig = {...panel.content.notebookConfig, windowingMode: 'none'}")


def command(browser, name):
    """Run a command of JupyterLab to its end."""
    browser.execute_script(
        "window.ended = null; window.jupyterapp.commands.execute(arguments[0])"
        ".then(() => { window.ended = 'ok' }, error => { window.ended = String(error) })",
        name,
    )
    assert wait_for(lambda: browser.execute_script("return window.ended"), name) == "ok"


def errors(browser):
    return in_notebook(
        browser,
        """return cells.flatMap((cell, number) => {
            const model = cell.outputArea?.model;
            return [...Array(model?.length ?? 0).keys()].map(n => model.get(n).toJSON())
                .filter(output => output.output_type === 'error')
                .map(output => `cell ${number}: ${output.ename}: ${output.evalue}`)
        })""",
    )


def explorers(browser, what):
    """What a JavaScript expression makes of each ``cell`` that calls ``explore``."""
    return in_notebook(
        browser, f"return cells.filter(c => /^explore\\(/m.test(c.model.sharedModel.source)).map(cell => {what})"
    )


def pictures(browser, cell):
    return browser.execute_script("return [...arguments[0].querySelectorAll('img')].map(image => image.src)", cell)


def move(browser, cell, handle):
    """Use one handle as a keyboard does, until the picture is another."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    before = pictures(browser, cell)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", handle)
    ways = {  # at its end a slider, or a list, goes one way only
        "button": [(Keys.SPACE,)],
        "div": [(Keys.ARROW_RIGHT,) * 2, (Keys.ARROW_LEFT,) * 2],
        "select": [(Keys.SPACE, Keys.ARROW_DOWN, Keys.ENTER), (Keys.SPACE, Keys.ARROW_UP, Keys.ENTER)],
    }
    for keys in ways[handle.tag_name]:
        for key in keys:  # one at a time: a list takes a moment to open
            ActionChains(browser).send_keys(key).pause(0.3).perform()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if pictures(browser, cell) != before:
                return True
            time.sleep(0.25)
    return False


@pytest.mark.parametrize("path", WITH_EXPLORERS, ids=lambda path: path.stem)
def test_explorers_move_by_keyboard_and_outlive_saving(path, lab, browser):
    folder, address = lab
    open_notebook(browser, address(path.name))
    command(browser, "notebook:run-all-cells")
    assert errors(browser) == []
    numbers = explorers(browser, "cells.indexOf(cell)")
    assert numbers
    for number in numbers:
        in_notebook(browser, "panel.content.activeCellIndex = arguments[0]", number)
        in_notebook(browser, "return panel.content.scrollToItem(arguments[0])", number)  # what is far away has no node
        cell = in_notebook(browser, "return cells[arguments[0]].node", number)
        handles = wait_for(lambda cell=cell: cell.find_elements("css selector", HANDLES), "the sliders", 60)
        squares = [handle for handle in handles if handle.tag_name == "button"]
        for handle in [handle for handle in handles if handle not in squares] + squares[1:2]:
            assert move(browser, cell, handle), f"{handle.get_attribute('outerHTML')[:200]} changes nothing"

    command(browser, "docmanager:save")
    in_notebook(browser, "return panel.sessionContext.shutdown()")
    open_notebook(browser, address(path.name))
    still = "[...cell.outputArea.node.querySelectorAll('img')].map(image => image.src)[0]"
    wait_for(lambda: all(explorers(browser, still)), "the pictures", 60)
    assert not any("rror" in text for text in explorers(browser, "cell.outputArea.node.textContent"))
    browser.save_screenshot(str(folder / f"{path.stem}.png"))
