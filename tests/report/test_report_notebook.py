"""What a notebook is given: the page in a frame that can do nothing else, and text."""

import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import attnctl


class Frame(HTMLParser):
    """The attributes of the one frame."""

    def __init__(self, text):
        super().__init__()
        self.frames = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "iframe":
            self.frames.append(dict(attrs))


def scaled_dot_product(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def shown():
    trace = attnctl.run("I </iframe> \"love\" &amp; 'AI'", heads=2)
    return {
        "trace": trace,
        "report": attnctl.check(trace),
        "difference": attnctl.diff(trace, attnctl.run("I love AI")),
        "sentences": attnctl.run_many(["I love", "AI loves me"]),
        "conformance": attnctl.conform(
            scaled_dot_product, quick=True, features=["attention"], dtypes=["float64"]
        ),
    }


SHOWN = shown()


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_a_page_in_a_frame_that_may_run_its_script_and_no_more(name):
    (frame,) = Frame(SHOWN[name]._repr_mimebundle_()["text/html"]).frames
    assert frame["sandbox"] == "allow-scripts allow-downloads"
    assert frame["srcdoc"].startswith("<!doctype html>\n<html")
    assert frame["srcdoc"].endswith("</html>\n")
    assert "height: 680px" in frame["style"]
    assert "src" not in frame


@pytest.mark.parametrize("name", SHOWN)
def test_nothing_is_asked_of_the_notebook(name):
    page = SHOWN[name]._repr_mimebundle_()["text/html"].lower()
    assert "require(" not in page
    assert "cdn" not in page.partition("octet-stream")[0]


def test_text_is_there_for_where_there_are_no_frames():
    texts = {
        "trace": "<Trace: ",
        "report": "agree",
        "difference": "differ",
        "sentences": "[<Trace: ",
        "conformance": "conform",
    }
    for name, text in texts.items():
        bundle = SHOWN[name]._repr_mimebundle_()
        assert set(bundle) == {"text/html", "text/plain"}
        assert text in bundle["text/plain"]


def test_a_frontend_says_what_it_takes():
    trace = SHOWN["trace"]
    assert set(trace._repr_mimebundle_(include={"text/plain"})) == {"text/plain"}
    assert set(trace._repr_mimebundle_(exclude={"text/plain"})) == {"text/html"}


def test_an_explanation_is_its_text():
    found = attnctl.run("I love AI", heads=2).explain("scores[1,I,AI]")
    assert found._repr_mimebundle_() == {"text/plain": str(found)}


def test_statistics_are_drawn():
    bundle = attnctl.stats(attnctl.run("I love AI", heads=2))._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg ")


def test_nobody_imports_the_page_who_does_not_ask_for_it():
    code = (
        "import attnctl, sys; trace = attnctl.run('I love AI'); attnctl.check(trace);"
        "print(any(name.startswith('attnctl.pages') for name in sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
