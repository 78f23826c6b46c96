"""A cell that moves: from q and k to what the query reads."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from command_line import call

import attnctl
from attnctl.drawing.show.cell import frames, moving_svg, way_of

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def trace():
    return attnctl.run("I love AI", heads=2, causal=True)


def test_its_numbers_are_those_of_the_trace(trace):
    way = way_of(trace, "attention_weights", (1, 2, 0))
    assert np.array_equal(way.q, trace["Q"][1, 2])
    assert np.array_equal(way.k, trace["K"][1, 0])
    assert [line.name for line in way.scores] == ["scores", "scaled_scores", "masked_scores"]
    assert np.isclose((way.q * way.k).sum(), way.scores[0].value)
    assert np.allclose(way.weights @ way.v, way.output)
    assert (way.query, way.key) == ("AI", "I")


def test_a_cell_of_the_output_shows_the_key_that_gives_most(trace):
    way = way_of(trace, "head_outputs", (0, 2, 1))
    assert way.at == trace["attention_weights"][0, 2].argmax()


def test_each_scene_comes_after_the_one_before_and_stays(trace):
    drawn = ET.fromstring(moving_svg(way_of(trace, "attention_weights", (0, 2, 0))))
    scenes = drawn.findall(f"{SVG}g")
    begins = [float(scene.find(f"{SVG}animate").get("keyTimes").split(";")[1]) for scene in scenes[1:]]
    assert len(scenes) == 8
    assert begins == sorted(begins)
    words = [text for text in drawn.itertext() if text.strip()]
    assert any(text.startswith("They add up: scores = Q Kᵀ = ") for text in words)
    counts = [svg.count("<g>") for svg in frames(way_of(trace, "attention_weights", (0, 2, 0)))]
    assert counts == [*range(1, 9)]


def test_it_is_written_as_svg_and_as_gif(trace, tmp_path):
    trace.save(tmp_path / "a.json")
    cell = "A[0,AI,I]"
    assert call("explain", tmp_path / "a.json", cell, "-o", tmp_path / "c.svg") == (0, "", "")
    assert "repeatCount" in (tmp_path / "c.svg").read_text()
    pytest.importorskip("resvg_py")
    images = pytest.importorskip("PIL.Image")
    assert call("explain", tmp_path / "a.json", cell, "-o", tmp_path / "c.gif").code == 0
    with images.open(tmp_path / "c.gif") as moving:
        assert moving.n_frames == 8


def test_a_cell_that_no_query_and_key_lead_to_is_refused(trace, tmp_path):
    trace.save(tmp_path / "a.json")
    done = call("explain", tmp_path / "a.json", "Q[0,AI,0]", "-o", tmp_path / "c.svg")
    assert done.code == 2
    assert re.search("name a cell of attention_weights or head_outputs", done.err)
