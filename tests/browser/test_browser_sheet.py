"""A sheet in a browser: filled in, kept, saved, opened again, graded."""

import json
import re
import sys
from pathlib import Path

import pytest
from command_line import call
from waiting import violations, wait_until

sys.path.append(str(Path(__file__).parents[1] / "exercise"))
import classroom

BLANK = "masked_scores,attention_weights,output"
BOX = 'input[data-step="{}"][data-at="{}"]'


@pytest.fixture
def sheet(tmp_path, show):
    """The page of Ann's sheet, and its exercise as JSON."""
    (tmp_path / "task.yaml").write_text(classroom.CONFIG)
    made = call(
        "exercise", "make", tmp_path / "task.yaml", "--blank", BLANK, "--seed-from", "Ann",
        "-o", tmp_path / "Ann.html", "-o", tmp_path / "blank.json",
    )  # fmt: skip
    assert made[0] == 0, made
    page = show(tmp_path / "Ann.html", wait="#state:has-text('of 80')")
    return page, json.loads((tmp_path / "blank.json").read_text()), tmp_path


def saved(page, folder):
    with page.expect_download() as download:
        page.click("#save")
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def typed(value):
    return "-inf" if value == "-Infinity" else f"{value:.4f}"


def fill(page, sheet):
    for name in sheet["blank"]:
        rows = classroom.written(classroom.solved(sheet)[name])
        for box in page.query_selector_all(f'input[data-step="{name}"]'):
            value = rows
            for at in box.get_attribute("data-at").split():
                value = value[int(at)]
            box.fill(typed(value))


def test_a_sheet_is_as_wide_as_a_telephone(sheet):
    page = sheet[0]
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = page.locator(".matrices").evaluate_all(
        "all => all.some(each => each.scrollWidth > each.clientWidth)"
    )
    assert wide, "a matrix that is wider scrolls by itself"


def test_what_is_typed_is_saved_and_graded(sheet):
    page, blank, folder = sheet
    fill(page, blank)
    assert page.text_content("#state").startswith("80 of 80 filled in; kept in this browser")
    path = saved(page, folder)
    assert path.name == "Ann.json"
    code, said, _ = call("exercise", "grade", path)
    assert (code, "1 of 1 hand-in all right" in said) == (0, True), said


def test_a_sheet_is_kept_and_what_was_saved_is_opened_again(sheet):
    page, _, folder = sheet
    page.fill(BOX.format("output", "0 1"), "−0,5")
    page.fill(BOX.format("masked_scores", "0 0 1"), "-∞")
    page.fill(BOX.format("output", "1 1"), "o.5")
    assert page.text_content("#state").startswith("2 of 80 filled in; 1 is no number")
    page.reload()
    assert page.input_value(BOX.format("output", "0 1")) == "−0,5"
    path = saved(page, folder)
    steps = json.loads(path.read_text())["steps"]
    assert steps["output"]["data"][0] == [None, -0.5, None, None]
    assert steps["output"]["data"][1] == [None] * 4
    assert steps["masked_scores"]["data"][0][0][1] == "-Infinity"
    page.evaluate("localStorage.clear()")
    page.reload()
    assert page.input_value(BOX.format("output", "0 1")) == ""
    page.set_input_files("#open", path)
    wait_until(page, "document.querySelector('#state').textContent.startsWith('2 of 80')")
    assert page.input_value(BOX.format("masked_scores", "0 0 1")) == "-inf"


def test_rows_that_are_pasted_go_right_and_below(sheet):
    page, _, _ = sheet
    page.focus(BOX.format("output", "1 1"))
    page.evaluate(
        """() => {
        const data = new DataTransfer();
        data.setData("text", "0.1\\t0.2\\n0.3 -0.4");
        document.activeElement.dispatchEvent(
            new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
        }"""
    )
    cells = {at: page.input_value(BOX.format("output", at)) for at in ("1 1", "1 2", "2 1", "2 2", "3 1")}
    assert cells == {"1 1": "0.1", "1 2": "0.2", "2 1": "0.3", "2 2": "-0.4", "3 1": ""}
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.at") == "2 1"


def test_it_prints_without_its_buttons(sheet):
    page, _, _ = sheet
    page.emulate_media(media="print")
    assert not page.is_visible("#save")
    assert page.is_visible(BOX.format("output", "0 0"))


LIGHT = """(selector) => {
    const seen = getComputedStyle(document.querySelector(selector)).backgroundColor.match(/[\\d.]+/g);
    return seen.slice(0, 3).reduce((sum, each) => sum + Number(each), 0) / 765;
}"""


def test_a_sheet_is_dark_where_that_is_wished_and_light_on_paper(sheet):
    page, _, _ = sheet
    parts = ("body", ".task", "td.blank", ".bar", "td:not(.blank, .corner)")
    for scheme, media, expected in (("dark", "screen", 0), ("light", "screen", 1), ("dark", "print", 1)):
        page.emulate_media(color_scheme=scheme, media=media)
        assert [round(page.evaluate(LIGHT, part)) for part in parts] == [expected] * len(parts)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_a_sheet(sheet, scheme):
    page, _, _ = sheet
    page.emulate_media(color_scheme=scheme)
    assert violations(page) == []
    assert page.locator("main").count() == 1


WIDE = ["the cat sat on the mat", "--heads", "2", "--causal"]
PRINTED = {
    "one head": ["I love AI", "--blank", "scores,attention_weights"],
    "two heads": ["I love AI", "--heads", "2", "--blank", "scores,scaled_scores,attention_weights,output"],
    "wide": [*WIDE, "--blank", "scores,attention_weights,output"],
    "all": [
        "I love AI",
        "--d-model",
        "2",
        "--blank",
        "Q,K,V,scores,scaled_scores,attention_weights,output",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", PRINTED.values(), ids=PRINTED)
def test_it_prints_on_one_landscape_page(asked, tmp_path, show):
    path = tmp_path / "sheet.html"
    assert call("exercise", "make", *asked, "-o", path)[0] == 0
    page = show(path, wait="#state")
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    width, height = (
        float(size) for size in re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", printed)[0]
    )
    assert width == pytest.approx(842, abs=1)
    assert height == pytest.approx(595, abs=1)

    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1047, "height": 725})  # 277 by 192 mm
    right_ends = (
        "[...document.querySelectorAll('.stage, .arrow')].map(each => each.getBoundingClientRect().right)"
    )
    assert page.evaluate(f"Math.max(...{right_ends})") <= 1047
