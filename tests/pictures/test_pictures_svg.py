"""What a picture holds: valid XML, text that is text, the colour and the number of every cell."""

import re
from base64 import b64decode
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from images import decoded

import attnctl
from attnctl.drawing.pictures import (
    BLUE,
    HATCHED,
    ODD,
    STRANGE,
    Panel,
    Plot,
    blocks,
    hexadecimal,
    ramp_colours,
)
from attnctl.drawing.pictures.draw import draw
from attnctl.drawing.show import View
from attnctl.drawing.show.picture import USUAL, picture_of

SVG = "{http://www.w3.org/2000/svg}"


def root_of(picture):
    return ET.fromstring(picture.svg)


def texts(picture):
    """The text elements, each without its title."""
    return [
        each.text or (each[0].tail if len(each) else "") for each in root_of(picture).iter(f"{SVG}text")
    ]


def cell_numbers(picture):
    """The digits in cells, panel by panel."""
    groups = [each for each in root_of(picture).iter(f"{SVG}g") if each.get("text-anchor") == "middle"]
    return [each.text for group in groups for each in group.iter(f"{SVG}text") if each.get("fill")]


def small(values, **more):
    values = np.asarray(values)
    rows, columns = ([str(i) for i in range(size)] for size in values.shape)
    return draw([Plot("step", ("about",), [Panel("", values)], rows, columns, **more)], "title")


def images(picture):
    """The pixels of each embedded image."""
    found = []
    for each in root_of(picture).iter(f"{SVG}image"):
        head, _, data = each.get("href").partition(",")
        assert head == "data:image/png;base64"
        found.append(decoded(b64decode(data)))
    return found


def test_every_cell_has_its_number_and_its_colour():
    trace = attnctl.run("I love AI", heads=2)
    picture = trace.plot()
    numbers = cell_numbers(picture)
    weights = trace["attention_weights"]
    assert numbers == [f"{value:.2f}" for value in weights.ravel()]
    fills = [each.get("fill") for each in root_of(picture).iter(f"{SVG}rect")]
    cells = [fill for fill in fills if fill in {hexadecimal(colour) for colour in ramp_colours(BLUE)}]
    shares = np.floor(weights / weights.max() * 64 + 0.5).astype(int).ravel()
    assert cells == [hexadecimal(ramp_colours(BLUE)[share]) for share in shares]
    assert {"head 0", "head 1", "I", "love", "AI", "attention_weights"} <= set(texts(picture))


def test_a_screen_reader_is_told_what_it_is():
    root = root_of(attnctl.run("I love AI", heads=2).plot())
    named = root.get("aria-labelledby").split()
    parts = {each.get("id"): each for each in root.iter()}
    assert root.get("role") == "img"
    assert [parts[name].tag for name in named] == [f"{SVG}title", f"{SVG}desc"]
    assert parts[named[0]].text == "I love AI"
    assert "head 0: largest 0.91 at I, AI." in parts[named[1]].text
    assert "query down, key across" in parts[named[1]].text


def test_two_pictures_in_one_page_share_no_id():
    a, b = (attnctl.run(words).plot() for words in ("I love AI", "AI loves me"))
    ids = [{each.get("id") for each in root_of(p).iter() if each.get("id")} for p in (a, b)]
    assert not ids[0] & ids[1]
    for picture, own in zip((a, b), ids, strict=True):
        assert set(re.findall(r"url\(#([^)]*)\)", picture.svg)) <= own


HOSTILE = [
    "</text><script>alert(1)</script>",
    "<![CDATA[",
    "&amp;&#0;",
    "a\x00b\x1b[31m\x7f",
    "]]>",
    "\ud800\ufffe",
    "שלום",
    "\u202ereversed",
    "🙂👨‍👩‍👧",
    '" onload="x',
]


def test_hostile_tokens_are_text():
    trace = attnctl.run("I love AI")
    size = len(HOSTILE)
    header = {"tokens": HOSTILE, "sentence": " ".join(HOSTILE)}
    weights = np.full((1, size, size), 1 / size)
    trace = type(trace)(
        {"attention_weights": trace.steps["attention_weights"]}, {"attention_weights": weights}, header
    )
    picture = trace.plot()
    tags = {each.tag.removeprefix(SVG) for each in root_of(picture).iter()}
    assert tags <= {
        "svg",
        "title",
        "desc",
        "style",
        "defs",
        "pattern",
        "rect",
        "linearGradient",
        "stop",
        "text",
        "g",
    }
    assert not any(name.startswith("on") for each in root_of(picture).iter() for name in each.attrib)
    words = texts(picture)
    assert words.count("שלום") == 2
    assert words.count("\\u202ereversed") == 2
    titles = [each.text for each in root_of(picture).iter(f"{SVG}title")]
    assert titles.count("</text><script>alert(1)</script>") == 2, "what was cut is whole in its title"
    assert all(ord(char) >= 32 or char in "\n\t" for char in picture.svg)


def test_dark_paper_is_a_media_query_about_this_picture_alone():
    root = root_of(attnctl.run("I love AI", causal=True).plot())
    (style,) = root.iter(f"{SVG}style")
    query, _, rules = style.text.partition("{")
    assert query.strip() == "@media (prefers-color-scheme: dark)"
    selectors = re.findall(r"([^{}]+)\{", rules)
    assert selectors
    assert all(each.strip().startswith(f"#{root.get('id')}") for each in selectors)
    papers = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "paper"]
    assert [each.get("fill") for each in papers] == ["#ffffff", "#ffffff"]


def test_what_is_hidden_is_apart_and_the_legend_says_so():
    picture = attnctl.run("I love AI", causal=True).plot("masked_scores")
    assert "hidden (−∞)" in texts(picture)
    assert len(cell_numbers(picture)) == 6
    assert "hidden (−∞)" not in texts(attnctl.run("I love AI", causal=True).plot("scores"))
    assert "hatched)" in picture.svg


def test_nan_and_infinity_are_apart():
    picture = small([[1.0, np.nan], [np.inf, -np.inf]])
    assert picture.svg.count(ODD) == 3
    assert {"nan", "inf", "NaN or ∞", "hidden (−∞)"} <= set(texts(picture))


def scale_of(values, **more):
    return Plot(
        "step", ("about",), [Panel("", np.array([values]))], [""], [""] * len(values), **more
    ).scale()


def test_a_signed_step_has_0_in_the_middle_of_two_hues():
    scale = scale_of([-1.0, 0.0, 4.0])
    assert (scale.low, scale.high) == (-4.0, 4.0)
    assert scale.levels(np.array([[-4.0, 0.0, 4.0]])).tolist() == [[0, 32, 64]]
    assert scale.signed


def test_levels_of_what_is_not_a_number_of_the_scale():
    scale = scale_of([0.0, 1.0, np.nan, -np.inf])
    levels = scale.levels(np.array([[0.0, 0.5, 1.0, np.nan, np.inf, -np.inf]]))
    assert levels.tolist() == [[0, 32, 64, STRANGE, STRANGE, HATCHED]]


@pytest.mark.parametrize("values", [[[0.0]], [[np.nan]], [[-np.inf]], [[5e-324]], [[1e308, -1e308]]])
def test_any_numbers_can_be_drawn(values):
    for log in {False, not np.less(values, 0).any()}:
        root_of(small(values, log=log))


def test_a_logarithm_spreads_small_numbers():
    scale = scale_of([1e-4, 1e-2, 1.0, 0.0], log=True)
    assert scale.levels(np.array([[1e-4, 1e-2, 1.0, 0.0]])).tolist() == [[0, 32, 64, HATCHED]]
    deep = scale_of([1e-30, 1.0], log=True)
    assert (deep.low, deep.clipped) == (1e-6, True)
    assert {"≤ 1e-06", "1, by logarithm"} <= set(texts(small([[1e-30, 1.0]], log=True)))
    assert "0" in texts(small([[0.0, 1.0]], log=True))


def test_a_logarithm_of_negative_numbers_is_refused():
    with pytest.raises(attnctl.AttnError, match="--log: scores has numbers below 0"):
        attnctl.run("I love AI").plot("scores", log=True)


def test_few_numbers_are_written():
    """Of a panel, of a row, and of all panels together."""
    assert len(cell_numbers(small(np.ones((30, 13))))) == 390
    assert cell_numbers(small(np.ones((30, 14)))) == []
    assert cell_numbers(small(np.ones((2, 17)))) == []
    names = [str(i) for i in range(16)]
    for panels, numbers in ((11, 2816), (12, 0)):
        plot = Plot("step", ("about",), [Panel("", np.ones((16, 16)))] * panels, names, names)
        assert len(cell_numbers(draw([plot], "title"))) == numbers


def test_a_label_beside_thumbnails_is_at_the_middle_of_its_row():
    words = ("layer 0", "layer 1", "layer 2")
    panels = [Panel("", np.eye(20))] * 6
    tokens = [str(at) for at in range(20)]
    root = root_of(draw([Plot("map", (), panels, tokens, tokens, across=2, beside=words)], "title"))
    frames = [each for each in root.iter(f"{SVG}rect") if each.get("fill") == "none"]
    middles = [float(each.get("y")) + float(each.get("height")) / 2 for each in frames[:6:2]]
    labels = [each for each in root.iter(f"{SVG}text") if each.text in words]
    assert [each.text for each in labels] == list(words)
    for label, middle in zip(labels, middles, strict=True):
        assert 0 < float(label.get("y")) - middle < 6  # of letters of 10, from their line


def test_without_the_first_key():
    trace = attnctl.run("I love AI", heads=2)
    picture = trace.plot(without_first=True)
    numbers = cell_numbers(picture)
    assert numbers == [f"{value:.2f}" for value in trace["attention_weights"][:, :, 1:].ravel()]
    mean = trace["attention_weights"][:, :, 0].mean()
    assert f"Without the first key, I (its mean is {mean:.2f})." in texts(picture)
    with pytest.raises(attnctl.AttnError, match="Q has no keys"):
        trace.plot("Q", without_first=True)
    with pytest.raises(attnctl.AttnError, match="one key only"):
        attnctl.run("I").plot(without_first=True)


def test_heads_are_picked_and_a_wrong_one_is_named():
    trace = attnctl.run("I love AI", heads=4)
    shown = texts(trace.plot(head=[1, 3]))
    assert [each for each in shown if each.startswith("head")] == ["head 1", "head 3"]
    assert "head 2" in texts(trace.plot(head=2))
    with pytest.raises(attnctl.AttnError, match="no head 4"):
        trace.plot(head=4)
    with pytest.raises(attnctl.AttnError, match="no step 'score'"):
        trace.plot("score")


def test_many_cells_are_an_image_of_a_pixel_a_cell():
    words = " ".join(f"w{i}" for i in range(128))
    trace = attnctl.run(
        words, heads=12, d_model=48, causal=True, keep=["masked_scores", "attention_weights"]
    )
    picture = trace.plot()
    assert len(picture.svg) < 90_000
    found = images(picture)
    weights = trace["attention_weights"]
    assert len(found) == 12
    for pixels, head in zip(found, weights, strict=True):
        shares = np.floor(head / weights.max() * 64 + 0.5).astype(int)
        assert (pixels[..., :3] == np.array(ramp_colours(BLUE))[shares]).all()
    hidden = images(trace.plot("masked_scores"))[0][..., 3] == 0
    assert (hidden == np.triu(np.ones((128, 128), bool), 1)).all(), (
        "what is hidden lets the hatching through"
    )


def test_small_pictures_are_small():
    assert len(attnctl.run("I love AI", heads=2).plot().svg) < 6_000
    assert len(attnctl.run("I").plot().svg) < 4_000


def test_cells_are_merged_where_there_are_too_many_and_the_picture_says_so():
    values = np.zeros((1500, 1500))
    values[3, 4] = 8.0
    picture = small(values)
    (pixels,) = images(picture)
    assert pixels.shape[:2] == (750, 750)
    assert (pixels[1, 2, :3] == ramp_colours(BLUE)[-1]).all()
    assert "Each cell is the mean of what is not hidden of 2 × 2 numbers." in texts(picture)
    assert "2" in texts(picture), "the end of the scale is a mean, too"


def test_blocks_are_means_of_what_is_not_hidden():
    values = np.array(
        [[1, 3, -np.inf, -np.inf, 9], [-np.inf, 5, -np.inf, -np.inf, np.nan], [7, 7, 0, 1, 2.0]]
    )
    assert np.array_equal(blocks(values, 2, 2), [[3, -np.inf, np.nan], [7, 0.5, 2]], equal_nan=True)


def test_long_tokens_are_cut_and_whole_in_their_title():
    long = "Donaudampfschifffahrtsgesellschaft"
    picture = attnctl.run(f"{long} sinks").plot()
    assert texts(picture).count("Donaudampf…chaft") == 2
    assert [each.text for each in root_of(picture).iter(f"{SVG}title")].count(long) == 2


@pytest.mark.parametrize("step", ["embeddings", "W_Q", "b_O", "concat", "attention_weights", "mask"])
def test_every_kind_of_step_can_be_drawn(step):
    arrays = {"X": np.eye(3), "W_Q": np.eye(3), "W_K": np.eye(3), "W_V": np.eye(3)}
    arrays |= {"W_O": np.eye(3), "b_O": np.ones(3), "mask": np.tri(3) > 0}
    trace = attnctl.run("I love AI") if step == "embeddings" else attnctl.attend(arrays)
    if step in trace:
        root_of(trace.plot(step))
    else:
        assert step == "mask"
        root_of(attnctl.attend(arrays, keep=["masked_scores", "mask"]).plot("masked_scores"))


def test_every_variant_can_be_drawn_whole(variants):
    for path in variants:
        trace = attnctl.load(path)
        picture = picture_of([trace], View(steps=tuple(trace), precision=2))
        assert set(trace) <= set(texts(picture)), path.stem


@pytest.mark.parametrize(
    "shape", [(2, 0, 3), (2, 3, 0), (0, 3, 3), (1, 1, 5000), (1, 5000, 1), (300, 2, 2)]
)
def test_matrices_of_any_shape_can_be_drawn(shape):
    trace = attnctl.run("I love AI")
    step = {"attention_weights": trace.steps["attention_weights"]}
    picture = type(trace)(step, {"attention_weights": np.ones(shape)}, {}).plot()
    assert all(each.size for each in images(picture))
    assert ("… 156 more heads" in picture.svg) == (shape[0] == 300)


def test_several_sentences_stand_below_each_other():
    traces = attnctl.run_many(["I love AI", "we do"])
    shown = texts(picture_of(traces, USUAL))
    assert {"2 sentences", "I love AI: attention_weights", "we do: attention_weights"} <= set(shown)
    with pytest.raises(attnctl.AttnError, match="65 sentences"):
        picture_of(traces[:1] * 65, USUAL)


def test_a_plot_saves_and_shows_itself(tmp_path):
    picture = attnctl.run("I love AI").plot("scores")
    picture.save(tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text(encoding="utf-8") == picture.svg == picture._repr_svg_()
    with pytest.raises(attnctl.AttnError, match=r"\.svg or \.png, not '\.gif'"):
        picture.save(tmp_path / "x.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.svg"]


def test_a_picture_has_emoji_whole(tmp_path):
    attnctl.run("👩\u200d🚀 loves\u202e AI").save(tmp_path / "emoji.svg")
    drawn = (tmp_path / "emoji.svg").read_text()
    assert "👩\u200d🚀" in drawn
    assert "\\u200d" not in drawn
    assert "\u202e" not in drawn
