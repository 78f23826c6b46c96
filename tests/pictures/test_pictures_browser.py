"""A browser and resvg draw the same picture."""

import shutil
import subprocess

import numpy as np
import pytest
from images import decoded

import attnctl
from attnctl.drawing.pictures import png

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--hide-scrollbars",
    ),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--force-device-scale-factor=1",
)
LONG = " ".join(f"w{i}" for i in range(20))
CASES = {
    "numbers": lambda: attnctl.run("I love AI", heads=2, causal=True).plot("masked_scores"),
    "image": lambda: attnctl.run(LONG).plot(),
    "signed": lambda: attnctl.run(LONG, causal=True).plot("masked_scores"),
}


def in_browser(picture, folder):
    picture.save(folder / "x.svg")
    page = f"--window-size={picture.width},{picture.height}"
    own = f"--user-data-dir={folder / 'profile'}"
    shot = folder / "x.png"
    url = (folder / "x.svg").as_uri()
    subprocess.run(
        [CHROMIUM, *FLAGS, own, page, f"--screenshot={shot}", url],
        capture_output=True,
        check=True,
        timeout=60,
    )
    return decoded(shot.read_bytes())[..., :3].astype(int)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("case", CASES)
def test_a_browser_and_resvg_draw_alike(case, tmp_path, monkeypatch):
    pytest.importorskip("resvg_py")
    monkeypatch.setattr(png, "ZOOM", 1)
    picture = CASES[case]()
    picture.save(tmp_path / "resvg.png")
    ours = decoded((tmp_path / "resvg.png").read_bytes())[..., :3].astype(int)
    theirs = in_browser(picture, tmp_path)
    assert ours.shape == theirs.shape
    apart = np.abs(ours - theirs).max(axis=-1)
    assert apart.mean() < 3, "letters have other edges, cells do not"
    assert (apart > 64).mean() < 0.015
    coloured = np.ptp(theirs, axis=-1) > 24
    assert coloured.mean() > 0.03, "there is something to compare"
    assert np.median(apart[coloured]) <= 1
    assert (apart[coloured] > 8).mean() < 0.06
