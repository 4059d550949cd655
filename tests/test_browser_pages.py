"""Exported pages in Chromium, opened from the disk: what they compute, how fast, and that they ask for nothing.

They run only when asked for, ``pytest -m browser``, and need Chromium and its driver.
"""

import json
import re
import sys
import time
from pathlib import Path

import pytest
import torch
from chromium import CHROMIUM, DRIVER, windowless
from test_teach_export import rounded, stirred

from sciformer import data
from sciformer.lab.experiments import MNIST_IMAGE_TRANSFORMER, SHAKESPEARE
from sciformer.teach.export import export_html

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import pages_of_playground

#: At least so fast, on a machine that may be busy: milliseconds for a digit, characters for a second.
MS_A_DIGIT, CHARACTERS_A_SECOND = 50, 100

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver on the path"),
]


@pytest.fixture(scope="module")
def browser():
    """A Chromium without a window that writes down every request."""
    driver = windowless("1200,1600", loggingPrefs={"performance": "ALL", "browser": "ALL"})
    driver.set_script_timeout(300)
    yield driver
    driver.quit()


def opened(browser, path):
    """Open a file; afterwards the requests that it has made, itself aside, and the errors in its console."""
    browser.get_log("performance"), browser.get_log("browser")
    browser.get(path.as_uri())
    browser.execute_script("return document.readyState")
    return requests(browser, path), [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def requests(browser, path):
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if url.split("#")[0] != path.as_uri() and not url.startswith("data:")]


def milliseconds(call, repeats):
    call()
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return 1000 * (time.perf_counter() - started) / repeats


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_digits_are_read_as_torch_does_and_soon_enough(dtype, browser, tmp_path):
    model = stirred(MNIST_IMAGE_TRANSFORMER["quick"].model())
    page, images = export_html(model, tmp_path / "page.html", dtype=dtype), data.mnist("test")[0][:100]
    assert opened(browser, page) == ([], [])
    script = """const images = arguments[0].map(image => Float32Array.from(image));
        images.slice(0, 20).forEach(image => page.model.forward(image));
        const started = performance.now(), logits = images.map(image => Array.from(page.model.forward(image).logits));
        return [logits, (performance.now() - started) / images.length];"""
    found, ms = browser.execute_script(script, images.flatten(1).tolist())
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(found), rounded(model, dtype)(images), atol=1e-4, rtol=1e-5)
        of_torch = milliseconds(lambda: model(images[:1]), 20)
    print(f"{ms:.2f} ms a digit, {ms / of_torch:.1f} times torch's {of_torch:.2f} ms")
    assert ms <= MS_A_DIGIT
    assert requests(browser, page) == []


def test_text_is_written_as_torch_does_and_soon_enough(browser, tmp_path):
    setting, vocabulary = SHAKESPEARE["quick"]["distance"], data.shakespeare()[1]
    model = stirred(setting.model())
    page = export_html(model, tmp_path / "page.html")
    assert opened(browser, page) == ([], [])
    prompts = data.shakespeare("val")[0][: 20 * 40].view(20, 40)
    script = """const logits = arguments[0].map(prompt => Array.from(page.model.forward(prompt).logits.data));
        const stream = generate(page.model, arguments[0][0], {temperature: 0}), text = [], speeds = [];
        for (let turn = 0; turn < 5; turn++) {  // the quickest counts, since the machine may be busy in the others
            const started = performance.now(); for (let n = 0; n < 40; n++) text.push(stream.next().value.token);
            speeds.push(40000 / (performance.now() - started)); }
        return [logits, text, Math.max(...speeds)];"""
    found, text, speed = browser.execute_script(script, prompts.tolist())
    reference = rounded(model, "float16")
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(found), reference(prompts).flatten(1), atol=1e-4, rtol=1e-5)
    started = time.perf_counter()
    assert text == reference.generate(prompts[:1], 200, temperature=0)[0, 40:].tolist()
    of_torch = 200 / (time.perf_counter() - started)
    print(f"{speed:.0f} characters a second, {speed / of_torch:.2f} times torch's {of_torch:.0f}")
    assert speed >= CHARACTERS_A_SECOND
    assert len(vocabulary.decode(text)) == 200


def test_a_digit_is_drawn_with_the_keyboard_alone(browser, tmp_path):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    model = stirred(MNIST_IMAGE_TRANSFORMER["quick"].model())
    opened(browser, export_html(model, tmp_path / "page.html"))
    field = browser.find_element("id", "draw")
    browser.execute_script("arguments[0].focus()", field)
    ActionChains(browser).send_keys(Keys.SPACE, *(Keys.ARROW_DOWN,) * 14, Keys.SPACE).perform()
    ink = browser.execute_script("return Array.from(page.ink)")
    assert sum(value > 0.5 for value in ink) > 14
    assert browser.find_element("id", "said").text.startswith("It reads ")
    browser.execute_script("arguments[0].focus()", browser.find_element("id", "seen"))
    ActionChains(browser).send_keys(Keys.ARROW_RIGHT, Keys.SPACE).perform()
    assert browser.find_element("id", "patch").text == "Patch in row 1, column 2 of 4."
    assert browser.find_element("id", "hidden").text.startswith("With this patch hidden")


def test_a_text_is_gone_on_with_the_same_for_the_same_seed(browser, tmp_path):
    setting = SHAKESPEARE["quick"]["plain"]
    opened(browser, export_html(stirred(setting.model()), tmp_path / "page.html"))
    texts = []
    for seed in ("3", "3", "4"):
        browser.execute_script("find('seed').value = arguments[0]; find('count').value = 30", seed)
        browser.find_element("id", "write").click()
        until = time.monotonic() + 60
        while "a second" not in browser.find_element("id", "speed").text:
            assert time.monotonic() < until
            time.sleep(0.1)
        texts.append(browser.execute_script("return find('text').textContent"))
        browser.execute_script("find('speed').textContent = ''")
    assert texts[0] == texts[1] != texts[2]
    assert len(texts[0]) == len("ROMEO:\n") + 30


@pytest.fixture(scope="module")
def playground(tmp_path_factory):
    """The pages of the playground by name."""
    folder = tmp_path_factory.mktemp("playground")
    return {path.stem: path for path in pages_of_playground.write_playground(folder)}


def until(browser, condition, seconds=120):
    """What a JavaScript expression gives, once that is true."""
    end = time.monotonic() + seconds
    while not (result := browser.execute_script(f"return {condition}")):
        assert time.monotonic() < end, f"waited {seconds} s for {condition}"
        time.sleep(0.2)
    return result


@pytest.mark.parametrize("name", pages_of_playground.TITLES)
def test_pages_of_the_playground_ask_for_nothing_and_have_no_errors(name, playground, browser):
    assert opened(browser, playground[name]) == ([], [])
    time.sleep(1)
    assert requests(browser, playground[name]) == []


def test_the_shipped_models_are_quick_enough(playground, browser):
    """In the quickest of several turns, since the machine may be busy with something else in the others."""
    opened(browser, playground["draw"])
    script = """const shown = page.seen(); for (let n = 0; n < 20; n++) page.read(shown);
        return Math.min(...Array.from({length: 5}, () => {
            const started = performance.now(); for (let n = 0; n < 20; n++) page.read(shown);
            return (performance.now() - started) / 20 }))"""
    ms = browser.execute_script(script)
    opened(browser, playground["write"])
    script = """const stream = generate(page.model, page.prompt(), {temperature: 0.8, random: seeded(0)});
        for (let n = 0; n < 40; n++) stream.next();
        return Math.max(...Array.from({length: 6}, () => {
            const started = performance.now(); for (let n = 0; n < 50; n++) stream.next();
            return 50000 / (performance.now() - started) }))"""
    speed = browser.execute_script(script)
    print(f"the reader takes {ms:.2f} ms a digit, the writer writes {speed:.0f} characters a second")
    assert ms <= MS_A_DIGIT
    assert speed >= CHARACTERS_A_SECOND


def test_a_word_is_moved_by_keyboard_and_asks(playground, browser):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    opened(browser, playground["words"])
    before = browser.execute_script("return page.points[2][0]")
    browser.execute_script("page.handles[2].focus()")
    ActionChains(browser).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER).perform()
    assert browser.execute_script("return page.points[2][0]") == pytest.approx(before + 0.2)
    assert browser.find_element("id", "query").get_attribute("value") == "2"
    rows = browser.execute_script("return [...document.querySelectorAll('#cancels tr')].map(row => row.innerText)")
    changes = {row.split("\t")[0]: row.split("\t")[1] for row in rows}
    assert changes["separable"] == "0.0 %"
    assert changes["dot"] != "0.0 %"


def test_it_looks_at_the_noun_that_the_last_word_makes_it_mean(playground, browser):
    """Under the dot product; the separable score cannot follow, since its query cancels."""
    opened(browser, playground["words"])
    said = "return ['dot', 'separable'].map(name => find(`most-${name}`).textContent)"
    end = "find('ending').value = arguments[0]; find('ending').dispatchEvent(new Event('input'))"
    assert browser.execute_script(said) == ["Weights: most at “animal”"] * 2
    browser.execute_script(end, "wide")
    assert browser.execute_script(said) == ["Weights: most at “street”", "Weights: most at “animal”"]
    assert browser.execute_script("return find('sentence').textContent.trim()").endswith("too wide")


def test_an_inverted_mask_costs_the_writer_and_not_the_reader(playground, browser):
    opened(browser, playground["break"])
    sound = until(browser, "find('said').textContent.startsWith('Nothing is broken') && page.sound")
    browser.find_element("id", "inverted").click()
    until(browser, "find('said').textContent.startsWith('With inverted mask')")
    numbers = "[...find(id).querySelectorAll('.value')].map(value => parseFloat(value.textContent))"
    shares = browser.execute_script(f"return ['accuracy', 'losses'].map(id => {numbers})")
    assert shares[0][0] == shares[0][1] >= 96
    assert shares[1][0] == pytest.approx(sound["loss"], abs=0.01)
    assert shares[1][1] > shares[1][0] + 1


def test_the_two_slopes_are_two_and_one(playground, browser):
    """By a clock that each call moves on by what it should cost: the real one depends on what else the machine does."""
    opened(browser, playground["slopes"])
    until(browser, "find('said').textContent.startsWith('Slopes')")
    browser.execute_script("""
        let now = 0;
        performance.now = () => now;
        const [pairs, running] = [attend, running_mean];
        attend = (scores, ...rest) => { now += 1e-4 * scores.rows ** 2; return pairs(scores, ...rest); };
        running_mean = (x, weight) => { now += 1e-2 * x.rows; return running(x, weight); };
        find('measure').click();
    """)
    said = until(browser, "find('said').textContent.startsWith('Slopes') && find('said').textContent")
    assert re.findall(r"(\d\.\d\d) for", said) == ["2.00", "1.00"]
