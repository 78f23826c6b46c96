"""A Chromium of the system's, without a network; each page in it reports what it writes to the console."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "report"))

NAMES = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = os.environ.get("ATTNCTL_TESTS_BROWSER") == "required"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


@pytest.fixture(scope="session")
def chromium():
    """The running browser; tests are skipped where there is none, unless they are required."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None and not REQUIRED:
        pytest.skip("Chromium is not installed")
    if not REQUIRED:
        pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def show(chromium):
    """Opens a page from disk with the network refused, and waits until it is laid out.

    When the test ends, nothing may stand on the console, nothing may have been asked of the network.
    """
    contexts, said, asked = [], [], []

    def opened(path, width=1400, height=900, scheme="light", wait="html[data-ready=yes]", fragment=""):
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(Path(path).as_uri() + fragment)
        if wait:
            page.wait_for_selector(wait)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert said == []
    assert [each for each in asked if not each.startswith(("file:", "data:", "blob:", "about:"))] == []
