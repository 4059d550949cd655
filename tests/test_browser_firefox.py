"""The pages in Firefox, spoken to by WebDriver BiDi, which needs no driver beside it.

They run only when asked for, ``pytest -m browser``, and need Firefox.
"""

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from test_teach_export import rounded, stirred

from sciformer import data
from sciformer.lab.experiments import MNIST_IMAGE_TRANSFORMER, SHAKESPEARE
from sciformer.teach.export import export_html

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import pages_of_playground

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not FIREFOX, reason="needs Firefox on the path")]


class Firefox:
    """One tab of a Firefox without a window."""

    def __init__(self, address):
        websocket = pytest.importorskip("websocket")
        self.socket = websocket.create_connection(address, timeout=120, suppress_origin=True)
        self.count, self.events = 0, []
        self.command("session.new", {"capabilities": {}})
        self.tab = self.command("browsingContext.getTree", {})["contexts"][0]["context"]
        self.command("session.subscribe", {"events": ["network.beforeRequestSent", "log.entryAdded"]})

    def command(self, method, params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while (answer := json.loads(self.socket.recv())).get("id") != self.count:
            self.events.append(answer)
        assert answer["type"] == "success", answer
        return answer["result"]

    def open(self, path):
        """Open a file; the requests that left it, and the errors in its console."""
        self.events.clear()
        self.command("browsingContext.navigate", {"context": self.tab, "url": path.as_uri(), "wait": "complete"})
        self.evaluate("new Promise(resolve => setTimeout(resolve, 500))")
        events = [(event["method"], event["params"]) for event in self.events if event.get("type") == "event"]
        urls = [p["request"]["url"] for method, p in events if method == "network.beforeRequestSent"]
        errors = [p["text"] for method, p in events if method == "log.entryAdded" and p["level"] == "error"]
        return [url for url in urls if not url.startswith(("file:", "data:"))], errors

    def evaluate(self, expression):
        """What an expression gives, as JSON takes it."""
        params = {"expression": f"(async () => JSON.stringify(await {expression}))()", "awaitPromise": True}
        answer = self.command("script.evaluate", params | {"target": {"context": self.tab}})
        assert answer["type"] == "success", answer
        return json.loads(answer["result"].get("value", "null"))


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("firefox")
    command = [FIREFOX, "--headless", "--no-remote", "--profile", folder, f"--remote-debugging-port={port}"]
    with (folder / "firefox.log").open("w") as log:
        process = subprocess.Popen([*command, "about:blank"], stdout=log, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 60
        while "WebDriver BiDi listening" not in (folder / "firefox.log").read_text():
            assert time.monotonic() < until, "Firefox does not listen"
            time.sleep(0.2)
        yield Firefox(f"ws://127.0.0.1:{port}/session")
    finally:
        process.terminate()
        process.wait(60)


def test_digits_are_read_as_torch_does(firefox, tmp_path):
    model, images = stirred(MNIST_IMAGE_TRANSFORMER["quick"].model()), data.mnist("test")[0][:100]
    assert firefox.open(export_html(model, tmp_path / "page.html")) == ([], [])
    given = json.dumps(images.flatten(1).tolist())
    found = firefox.evaluate(f"{given}.map(image => Array.from(page.model.forward(Float32Array.from(image)).logits))")
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(found), rounded(model, "float16")(images), atol=1e-4, rtol=1e-5)


def test_text_is_written_as_torch_does(firefox, tmp_path):
    model, prompt = stirred(SHAKESPEARE["quick"]["distance"].model()), data.shakespeare("val")[0][:40]
    assert firefox.open(export_html(model, tmp_path / "page.html")) == ([], [])
    script = f"""(() => {{
        const stream = generate(page.model, {prompt.tolist()}, {{temperature: 0}});
        return Array.from({{length: 100}}, () => stream.next().value.token);
    }})()"""
    wanted = rounded(model, "float16").generate(prompt[None], 100, temperature=0)[0, 40:].tolist()
    assert firefox.evaluate(script) == wanted


def test_pages_of_the_playground_ask_for_nothing_and_have_no_errors(firefox, tmp_path):
    for path in pages_of_playground.write_playground(tmp_path):
        assert firefox.open(path) == ([], []), path
