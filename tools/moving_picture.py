"""The README's moving picture, recorded from the playground: python tools/moving_picture.py

In the real page a digit is drawn with the pointer, read while it is drawn, and then the pointer passes over its
patches, so that the heads show where each looks. It goes to ``docs/draw.gif``, and needs Chromium, chromedriver and
selenium (the extra ``dev``).
"""

import io
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pages_of_playground
from PIL import Image
from screenshots import windowless
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

TARGET = Path(__file__).parents[1] / "docs" / "draw.gif"
#: The heads in two rows as wide as the page, so that the picture stays low.
STYLE = "find('heads').style.cssText = 'grid-template-columns: repeat(6, 1fr); max-width: none'"
#: The parts of the page that the picture shows, one above the other: each from the top of one element to another's end.
PARTS = (("section.columns", "#draw"), ("section:has(> #heads)", "#heads"))
WIDTH, COLOURS = 760, 96
#: A three: two arcs, each with its centre, its radius and the angles where it begins and ends, in parts of the field;
#: and the steps in which an arc is drawn.
ARCS = ((0.48, 0.34, 0.17, -150, 90), (0.48, 0.68, 0.18, -90, 150))
STEPS = 12
#: Where the pointer rests on the picture that the model sees: patches along the stroke, in parts of the picture.
PATCHES = ((0.38, 0.12), (0.62, 0.12), (0.62, 0.38), (0.38, 0.62), (0.62, 0.62), (0.62, 0.88), (0.38, 0.88))
#: Milliseconds that a frame is shown: while it is drawn, when it is read, while patches are chosen, and at the end.
DRAWING, READ, LOOKING, END = 80, 1500, 900, 2500


def stroke() -> list[tuple[float, float]]:
    """The points of the digit, in their order, in parts of the field."""
    points = []
    for x, y, radius, start, end in ARCS:
        angles = [math.radians(start + (end - start) * n / STEPS) for n in range(STEPS + 1)]
        points += [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]
    return points


def move(driver: webdriver.Chrome, to: WebElement, x: float, y: float, *, press: bool = False) -> None:
    """Move the pointer to a place in an element, in parts of its size, and press its button there if asked."""
    across, down = (round((part - 0.5) * to.size[side]) for part, side in ((x, "width"), (y, "height")))
    action = ActionChains(driver, duration=0).move_to_element_with_offset(to, across, down)
    (action.click_and_hold() if press else action).perform()


def shown(driver: webdriver.Chrome) -> Image.Image:
    """The parts of the page, as they are now."""
    page = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    cut = []
    for begin, end in PARTS:
        first, last = (driver.find_element(By.CSS_SELECTOR, name).rect for name in (begin, end))
        left, top, bottom = first["x"] - 12, first["y"] - 8, last["y"] + last["height"] + 8
        cut.append(page.crop(tuple(map(round, (left, top, left + first["width"] + 24, bottom)))))
    whole = Image.new("RGB", (cut[0].width, sum(part.height for part in cut)))
    for n, part in enumerate(cut):
        whole.paste(part, (0, sum(above.height for above in cut[:n])))
    return whole.resize((WIDTH, round(WIDTH * whole.height / whole.width)), Image.Resampling.LANCZOS)


def frames(driver: webdriver.Chrome) -> Iterator[tuple[Image.Image, int]]:
    """Draw, wait, look; every frame with the milliseconds that it is shown."""
    driver.execute_script(f"shade('light'); {STYLE}; page.clear()")
    time.sleep(2)  # until nothing below moves any more
    field, seen = driver.find_element(By.ID, "draw"), driver.find_element(By.ID, "seen")
    for n, (x, y) in enumerate(stroke()):
        move(driver, field, x, y, press=n == 0)
        yield shown(driver), DRAWING
    ActionChains(driver).release().perform()
    yield shown(driver), READ
    for x, y in PATCHES:
        move(driver, seen, x, y)
        yield shown(driver), LOOKING
    yield shown(driver), END


def write(recorded: list[tuple[Image.Image, int]], target: Path) -> None:
    """Write the frames as an animation that begins again at its end, all with the colours of the last."""
    palette = recorded[-1][0].quantize(COLOURS)
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame, _ in recorded)
    times = [milliseconds for _, milliseconds in recorded]
    first.save(target, save_all=True, append_images=others, duration=times, loop=0, optimize=True)


def main() -> None:
    """Open the page, record it, and write the picture."""
    with windowless("1100,2600") as driver, tempfile.TemporaryDirectory() as folder:
        pages_of_playground.write_playground(Path(folder))
        driver.get((Path(folder) / "draw.html").as_uri())
        write(list(frames(driver)), TARGET)


if __name__ == "__main__":
    main()
