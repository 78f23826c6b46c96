"""How large a page of a model's weights is, and how soon it can be seen and asked.

``python tests/benchmarks/page.py`` prints the size of a page of 12 layers of 12 heads over 128 tokens, the
time to its first paint, until all is laid out, and of a hover: from the pointer's move to the arithmetic in
the panel. Needs the extra `pages` and a Chromium of the system's.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

import attnctl
from attnctl.formats import write

PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
READY = "performance.now()"
HOVER = """() => {
    const times = [];
    const pictures = [...document.querySelectorAll(".picture")].slice(0, 6);
    for (let number = 0; number < 100; number++) {
        const picture = pictures[number % pictures.length];
        const box = picture.getBoundingClientRect();
        const [x, y] = [(number * 37) % box.width, (number * 53) % box.height];
        const at = { clientX: box.x + x, clientY: box.y + y };
        const start = performance.now();
        picture.dispatchEvent(new PointerEvent("pointermove", { ...at, bubbles: true }));
        document.getElementById("arithmetic").getBoundingClientRect();  // laid out
        times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b);
}"""


def layers():
    draw = np.random.RandomState(0)
    for layer in range(12):
        arrays = {name: draw.standard_normal((12, 128, 64)).astype(np.float32) for name in "QKV"}
        trace = attnctl.attend(arrays, dtype="float32", keep=["attention_weights"])
        trace.header["layer"] = layer
        yield trace


def main():
    whole = attnctl.run(" ".join(f"w{number}" for number in range(128)), heads=12, d_model=96)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        for name, traces in {
            "weights of a model": list(layers()),
            "every step of a layer": [whole],
        }.items():
            path = Path(folder) / "x.html"
            write(traces, path)
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready=yes]")
            ready, paint, times = page.evaluate(READY), page.evaluate(PAINT), page.evaluate(HOVER)
            print(f"{name}: {path.stat().st_size / 1e6:.2f} MB, first paint {paint:.0f} ms,", end=" ")
            print(f"laid out by {ready:.0f} ms, hover {times[50]:.1f} ms, the longest {times[-1]:.1f} ms")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
