"""The Chromium of the tests that open pages."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


def windowless(size, **capabilities):
    """A Chromium without a window, as large as if it had one of this size."""
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--window-size={size}"):
        options.add_argument(argument)
    for name, value in capabilities.items():
        options.set_capability(f"goog:{name}", value)
    return webdriver.Chrome(options=options, service=Service(DRIVER))
