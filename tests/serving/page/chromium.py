"""A real browser for tests of the page: Debian's Chromium and its driver, nothing downloaded, nothing kept."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-dev-shm-usage", "--no-proxy-server", "--force-device-scale-factor=1", "--lang=en"),
)


@contextmanager
def browser(profile: Path, *, width: int = 1280, height: int = 900) -> Iterator[Chrome]:
    """A headless browser with a profile of its own, which logs every request it makes."""
    os.environ["SE_OFFLINE"] = "true"
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_script_timeout(30)
        yield driver
    finally:
        driver.quit()


def emulate(driver: Chrome, width: int, height: int = 900, *, dark: bool = False, reduced: bool = False) -> None:
    """A screen of this many CSS pixels; a window of a desktop cannot be as narrow as a phone."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
        {"name": "prefers-reduced-motion", "value": "reduce" if reduced else "no-preference"},
    ]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def hosts_asked(driver: Chrome) -> set[str]:
    """Host and port of every request over the network since the last call."""
    found = set()
    for entry in driver.get_log("performance"):  # type: ignore[no-untyped-call]
        message: dict[str, Any] = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = urlsplit(message["params"]["request"]["url"])
            if url.scheme not in ("data", "blob", "about", "chrome"):
                found.add(url.netloc)
    return found


def complaints(driver: Chrome) -> list[str]:
    """What the console says of broken scripts and of the content security policy; failed requests are no fault of the
    page."""
    logged = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in logged if entry["level"] == "SEVERE" and entry["source"] != "network"]
