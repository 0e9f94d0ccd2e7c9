"""Headless Chromium for tests of the page at /inspect. A test module imports `browser` and `page`, and `pytestmark`.

It needs Debian's package `chromium`. TITO_SCREENSHOTS names a folder for pictures.
"""

import os
import pathlib
import shutil
import time

import pytest
from conftest import note

CHROMIUM = shutil.which("chromium")
PICTURES = os.environ.get("TITO_SCREENSHOTS")
WIDE = {"width": 1360, "height": 840}
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

if CHROMIUM is None:
    note("SKIPPED: chromium is not installed; nothing of the page at /inspect was tried. On Debian: apt-get install chromium")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root has no sandbox of its own.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A page that must not complain."""
    context = browser.new_context(viewport=WIDE, color_scheme="light", accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(300_000)
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.complaints = complaints
    yield page
    context.close()
    assert not complaints, complaints


def until(page, condition):
    """Waits for a condition of the page, whose policy lets no test look for it in there."""
    deadline = time.monotonic() + 300
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(10)


def shot(page, name):
    if PICTURES is not None:
        page.screenshot(path=str(pathlib.Path(PICTURES) / f"{name}.png"))
