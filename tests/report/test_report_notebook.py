"""What a notebook is given: the page in a frame that can do nothing else, and text."""

import subprocess
import sys
from html.parser import HTMLParser

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


def shown():
    trace = attnctl.run("I </iframe> \"love\" &amp; 'AI'", heads=2)
    return {
        "trace": trace,
        "report": attnctl.check(trace),
        "difference": attnctl.diff(trace, attnctl.run("I love AI")),
    }


SHOWN = shown()


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_a_page_in_a_frame_that_may_run_its_script_and_no_more(name):
    (frame,) = Frame(SHOWN[name]._repr_html_()).frames
    assert frame["sandbox"] == "allow-scripts"
    assert frame["srcdoc"].startswith("<!doctype html>\n<html")
    assert frame["srcdoc"].endswith("</html>\n")
    assert "height: 640px" in frame["style"]
    assert "src" not in frame


@pytest.mark.parametrize("name", SHOWN)
def test_nothing_is_asked_of_the_notebook(name):
    page = SHOWN[name]._repr_html_().lower()
    assert "require(" not in page
    assert "cdn" not in page.partition("octet-stream")[0]


def test_text_is_there_for_where_there_are_no_frames():
    for name, text in {"trace": "<Trace: ", "report": "agree", "difference": "differ"}.items():
        bundle = SHOWN[name]._repr_mimebundle_()
        assert set(bundle) == {"text/html", "text/plain"}
        assert text in bundle["text/plain"]


def test_a_frontend_says_what_it_takes():
    trace = SHOWN["trace"]
    assert set(trace._repr_mimebundle_(include={"text/plain"})) == {"text/plain"}
    assert set(trace._repr_mimebundle_(exclude={"text/plain"})) == {"text/html"}


def test_nobody_imports_the_page_who_does_not_ask_for_it():
    code = (
        "import attnctl, sys; trace = attnctl.run('I love AI'); attnctl.check(trace);"
        "print(any(name.startswith('attnctl.pages') for name in sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
