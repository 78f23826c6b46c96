"""The page as a reader has it: opened from disk in a real browser, by pointer and by keyboard."""

from pathlib import Path

import numpy as np
import pytest
from page_arithmetic import Said, write

import attnctl
from attnctl.base.trace import Trace
from attnctl.store import read

pytestmark = pytest.mark.slow

VARIANTS = sorted((Path(__file__).parents[2] / "samples" / "variants").glob("*.json"))
HOSTILE = "</script><script>alert(1)</script>"

PANEL = """() => {
    const said = [...document.querySelectorAll("#arithmetic .equation, #arithmetic .note")];
    return said.map((each) => [each.className, each.textContent]);
}"""


def panel(page):
    """What the page says of the cell that is looked at: {symbols, figures, notes}."""
    said = page.evaluate(PANEL)
    found = {"symbols": None, "figures": None, "notes": []}
    for kind, text in said:
        if kind == "note":
            found["notes"].append(text)
        else:
            found[kind.split()[-1]] = text.partition(" = ")[2]
    return found


def cell_of(page, step, lead, row, column):
    """The cell of a table."""
    caption = ", ".join([step, *lead])
    table = page.get_by_role("grid", name=caption, exact=True)
    return table.locator("tbody tr").nth(row).locator("td").nth(column)


def place(trace, step, cell):
    """How a cell is found on the page: the captions of its matrix, its row and its column."""
    axes = trace.steps[step].axes
    lead = [", ".join(f"{axis} {at}" for axis, at in zip(axes, cell[:-2], strict=False))]
    row, column = (0, 0, *cell)[-2:]
    return [each for each in lead if each], row, column


def test_the_arithmetic_under_the_cursor_is_that_of_explain(show, tmp_path):
    """A hundred cells drawn at random, over all variants; by pointer and by focus in turn."""
    draw = np.random.RandomState(11)
    for number, path in enumerate(VARIANTS):
        traces = read(path)
        page = show(write(traces, tmp_path / f"{path.stem}.html"))
        trace = traces[0]
        explain = Said(trace, most=12)
        for turn in range(-(-100 // len(VARIANTS))):
            step = list(trace)[draw.randint(len(trace))]
            cell = tuple(draw.randint(size) for size in trace[step].shape)
            found = cell_of(page, step, *place(trace, step, cell))
            if (number + turn) % 2:
                found.hover()
            else:
                found.focus()
            want = explain(step, cell)
            want["figures"] = " = ".join(want["figures"])
            assert panel(page) == want, (path.stem, step, cell)
        page.context.close()


def test_operands_light_up(show, tmp_path):
    page = show(write([attnctl.run("I love AI", heads=2, causal=True)], tmp_path / "x.html"))
    cell_of(page, "attention_weights", ["head 1"], 1, 0).hover()
    lit = "[...document.querySelectorAll('td.lit')].map((td) => td.closest('table').ariaLabel)"
    assert page.evaluate(lit) == ["masked_scores, head 1"] * 2
    assert page.locator("td.here").count() == 1
    assert page.locator("svg line.faint").count() > 0


def test_a_head_is_switched_off_and_on(show, tmp_path):
    page = show(write([attnctl.run("I love AI", heads=3, d_model=6)], tmp_path / "x.html"))
    for step in ("Q", "scores", "attention_weights", "head_outputs"):
        assert page.get_by_role("grid", name=f"{step}, head 1", exact=True).is_visible()
    page.get_by_role("checkbox", name="1").uncheck()
    for step in ("Q", "scores", "attention_weights", "head_outputs"):
        assert not page.get_by_role("grid", name=f"{step}, head 1", exact=True).is_visible()
        assert page.get_by_role("grid", name=f"{step}, head 2", exact=True).is_visible()
    page.get_by_role("checkbox", name="1").check()
    assert page.get_by_role("grid", name="scores, head 1", exact=True).is_visible()


FOCUSED = """() => {
    const at = document.activeElement;
    const table = at.closest("table");
    if (!table) return at.closest("[aria-label]")?.ariaLabel + " " + at.textContent;
    return [table.ariaLabel, at.parentElement.rowIndex - 1, at.cellIndex - 1].join(" ");
}"""


def test_the_keyboard_alone_reaches_everything(show, tmp_path):
    trace = attnctl.run("I love AI", heads=2)
    page = show(write([trace], tmp_path / "x.html"))
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
    for step, array in trace.items():
        heads = [f", head {head}" for head in range(array.shape[0])] if array.ndim == 3 else [""]
        for head in heads:
            assert f"{step}{head} 0 0" in reached
    assert page.locator("input[type=checkbox]").count() == 2
    page.get_by_role("checkbox", name="1").focus()
    page.keyboard.press("Space")
    assert not page.get_by_role("checkbox", name="1").is_checked()


def test_arrows_move_enter_follows_and_backspace_returns(show, tmp_path):
    page = show(write([attnctl.run("I love AI", heads=2)], tmp_path / "x.html"))
    cell_of(page, "attention_weights", ["head 0"], 0, 0).focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
    assert page.evaluate(FOCUSED) == "attention_weights, head 0 1 2"
    page.keyboard.press("Home")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "scaled_scores, head 0 1 2"
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "Q, head 0 1 0"
    for expected in ("scores, head 0 1 2", "scaled_scores, head 0 1 2", "attention_weights, head 0 1 2"):
        page.keyboard.press("Backspace")
        assert page.evaluate(FOCUSED) == expected
    page.get_by_role("button", name="scaled_scores[0,love,AI]").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "scaled_scores, head 0 1 2"


def test_a_large_matrix_is_a_picture_that_keys_and_pointer_reach(show, tmp_path):
    words = " ".join(f"w{number}" for number in range(40))
    trace = attnctl.run(words, heads=2, causal=True)
    page = show(write([trace], tmp_path / "x.html"))
    explain = Said(trace, most=12)
    picture = page.get_by_role("application", name="attention_weights, head 1: 40 × 40")
    picture.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    want = explain("attention_weights", (1, 2, 1))
    assert panel(page)["figures"] == " = ".join(want["figures"])
    box = picture.bounding_box()
    side = (box["width"] - 66) / 40
    page.mouse.move(box["x"] + 66 + 5.5 * side, box["y"] + 66 + 30.5 * side)
    want = explain("attention_weights", (1, 30, 5))
    assert panel(page)["figures"] == " = ".join(want["figures"])
    page.get_by_role("button", name="every term").click()
    assert panel(page)["figures"] == " = ".join(Said(trace)("attention_weights", (1, 30, 5))["figures"])


def test_each_layer_opens(show, tmp_path):
    layers = [attnctl.run("I love AI", heads=2, seed=seed) for seed in range(3)]
    for layer, trace in enumerate(layers):
        trace.header["layer"] = layer
    page = show(write(layers, tmp_path / "x.html"))
    assert page.locator("#overview canvas").count() == 6
    page.get_by_role("button", name="layer 2").click()
    page.wait_for_selector("#overview button:nth-child(3)[aria-pressed=true]")
    cell_of(page, "scores", ["head 1"], 2, 1).focus()
    want = Said(layers[2], most=12)("scores", (1, 2, 1))
    assert panel(page)["symbols"] == want["symbols"]
    assert panel(page)["figures"] == " = ".join(want["figures"])


def test_a_hostile_token_is_text(show, tmp_path):
    trace = attnctl.run(f"I {HOSTILE} AI", heads=2)
    page = show(write([trace], tmp_path / "x.html"))
    page.on("dialog", lambda dialog: pytest.fail("the token was run"))
    assert page.get_by_role("columnheader", name=HOSTILE).count() > 0
    assert HOSTILE in page.locator("h1").inner_text()
    cell_of(page, "scores", ["head 0"], 1, 0).focus()
    assert HOSTILE in page.locator("#arithmetic").inner_text()
    assert page.evaluate("[...document.scripts].filter((each) => !each.type).length") == 1


def test_wrong_cells_are_marked(show, tmp_path):
    from attnctl.pages.found import check_pieces

    right = attnctl.run("I love AI", heads=2)
    array = right["scores"].copy()
    array[1, 2, 0] = 9.0
    report = attnctl.check(Trace(right.steps, {**right, "scores": array}, right.header))
    path = tmp_path / "c.html"
    path.write_bytes(b"".join(check_pieces([report])))
    page = show(path)
    assert page.locator("#finding").inner_text() == str(report)
    wrong = page.get_by_role("grid", name="scores, head 1", exact=True).locator("td.wrong")
    assert wrong.count() == 1
    wrong.hover()
    assert "it should be " in panel(page)["notes"][-1]


def violations(page):
    """What axe has to say against a page."""
    axe = pytest.importorskip("axe_core_python")
    source = next(Path(axe.__file__).parent.rglob("axe.min.js")).read_text()
    found = page.evaluate(
        f"(async () => {{ {source}; return await axe.run({{ resultTypes: ['violations'] }}); }})()"
    )
    return [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]]


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1400, "dark")])
def test_axe_finds_nothing(show, tmp_path, width, scheme):
    traces = attnctl.run_many(["I love", "AI loves me"], heads=2, causal=True)
    page = show(write(traces, tmp_path / "x.html"), width=width, scheme=scheme)
    cell_of(page, "attention_weights", ["head 1"], 1, 0).focus()
    assert violations(page) == []


def test_axe_finds_nothing_in_pictures(show, tmp_path):
    trace = attnctl.run(" ".join(f"w{number}" for number in range(30)), heads=2)
    page = show(write([trace.select(["scores", "scaled_scores"])], tmp_path / "x.html"))
    page.locator(".picture").nth(2).focus()
    assert violations(page) == []


def test_the_page_does_not_scroll_sideways_on_a_telephone(show, tmp_path):
    page = show(write([attnctl.run("I love AI and AI loves me", heads=2)], tmp_path / "x.html"), width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_light_and_dark_are_followed_while_the_page_is_open(show, tmp_path):
    page = show(write([attnctl.run("I love AI")], tmp_path / "x.html"))
    from playwright.sync_api import expect

    cell = page.locator("tbody td").first
    light = cell.evaluate("(td) => getComputedStyle(td).backgroundColor")
    page.emulate_media(color_scheme="dark")
    expect(cell).not_to_have_css("background-color", light)
    page.emulate_media(color_scheme="light")
    expect(cell).to_have_css("background-color", light)


def test_without_scripts_there_is_a_picture_and_text(chromium, tmp_path):
    path = write([attnctl.run("I love AI", heads=2)], tmp_path / "x.html")
    context = chromium.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("noscript img").bounding_box()["width"] > 100
    assert "attention_weights" in page.locator("noscript pre").inner_text()
    context.close()
