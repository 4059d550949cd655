"""Small pictures of the playground's pages, for the site's landing page: python tools/screenshots.py

They go to ``docs/playground``. It needs Chromium, chromedriver and selenium (the extra ``dev``).
"""

import io
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pages_of_playground
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

TARGET = Path(__file__).parents[1] / "docs" / "playground"
#: What a page shows in its picture: how far it is scrolled, and what has been done in it.
SHOWN = {
    "draw": (190, "page.take_example(4); page.choose(1, 2)", 2),
    "write": (260, "page.write()", 6),
    "words": (290, "", 1),
    "break": (270, "find('inverted').click()", 20),
    "slopes": (230, "", 6),
}


@contextmanager
def windowless(size: str) -> Iterator[webdriver.Chrome]:
    """A Chromium without a window and without scroll bars, as large as if it had a window of this size."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={size}"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def main() -> None:
    """Open each page, do something in it, and keep a small picture."""
    TARGET.mkdir(parents=True, exist_ok=True)
    with windowless("1100,760") as driver, tempfile.TemporaryDirectory() as folder:
        for path in pages_of_playground.write_playground(Path(folder)):
            scrolled, action, seconds = SHOWN[path.stem]
            driver.get(path.as_uri())
            driver.execute_script(f"shade('light'); {action}; scrollTo(0, {scrolled})")
            time.sleep(seconds)
            picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
            picture = picture.resize((550, round(550 * picture.height / picture.width)), Image.Resampling.LANCZOS)
            picture.quantize(256).save(TARGET / f"{path.stem}.png", optimize=True)


if __name__ == "__main__":
    main()
