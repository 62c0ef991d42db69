"""A headless browser, and what waiting for a page means: a condition, with patience for a loaded machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

PATIENCE = 240.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver", "chromium-driver", "chromium.chromedriver")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1800,1100")
T = TypeVar("T")


def need_browser() -> tuple[str, str]:
    """Browser and driver; skips where one of them is missing."""
    pytest.importorskip("selenium", reason="selenium is not installed; pip install selenium")
    found = [next((path for name in names if (path := shutil.which(name))), None) for names in (BROWSERS, DRIVERS)]
    if found[0] is None or found[1] is None:
        pytest.skip("no Chromium with its driver; on Debian: apt-get install chromium chromium-driver")
    return found[0], found[1]


class Page:
    """A browser's window; every look waits until there is something to see."""

    def __init__(self, driver: Any, pictures: Path) -> None:
        self.driver = driver
        self.pictures = pictures

    def open(self, address: str) -> None:
        self.driver.get(address)

    def until(self, what: str, look: Callable[[], T]) -> T:
        """What `look` gives once it is true; elements that the page replaces meanwhile are looked for again."""
        from selenium.common.exceptions import WebDriverException

        end, problem = time.monotonic() + PATIENCE, ""
        while time.monotonic() < end:
            try:
                found = look()
                if found:
                    return found
            except WebDriverException as error:
                problem = str(error.msg)
            time.sleep(0.3)
        self.picture("failure")
        raise AssertionError(f"{what} never came: {problem}\n{self.text()[:3000]}")

    def text(self) -> str:
        return str(self.driver.execute_script("return document.body ? document.body.innerText : ''"))

    def sees(self, *texts: str) -> None:
        for text in texts:
            self.until(repr(text), lambda text=text: text in self.text())  # type: ignore[misc]

    def click(self, path: str) -> None:
        """Click the first element of an XPath, a visible one if there is any, whatever lies over it."""

        def press() -> bool:
            found = self.driver.find_elements("xpath", path)
            found.sort(key=lambda element: not element.is_displayed())
            if found:
                self.driver.execute_script("arguments[0].click()", found[0])
            return bool(found)

        self.until(path, press)

    def target(self, path: str) -> str:
        """Where a link leads; those of descriptions open windows of their own."""
        found = self.until(path, lambda: self.driver.find_elements("xpath", path))
        return str(found[0].get_attribute("href"))

    def script(self, code: str) -> Any:
        return self.driver.execute_script(code)

    def picture(self, name: str) -> None:
        self.driver.save_screenshot(str(self.pictures / f"{name}.png"))


@contextmanager
def browser(pictures: Path) -> Iterator[Page]:
    """A window that is closed in the end."""
    from selenium import webdriver

    binary, driver_path = need_browser()
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for option in OPTIONS:
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    driver.set_page_load_timeout(PATIENCE)
    try:
        yield Page(driver, pictures)
    finally:
        driver.quit()
