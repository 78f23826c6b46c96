"""Pictures: prepared, cut and embedded as transformers does it; hostile ones are refused at once."""

import io
import json
import struct
import zlib
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from checkpoints import ROOT, expected_of
from images import KINDS, PROCESSORS, draw_picture

import attnctl
from attnctl.base.errors import AttnError
from attnctl.cli.program import program
from attnctl.models.images.files import LONGEST_FILE, read_picture
from attnctl.models.images.processor import read_processor, size_of_pixels
from attnctl.record.picture import picture_in

FROZEN = np.load(Path(__file__).with_name("processors.npz"))


def write_processor(folder: Path, kind: str, **config) -> Path:
    text = json.dumps({"image_processor_type": f"{kind}ImageProcessor", **config})
    (folder / "preprocessor_config.json").write_text(text)
    return folder


def prepared(folder, picture, patch=4):
    processor = read_processor(folder)
    return processor.prepare(picture, size_of_pixels(processor, picture, patch).pixels)


@pytest.mark.parametrize("shape", KINDS)
@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_are_those_of_transformers(tmp_path, name, shape):
    kind = name.partition(" ")[0]
    write_processor(tmp_path, kind, **PROCESSORS[name])
    found = prepared(tmp_path, draw_picture(*KINDS[shape]))
    expected = FROZEN[f"{name}, {shape}"]
    assert found.values.shape == expected.shape
    np.testing.assert_allclose(found.values, expected, rtol=1e-5, atol=1e-5)
    assert found.shown.shape == (*expected.shape[1:], 3)


MODELS = {"vit": "", "deit": "", "dinov2": "", "dinov2-with-registers": "", "clip": "vision", "dinov3": ""}


@pytest.mark.parametrize("name", MODELS)
def test_a_picture_goes_through_a_model(tmp_path, name):
    """The same rows as of the pixels themselves, which `test_families` holds to transformers."""
    folder = model_with_processor(tmp_path, name)
    picture = tmp_path / "p.png"
    draw_picture(20, 30).save(picture)
    traces = attnctl.run_model(folder, image=picture)
    first = traces[0]
    own = len(first.tokens) - 9
    assert first.tokens[own:] == [f"r{row}c{column}" for row in range(3) for column in range(3)]
    assert first.header.get("part", "") == MODELS[name]
    assert first["attention_weights"].shape[-2:] == (own + 9, own + 9)
    seen = picture_in(first.header)
    assert seen.grid == (3, 3)
    assert seen.before == own
    assert seen.pixels.shape == (12, 12, 3)


def model_with_processor(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    for file in ("config.json", "model.safetensors"):
        (folder / file).write_bytes((ROOT / name / file).read_bytes())
    return write_processor(folder, "ViT", size=12)


def test_rows_are_those_of_the_frozen_pixels(tmp_path):
    """What comes into layer 0 of pixels that a processor leaves as they are."""
    from attnctl.models.images import pixels_given
    from attnctl.models.source import open_model

    expected = expected_of("vit")
    hidden = pixels_given(open_model(str(ROOT / "vit")), expected["pixel_values"])
    np.testing.assert_allclose(hidden, expected["hidden_0"], atol=1e-5)


# --- weights over the picture ---


def test_weights_are_laid_over_the_picture(tmp_path, monkeypatch):
    """Each head of each layer: the opacity of a patch is its weight's share of the head's largest."""
    folder = model_with_processor(tmp_path, "vit")
    draw_picture(20, 30).save(tmp_path / "p.png")
    monkeypatch.chdir(tmp_path)
    given = ["run", "--model", folder, "--image", "p.png"]
    assert command(*given, "-o", "map.svg")[0] == 0
    svg = (tmp_path / "map.svg").read_text()
    assert "what [CLS] looks at" in svg
    assert svg.count("<image") == 2 * 2 * 4

    trace = attnctl.run_model(folder, image="p.png", layer=1)[0]
    weights = trace["attention_weights"][2, 0, 1:]
    row, column = divmod(int(weights.argmax()), 3)
    assert f"Head 1.2: most at row {row}, column {column} ({weights.max():.0%})." in svg
    over = png_rows(image_after(svg, 2 * (4 + 2) + 1))
    assert over.ravel().tolist() == np.rint(weights / weights.max() * 255).tolist()

    assert command(*given, "-o", "one.svg", "--query", "r1c2", "--layer", "0", "--head", "3")[0] == 0
    assert "what r1c2 looks at" in (tmp_path / "one.svg").read_text()
    code, _, said = command(*given, "-o", "no.svg", "--query", "r9c9")
    assert code == 2
    assert "--query: no token 'r9c9'; give [CLS], r0c0 or mean" in said
    assert command(*given, "--layer", "all", "-o", "page.html")[0] == 0
    assert "p.png: 3 × 3 patches" in (tmp_path / "page.html").read_text()


def image_after(svg: str, number: int) -> bytes:
    return b64decode(svg.split("data:image/png;base64,")[number + 1].partition('"')[0])


def png_rows(data: bytes) -> np.ndarray:
    """The bytes of a small PNG, a row each."""
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT") - 4
    length = struct.unpack(">I", data[start : start + 4])[0]
    lines = np.frombuffer(zlib.decompress(data[start + 8 : start + 8 + length]), np.uint8)
    return lines.reshape(height, width + 1)[:, 1:]


def command(*words) -> tuple[int, str, str]:
    out, said = io.StringIO(), io.StringIO()
    return program([*map(str, words)], stdout=out, stderr=said), out.getvalue(), said.getvalue()


def test_keys_of_anyones_dump_are_patches_where_that_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stream = np.random.RandomState(0)
    np.savez("calls.npz", **{name: stream.standard_normal((2, 9, 4)) for name in "QKV"})
    assert command("attend", "calls.npz", "--grid", "2x4", "-o", "a.svg")[0] == 0
    assert (tmp_path / "a.svg").read_text().count("<image") == 4
    draw_picture(10, 20).save("p.png")
    from_first = ("--grid", "2x4@0", "--picture", "p.png", "--query", "3")
    assert command("attend", "calls.npz", *from_first, "-o", "b.svg")[0] == 0
    assert "what token 3 looks at" in (tmp_path / "b.svg").read_text()

    for text, problem in {
        "3x4": "3 × 4 patches, and there are 9 keys",
        "2x4@2": "2 × 4 patches from key 2 on, and there are 9 keys",
        "2by4": "expected rows and columns, like 24x24",
        "0x4": "expected rows and columns",
    }.items():
        code, _, said = command("attend", "calls.npz", "--grid", text, "-o", "c.svg")
        assert code == 2
        assert problem in said


# --- what cannot be read ---


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_of(width: int, height: int, data: bytes = b"", bits: int = 8) -> bytes:
    """A PNG whose header says a size, whatever is in it."""
    header = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


BAD = {
    "no picture": (b"hello", "not a picture that is read; expected PNG, JPEG"),
    "nothing": (b"", "not a picture that is read"),
    "huge": (
        png_of(60_000, 60_000),
        "far too many pixels; 67108864 are the most",
    ),
    "long": (png_of(40_000, 1), "40000 × 1 pixels"),
    "cut short": (png_of(64, 64, zlib.compress(b"\0" * 90)), "a damaged picture"),
    "an SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture that is read"),
    "a JPEG's beginning": (b"\xff\xd8\xff\xe0\x00\x10JFIF", "a damaged picture"),
    "a TIFF": (b"II*\x00\x08\x00\x00\x00", "not a picture that is read"),
    "a PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture that is read"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_hostile_picture_is_refused(tmp_path, name):
    data, said = BAD[name]
    path = tmp_path / "p.png"
    path.write_bytes(data)
    with pytest.raises(AttnError, match=said):
        read_picture(str(path))


def test_a_picture_that_does_not_fit_memory_is_refused_before_it_is_decoded(tmp_path):
    path = tmp_path / "p.png"
    path.write_bytes(png_of(4000, 4000))
    with pytest.raises(AttnError, match=r"need 122\.1 MiB"):
        read_picture(str(path), 2**26)


def test_a_long_file_is_refused(tmp_path):
    path = tmp_path / "p.png"
    with path.open("wb") as stream:
        stream.truncate(LONGEST_FILE + 1)
    with pytest.raises(AttnError, match="longer than 64"):
        read_picture(str(path))


WRONG = {
    "another kind": ({"image_processor_type": "Mask2FormerImageProcessor"}, "'Mask2Former.*only ViTImage"),
    "a key": ({"do_flip": True}, "'do_flip' is 'True', which is not understood here"),
    "a size": ({"size": {"longest_edge": 9}}, "size: .* expected a size of up to 4096"),
    "a huge size": ({"size": 10**6}, "size: '1000000'"),
    "a mean": ({"image_mean": [1, 2]}, "image_mean: .* expected three numbers"),
    "no deviation": ({"image_std": [1, 2, 0]}, "expected three numbers other than 0"),
    "an interpolation": ({"resample": 9}, "resample: '9', expected 0 to 5"),
    "a flag": ({"do_resize": "yes"}, "do_resize: 'yes', expected true or false"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_processor_does_not_understand_is_refused(tmp_path, name):
    config, said = WRONG[name]
    write_processor(tmp_path, "ViT", **config)
    with pytest.raises(AttnError, match=said):
        read_processor(tmp_path)


def test_a_model_without_a_processor_says_so(tmp_path):
    draw_picture(9, 9).save(tmp_path / "p.png")
    with pytest.raises(
        AttnError, match=r"no preprocessor_config\.json, which says how a picture is resized"
    ):
        attnctl.run_model(ROOT / "vit", image=tmp_path / "p.png")
    with pytest.raises(AttnError, match="gpt2 reads no pictures"):
        attnctl.run_model(ROOT / "gpt2", image=tmp_path / "p.png")


@pytest.mark.parametrize(
    "entry",
    [
        {"grid": [3, 3], "size": [4, 4], "before": 1, "pixels": "!"},
        {"grid": [3, 3], "size": [4, 4], "before": 1, "pixels": "eJw="},
        {"grid": [3, 0], "size": [4, 4], "before": 1, "pixels": ""},
        {"grid": [3, 3], "size": [400, 4], "before": 1, "pixels": ""},
        {"grid": [3, 3], "size": [4, 4], "before": -1, "pixels": ""},
        {"grid": "33", "size": [4, 4]},
        [],
    ],
)
def test_a_forged_picture_of_a_trace_is_none(entry):
    assert picture_in({"image": entry}) is None
