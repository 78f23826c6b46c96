"""Pages of tables and of models, on a telephone and on paper: nothing is cut, hidden or small."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import call, working_in
from waiting import violations

from attnctl.cli.program import program

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "models" / "checkpoints"
HANDED_IN = sorted((ROOT / "samples" / "exercises").glob("*.json"))
IDS = ("--ids", "9,4,17,4,26,9,4,17,4,26")
GPT2 = ("--model", MODELS / "gpt2")

PAGES = {
    "stats": ("stats", ROOT / "samples" / "variants" / "full.json"),
    "model": ("model", MODELS / "gpt2"),
    "follow": ("run", *IDS, *GPT2, "--follow", "4"),
    "two models": ("diff", *IDS, "--model", "circuit", "--model", "circuit-broken"),
    "effect": ("effect", *IDS, *GPT2, "--between", "5", "9"),
    "grades": ("exercise", "grade", *HANDED_IN),
    "sheet": ("exercise", "make", "I love AI", "--blank", "scores"),
}

SMALL = "all => all.filter(each => each.clientWidth < each.naturalWidth).length"


def make_circuits(folder):
    for name, options in (("circuit", []), ("circuit-broken", ["--broken"])):
        command = [sys.executable, ROOT / "samples" / "circuit" / "make.py", folder / name, *options]
        subprocess.run(command, check=True)


def written(kind, path):
    if kind == "two models":
        make_circuits(path.parent)
    with working_in(path.parent):
        code, _, said = call(*PAGES[kind], "-o", path)
    assert code in {0, 1}, said
    return path


@pytest.mark.parametrize("kind", PAGES)
def test_a_telephone_has_all_of_it(show, tmp_path, kind):
    page = show(written(kind, tmp_path / "x.html"), width=390, height=844, scheme="dark", wait="h1")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("main img, #finding img").evaluate_all(SMALL) == 0
    for each in page.locator("summary").all():
        each.click()
    assert violations(page) == []


def test_facts_and_heads_are_said_in_full_on_a_telephone(show, tmp_path):
    assert program(["run", "I love AI", "--heads", "2", "-o", str(tmp_path / "x.html")]) == 0
    page = show(tmp_path / "x.html", width=390, height=844)
    whole = "each => each.scrollWidth <= each.clientWidth"
    assert page.locator("#facts").evaluate(whole)
    head = page.locator("#map .readout")
    assert head.evaluate(whole)
    assert head.inner_text() == "head 0: 38\u00a0% to the token before, 35\u00a0% to the first token"


def test_what_nobody_can_open_is_not_on_paper(show, tmp_path):
    page = show(written("follow", tmp_path / "x.html"), wait="h1")
    assert page.locator("summary").first.is_visible()
    page.emulate_media(media="print")
    assert page.locator("summary:visible").count() == 0
    assert page.locator(".others h2:visible").count() == 0
