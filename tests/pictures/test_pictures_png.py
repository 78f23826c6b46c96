"""Pictures as PNG: the same bytes everywhere, from the font that is shipped."""

import os
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest
from images import decoded

import attnctl
from attnctl.drawing.pictures import Panel, Plot
from attnctl.drawing.pictures.draw import draw
from attnctl.drawing.pictures.png import palette_png

PALETTE = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (1, 2, 3)]


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (30, 17)])
def test_the_pixels_are_those_of_the_palette(shape):
    levels = np.arange(shape[0] * shape[1]).reshape(shape) % 4
    found = decoded(palette_png(levels.astype(np.uint8), PALETTE, transparent=2))
    assert (found[..., :3] == np.array(PALETTE)[levels]).all()
    assert ((found[..., 3] == 0) == (levels == 2)).all()


def png_of(picture, path):
    picture.save(path)
    return path.read_bytes()


def test_a_png_is_the_picture_at_twice_its_size(tmp_path):
    pytest.importorskip("resvg_py")
    picture = draw([Plot("x", ("x",), [Panel("", np.eye(2))], ["a", "b"], ["c", "d"])], "x")
    data = png_of(picture, tmp_path / "x.png")
    pixels = decoded(data)
    assert pixels.shape[:2] == (2 * picture.height, 2 * picture.width)
    assert (pixels[..., 3] == 255).all()
    colours = {tuple(each) for each in pixels[..., :3].reshape(-1, 3).tolist()}
    assert {(0x0C, 0x2F, 0x6B), (255, 255, 255)} <= colours, "the darkest blue, and the paper"
    assert len(data) < 20_000


MAKE = """
import sys, attnctl
words = " ".join(f"w{i}" for i in range(40))
for trace in (attnctl.run("I love AI", heads=2, causal=True), attnctl.run(words, heads=2)):
    for step in ("scores", "attention_weights"):
        picture = trace.plot(step)
        sys.stdout.write(picture.svg)
if "png" in sys.argv:
    picture.save("out.png")
"""


@pytest.mark.slow
def test_two_processes_give_the_same_bytes(tmp_path):
    kinds = ["png"] if have_resvg() else []
    found = set()
    for seed in ("0", "4711"):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": "C", "HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", MAKE, *kinds], cwd=tmp_path, env=environ, capture_output=True, check=True
        )
        found.add((done.stdout, (tmp_path / "out.png").read_bytes() if kinds else b""))
    assert len(found) == 1


def test_nothing_is_written_where_a_png_cannot_be(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    for verb in (["run", "I love"], ["diff", "I love", "I like"], ["stats", "I love"]):
        done = call(*verb, "-o", "a.json", "-o", "a.png", "-o", "a.svg")
        assert done == (2, "", f"attnctl: {NEEDS_RESVG}\n")
    assert not list(tmp_path.glob("a.*"))


NEEDS_RESVG = "a PNG needs resvg-py; pip install 'attnctl[png]', or write .svg, which needs nothing"


def have_resvg():
    try:
        import resvg_py  # noqa: F401  (is it there?)
    except ImportError:
        return False
    return True


def test_the_font_is_shipped_with_its_license_and_is_small():
    folder = resources.files("attnctl.drawing.pictures") / "font"
    assert len((folder / "DejaVuSans.ttf").read_bytes()) < 100_000
    assert "Bitstream Vera" in (folder / "LICENSE").read_text()


def test_no_system_font_is_looked_at(tmp_path, monkeypatch):
    resvg_py = pytest.importorskip("resvg_py")
    given = {}

    def kept(**options):
        given.update(options)
        return b""

    monkeypatch.setattr(resvg_py, "svg_to_bytes", kept)
    attnctl.run("I").plot().save(tmp_path / "x.png")
    assert given["skip_system_fonts"] is True
    assert [each.rpartition("/")[2] for each in given["font_files"]] == ["DejaVuSans.ttf"]


def test_what_is_missing_is_named_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(attnctl.AttnError, match=r"pip install 'attnctl\[png\]'"):
        attnctl.run("I love AI").plot().save(tmp_path / "x.png")
    assert not list(tmp_path.iterdir())


def test_a_picture_too_large_for_memory_is_refused(monkeypatch, tmp_path):
    pytest.importorskip("resvg_py")
    picture = attnctl.run("I").plot()._replace(width=1 << 15, height=1 << 15)
    with pytest.raises(attnctl.AttnError, match=r"too large; write \.svg"):
        picture.save(tmp_path / "x.png")
