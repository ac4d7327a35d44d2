"""Chromium without a window, for pictures and for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def browser(width: int, height: int, *, is_dark: bool = False) -> Iterator[Any]:
    """A browser whose page has this size.

    :raises FileNotFoundError: if the machine has no Chromium or no driver for it.
    """
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    running = webdriver.Chrome(options=options, service=Service(_program("chromedriver")))
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        running.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        style = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        running.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": style})
        yield running
    finally:
        running.quit()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is missing: install it (Debian: chromium and chromium-driver)")
    return found
