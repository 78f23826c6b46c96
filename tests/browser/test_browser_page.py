"""The page as a reader has it: opened from disk in a real browser, by pointer, keyboard and address."""

import itertools
import re
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from command_line import call
from page_arithmetic import Said, write
from waiting import violations, wait_until

import attnctl
from attnctl.drawing.show import View
from attnctl.pages.found import check_pieces, diff_pieces
from attnctl.pages.traces import write_traces as write_page
from attnctl.record import Trace
from attnctl.store.source import read

pytestmark = pytest.mark.slow

VARIANTS = sorted((Path(__file__).parents[2] / "samples" / "variants").glob("*.json"))
HOSTILE = "</script><script>alert(1)</script>"
LETTERS = {"head": "H", "batch": "B"}

PROOF = """(step) => {
    const texts = (each) => [...document.querySelectorAll(each)].map((one) => one.textContent);
    const [symbols, figures] = ["symbols", "figures"].map((kind) => texts(`#proof .equation.${kind}`)[0]);
    return { symbols, figures, notes: texts(`#proof .note[data-step="${step}"]`) };
}"""


OPEN_STEP = "document.querySelector('[aria-current=step]').textContent === '{}'"


def proof(page, step):
    """What the page says of the cell that is looked at: {symbols, figures, notes}."""
    found = page.evaluate(PROOF, step)
    return {
        "symbols": found["symbols"] and found["symbols"].partition(" = ")[2],
        "figures": found["figures"].partition(" = ")[2],
        "notes": found["notes"],
    }


def wanted(explain, step, cell):
    said = explain(step, cell)
    if "why" in said:
        return said["why"]
    return said | {"figures": " = ".join(said["figures"])}


def address(trace, step, cell):
    """The fragment of a cell of a page with one trace."""
    axes, spell = trace.steps[step].axes, Said(trace).explainer.spell
    lead = "".join(f"{LETTERS[axis]}{at}" for axis, at in zip(axes[:-2], cell, strict=False))
    words = [spell.words(step, axis) for axis in range(len(axes))]
    inner = [
        words[at][cell[at]] if words[at] else str(cell[at])
        for at in range(max(0, len(axes) - 2), len(axes))
    ]
    return "#" + "/".join(quote(each, safe="!'()*~") for each in [lead, *inner, step] if each)


def go(page, fragment):
    page.evaluate("(fragment) => { location.hash = fragment; }", fragment)
    arrive(page, fragment)


def arrive(page, fragment):
    """Wait for an address, and for what is shown there: the page is told of it a task later."""
    wait_until(page, "(fragment) => location.hash.startsWith(fragment)", fragment)
    page.evaluate("() => new Promise((shown) => requestAnimationFrame(() => setTimeout(shown)))")


def grid(page, name):
    return page.get_by_role("grid", name=name, exact=True)


def cell_of(page, name, row, column):
    return grid(page, name).locator("tbody tr").nth(row).locator("td").nth(column)


# --- what is said ---


def test_the_arithmetic_of_a_cell_is_that_of_explain(show, tmp_path):
    """A hundred cells drawn at random, over all variants; by address and by the pointer in turn."""
    draw = np.random.RandomState(11)
    for number, path in enumerate(VARIANTS):
        trace = read(path)[0]
        page = show(write([trace], tmp_path / f"{path.stem}.html"))
        explain = Said(trace, most=12)
        for turn in range(-(-100 // len(VARIANTS))):
            step = list(trace)[draw.randint(len(trace))]
            cell = tuple(int(draw.randint(size)) for size in trace[step].shape)
            pointed = (number + turn) % 2 and len(cell) > 1
            go(page, address(trace, step, (*cell[:-2], 0, 0) if pointed else cell))
            if pointed:
                place = {"x": 2 + turn, "y": 2}  # a pointer that rests where it was points at nothing
                row = page.locator("#matrix tbody tr").nth(cell[-2])
                row.locator("td").nth(cell[-1]).hover(position=place)
            assert proof(page, step) == wanted(explain, step, cell), (path.stem, step, cell)
        page.context.close()


def test_the_proof_of_a_weight_goes_back_to_the_products_of_its_score(show, tmp_path):
    trace = attnctl.run("I love AI", heads=2)
    page = show(write([trace], tmp_path / "x.html"))
    go(page, "#H1/AI/love/attention_weights")
    told = page.locator("#proof").inner_text()
    weight = trace["attention_weights"][1, 2, 1]
    assert page.locator("#proof .value").inner_text() == f"{weight:.4f}"
    assert f"{100 * weight:.0f} % of what AI reads comes from love" in told
    assert page.locator("#proof .fraction").count() == 2
    assert page.locator("#proof h3 code").all_inner_texts() == ["scaled_scores", "scores"]
    q, k = trace["Q"][1, 2], trace["K"][1, 1]
    last = page.locator("#proof .bars").last
    found = [float(each.replace("−", "-")) for each in last.locator("li .figure").all_inner_texts()]
    terms = sorted(q * k, key=abs, reverse=True)
    assert np.allclose(found, [*terms, trace["scores"][1, 2, 1]], atol=6e-4)
    last.get_by_role("button", name="Q[1,AI,0]").click()
    assert page.evaluate("location.hash") == "#H1/AI/0/Q"


def test_scores_that_are_not_recorded_are_computed_in_the_page(show, tmp_path):
    trace = attnctl.run("I love AI", heads=2, causal=True)
    kept = ["Q", "K", "V", "attention_weights", "head_outputs"]
    page = show(write([trace.select(kept)], tmp_path / "x.html"), fragment="#H1/AI/love/attention_weights")
    lines = page.locator("#proof h3 code").all_inner_texts()
    assert lines == ["masked_scores", "scaled_scores", "scores"]
    page.get_by_role("button", name="scores", exact=True).click()
    shown = page.locator("#matrix tbody td").all_inner_texts()
    assert shown == [f"{each:.2f}".replace("-", "−") for each in trace["scores"][1].flat]
    assert "not in this dump: computed from what is" in page.locator("#proof").inner_text()
    command = shlex.split(page.locator("#proof .tools code").last.inner_text())
    code, printed, _ = call("explain", tmp_path / "x.html", command[3])
    assert code == 0
    assert f" = {page.locator('#proof .value').inner_text()}\n".replace("−", "-") in printed


def test_cells_have_two_decimals_and_copies_every_digit(show, tmp_path):
    trace = attnctl.run("I love AI", heads=2, causal=True)
    page = show(write([trace], tmp_path / "x.html"))
    go(page, "#H1/AI/love/attention_weights")
    weights = trace["attention_weights"][1]
    texts = [cell_of(page, "attention_weights, head 1", 2, at).inner_text() for at in range(3)]
    assert texts == [f"{each:.2f}" for each in weights[2]]
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.get_by_role("button", name="Copy as TSV").click()
    lines = [line.split("\t") for line in page.evaluate("window.copied").splitlines()]
    assert lines[0] == ["", "I", "love", "AI"]
    assert [line[0] for line in lines[1:]] == ["I", "love", "AI"]
    assert np.array_equal(np.array([line[1:] for line in lines[1:]], float), weights)
    page.get_by_role("button", name="Copy every digit").click()
    assert float(page.evaluate("window.copied")) == weights[2, 1]
    page.get_by_role("button", name="Copy the command").click()
    assert page.evaluate("window.copied") == "attnctl explain x.html 'attention_weights[1,AI,love]'"
    assert page.locator("#said").inner_text() == "Copied the command."


def test_hidden_cells_say_which_rule_hides_them(show, tmp_path):
    page = show(write([attnctl.run("I love AI", causal=True)], tmp_path / "x.html"))
    cell = cell_of(page, "attention_weights, head 0", 0, 2)
    assert cell.get_attribute("aria-label") == "hidden by causal"
    assert "hidden by causal" in page.locator(".legend").inner_text()
    cell.click()
    assert page.locator("#proof .means").inner_text() == "hidden by causal"


def legend(page):
    """The colours and hatches of the matrix that the legend names."""
    keys = page.locator("#matrix .legend span:has(i)")
    return {each.inner_text().strip(): each.locator("i").get_attribute("class") for each in keys.all()}


def test_every_colour_and_hatch_is_in_the_legend(show, tmp_path):
    """Two rules have two hatches; a wrong cell, a number that is none, a head that is compared."""
    trace = attnctl.run("I love AI and you [PAD]", heads=2, causal=True, rules=["padding"])
    page = show(write([trace], tmp_path / "x.html"))
    found = legend(page)
    assert list(found) == ["looked at", "hidden by causal", "hidden by padding"]
    hatches = [page.locator(f"#matrix td.{kind.split()[1]}").first for kind in list(found.values())[1:]]
    images = [each.evaluate("(td) => getComputedStyle(td).backgroundImage") for each in hatches]
    assert len(set(images)) == 2
    other = page.locator("#map [aria-checked=false]").first
    number = other.locator(".which").inner_text()
    other.click(modifiers=["Shift"])
    assert f"compared: head {number}, dashed" in legend(page)
    right = attnctl.run("I love AI", heads=2, causal=True)
    report = attnctl.check(changed(right, "scores", (1, 2, 0), 9.0))
    (tmp_path / "c.html").write_bytes(b"".join(check_pieces([report])))
    assert list(legend(show(tmp_path / "c.html"))) == ["looked at", "wrong"]
    (tmp_path / "d.html").write_bytes(
        b"".join(diff_pieces([attnctl.diff(right, attnctl.run("I love AI", heads=2))]))
    )
    page = show(tmp_path / "d.html", fragment="#T1H0/I/AI/attention_weights")
    assert page.locator("#way .legend").inner_text().strip() == "differs"


# --- where a reader goes ---


def test_hover_looks_a_click_stays_and_the_browser_goes_back(show, tmp_path):
    page = show(write([attnctl.run("I love AI", heads=2)], tmp_path / "x.html"))
    who = page.locator("#proof .who")
    cell_of(page, "attention_weights, head 0", 0, 1).click()
    first = page.evaluate("location.hash")
    assert first == "#H0/I/love/attention_weights"
    assert page.title().startswith("I → love")
    cell_of(page, "attention_weights, head 0", 1, 2).hover()
    assert who.inner_text() == "love → AI"
    assert page.evaluate("location.hash") == first
    page.mouse.move(5, 5)
    assert who.inner_text() == "I → love"
    page.get_by_role("radio", name="head 1").click()
    page.get_by_role("button", name="scores", exact=True).click()
    assert page.evaluate("location.hash") == "#H1/I/love/scores"
    page.go_back()
    wait_until(page, "document.querySelector('[aria-current=step]').textContent === 'attention_weights'")
    page.go_back()
    arrive(page, "#H0/I/love/attention_weights")
    assert grid(page, "attention_weights, head 0").is_visible()
    page.go_forward()
    page.go_forward()
    wait_until(page, OPEN_STEP.format("scores"))
    assert grid(page, "scores, head 1").is_visible()


def test_an_address_opens_just_that_cell(show, tmp_path):
    path = write([attnctl.run("I love AI", heads=2)], tmp_path / "x.html")
    page = show(path, fragment="#H1/AI/love/scaled_scores")
    assert page.locator("#proof .who").inner_text() == "AI → love"
    assert page.locator("[aria-current=step]").inner_text() == "scaled_scores"
    assert page.locator("td.here").count() == 1
    wrong_addresses = ("#H1/AI/nobody/scores", "#nothing", "#H9/%/x", "#T7/x", "#H9/AI/love/scores")
    for wrong in (*wrong_addresses, "#B0H1/AI/love/scores"):
        other = show(path, fragment=wrong)
        assert other.evaluate("location.hash").endswith("/attention_weights")


def test_the_sentence_shows_what_a_word_looks_at(show, tmp_path):
    trace = attnctl.run("I love AI", heads=2)
    page = show(write([trace], tmp_path / "x.html"))
    go(page, "#H1/I/I/attention_weights")
    words = page.get_by_role("group", name="query tokens").get_by_role("button")
    words.nth(1).hover()
    weights = trace["attention_weights"][1, 1]
    strong = [f"{each:.2f}" if each >= 0.02 else "" for each in weights]
    assert [words.nth(at).locator("small").inner_text() for at in range(3)] == strong
    assert page.locator(".curves path").count() == sum(map(bool, strong))
    assert page.evaluate("location.hash") == "#H1/I/I/attention_weights"
    words.nth(1).click()
    key = trace.tokens[int(weights.argmax())]
    assert page.evaluate("location.hash") == f"#H1/love/{key}/attention_weights"


FOCUSED = """() => {
    const at = document.activeElement;
    const table = at.closest("table");
    if (!table) return at.ariaLabel ?? at.textContent;
    return [table.ariaLabel, at.parentElement.rowIndex - 1, at.cellIndex - 1].join(" ");
}"""


def test_the_keyboard_alone_reaches_everything(show, tmp_path):
    trace = attnctl.run("I love AI", heads=2)
    page = show(write([trace], tmp_path / "x.html"))
    go(page, "#H0/love/AI/attention_weights")
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
    expected = ["scores", "Copy every digit", "attention_weights, head 0 1 2", "Save SVG", "logarithm"]
    for each in (*expected, "scaled_scores[0,love,AI]: "):
        assert any(found.startswith(each) for found in reached), (each, reached)


def test_arrows_move_enter_follows_and_backspace_returns(show, tmp_path):
    page = show(write([attnctl.run("I love AI", heads=2)], tmp_path / "x.html"))
    go(page, "#H0/I/I/attention_weights")
    cell_of(page, "attention_weights, head 0", 0, 0).click()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
    assert page.evaluate(FOCUSED) == "attention_weights, head 0 1 2"
    assert page.evaluate("location.hash") == "#H0/love/AI/attention_weights"
    assert page.locator("#said").inner_text().startswith("attention_weights[0,love,AI] = 0.")
    back = ["attention_weights", "scaled_scores", "scores"]
    for key, steps in (("Enter", [*back[1:], "Q"]), ("Backspace", back[::-1])):
        for step in steps:
            page.keyboard.press(key)
            place, cell = ("love/0", "1 0") if step == "Q" else ("love/AI", "1 2")
            arrive(page, f"#H0/{place}/{step}")
            assert page.evaluate(FOCUSED) == f"{step}, head 0 {cell}"
    assert page.locator("#proof .who").inner_text() == "love → AI"


def test_the_way_back_is_drawn_below_the_way_forward_and_a_gradient_is_open(show, tmp_path):
    trace = attnctl.run("I love AI", heads=2, backward=True)
    page = show(write([trace], tmp_path / "x.html"))
    forth, back = (page.locator(f"#way .{row} .step code").all_inner_texts() for row in ("forth", "back"))
    gradients = [name for name in trace if name.startswith("d_") or name == "delta"]
    assert back == gradients[::-1]
    assert set(forth) == set(trace) - set(gradients)
    rows = [page.locator(f"#way .{row}").bounding_box() for row in ("forth", "back")]
    assert rows[0]["y"] + rows[0]["height"] <= rows[1]["y"]
    open_step, frame = (page.locator(each).bounding_box() for each in ("[aria-current=step]", "#way .back"))
    assert frame["x"] <= open_step["x"]
    assert open_step["x"] + open_step["width"] <= frame["x"] + frame["width"]
    gradient = trace["d_attention_weights"]
    head, query, key = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
    where = f"#H{head}/{trace.tokens[query]}/{trace.tokens[key]}/d_attention_weights"
    assert page.evaluate("location.hash") == where


def test_a_line_stands_where_a_chunk_of_keys_begins(show, tmp_path):
    trace = attnctl.run("I love AI and you love me too", chunks=3)
    page = show(write([trace], tmp_path / "x.html"), fragment="#I/I/attention_weights")
    marked = page.locator("#matrix tbody tr").first.locator("td.edge")
    columns = marked.evaluate_all("(cells) => cells.map((td) => td.cellIndex - 1)")
    share = np.exp(trace["chunk_logsumexp"] - trace["logsumexp"])[:, 0, 0]  # of the first query
    weights = trace["attention_weights"][0, 0]
    bounds = [0, *columns, 8]
    own = [weights[start:end].sum() for start, end in itertools.pairwise(bounds)]
    assert np.allclose(own, share)
    assert "a chunk of keys begins" in legend(page)
    assert page.locator("#hero .word.edge").count() == 2
    page.locator("[data-toggle=first]").click()
    shifted = marked.evaluate_all("(cells) => cells.map((td) => td.cellIndex - 1)")
    assert shifted == [column - 1 for column in columns]
    page.get_by_role("button", name="V", exact=True).click()
    assert page.locator("#matrix td.edge").count() == 0


# --- heads and layers ---


def layers(many=3, sentence="I love AI and AI loves me"):
    found = [attnctl.run(sentence, heads=2, seed=seed) for seed in range(many)]
    for layer, trace in enumerate(found):
        trace.header.update(layer=layer, model="/home/someone/models/tiny")
    return found


def test_heads_are_coloured_by_their_effect(show, tmp_path):
    traces = layers(3)
    for trace, effect in zip(traces, ([0.5, 0.0], [0.25, -1.0], [0, 0]), strict=True):
        trace.header["effect"] = effect
    page = show(write(traces, tmp_path / "x.html"))
    heads = page.locator("#map [role=radio]")
    colours = [head.evaluate("head => getComputedStyle(head).borderBottomColor") for head in heads.all()]
    blue = "rgba(38, 103, 178, {})".format
    assert colours == [blue(0.5), blue(0), blue(0.25), "rgb(196, 106, 22)", blue(0), blue(0)]
    page.locator("#sorting").select_option("effect")
    assert heads.locator(".which").all_inner_texts()[:3] == ["L1H1", "L0H0", "L1H0"]
    assert page.get_by_role("radio", name="layer 1, head 1: effect −1,").count() == 1


def test_the_map_opens_sorts_and_filters(show, tmp_path):
    traces = layers()
    page = show(write(traces, tmp_path / "x.html"))
    heads = page.locator("#map [role=radio]")
    assert heads.count() == 6
    before = page.evaluate("location.hash")
    page.get_by_role("radio", name="layer 2, head 1").hover()
    where = "document.querySelector('#proof .where').textContent.startsWith('{}')"
    wait_until(page, where.format("layer 2, head 1"))
    page.mouse.move(700, 5)
    wait_until(page, where.format("layer 0"))
    assert page.evaluate("location.hash") == before
    page.get_by_role("radio", name="layer 2, head 1").click()
    arrive(page, "#L2H1/")
    assert page.title().endswith("· tiny layer 2")
    page.locator("#sorting").select_option("first")
    shares = [
        float(trace["attention_weights"][head, 2:, 0].mean()) for trace in traces for head in range(2)
    ]
    order = [f"L{at // 2}H{at % 2}" for at in np.argsort(shares)[::-1]]
    assert heads.locator(".which").all_inner_texts() == order
    boxes = [each.bounding_box() for each in heads.all()]
    assert len({box["x"] for box in boxes}) == 5  # a row is full before the next begins
    assert [box["x"] for box in boxes[:5]] == sorted(box["x"] for box in boxes[:5])
    page.locator("#sorting").select_option("")
    columns = {box["x"] for box in (each.bounding_box() for each in heads.all())}
    assert len(columns) == 2  # again a column for each head
    kind = page.locator("#filter option").nth(1).get_attribute("value")
    page.locator("#filter").select_option(kind)
    assert set(heads.locator(".does").all_inner_texts()) == {kind}
    page.go_back()
    arrive(page, "#L0")


def test_a_map_of_weights_alone_advises_a_page_of_one_layer(show, tmp_path):
    traces = [trace.select(["attention_weights"]) for trace in layers()]
    page = show(write(traces, tmp_path / "x.html"), fragment="#L2H1/me/love/attention_weights")
    assert "--layer 2 -o FILE.html" in page.locator("#proof .note").inner_text()
    assert page.get_by_role("button", name="Copy the command").count() == 0


@pytest.mark.parametrize("kind", ["sentences", "check"])
def test_paper_has_no_buttons_that_do_nothing_there(show, tmp_path, kind):
    KINDS[kind](tmp_path / "x.html")
    page = show(tmp_path / "x.html")
    page.get_by_role("button", name="scores", exact=True).click()
    read = "#hero .word, .operand"  # buttons on the screen, words and numbers on paper
    page.emulate_media(media="print")
    buttons = page.locator(f"button:not({read})").all()
    shown = [button.inner_text() for button in buttons if button.is_visible()]
    assert shown == []


def test_members_of_a_batch_and_heads_without_weights_are_chosen(show, tmp_path):
    draw = np.random.RandomState(0)
    trace = attnctl.attend({name: draw.standard_normal((2, 3, 4, 2)) for name in "QKV"})
    page = show(write([trace], tmp_path / "x.html"))
    go(page, "#B0H1/2/3/attention_weights")
    page.locator("[data-axis=batch]").select_option("1")
    assert page.evaluate("location.hash") == "#B1H1/2/3/attention_weights"
    value = trace["attention_weights"][1, 1, 2, 3]
    assert page.locator("#proof .value").inner_text() == f"{value:.4f}".rstrip("0")
    assert page.locator("#proof .where").inner_text().startswith("batch 1, head 1")
    trace = attnctl.run("I love AI", heads=3, d_model=6).select(["X", "W_Q", "Q"])
    page = show(write([trace], tmp_path / "q.html"))
    go(page, "#H0/love/1/Q")
    page.locator("[data-axis=head]").select_option("2")
    assert page.evaluate("location.hash") == "#H2/love/1/Q"
    assert proof(page, "Q")["figures"].endswith(f"= {forms(trace['Q'][2, 1, 1])}")


def forms(value):
    return f"{value:.4f}".rstrip("0")


def test_two_heads_are_compared(show, tmp_path):
    trace = attnctl.run("I love AI", heads=3, d_model=6)
    page = show(write([trace], tmp_path / "x.html"))
    go(page, "#H0/AI/love/attention_weights")
    page.get_by_role("radio", name="head 2").click(modifiers=["Shift"])
    page.mouse.move(5, 5)
    assert page.locator("figcaption").all_inner_texts() == ["head 0", "head 2"]
    weights = trace["attention_weights"][:, 2]
    assert page.locator(".curves .also").count() == (weights[2] >= 0.02).sum()
    cell = cell_of(page, "attention_weights, head 2", 2, 0)
    assert cell.inner_text() == f"{weights[2, 0]:.2f}"
    cell.hover()
    assert page.locator("#proof .value").inner_text() == f"{weights[2, 0]:.4f}".rstrip("0")
    assert page.locator("figcaption").count() == 2
    page.get_by_role("radio", name="head 2").click(modifiers=["Shift"])
    assert page.locator("figcaption").count() == 0


def test_heads_are_compared_by_a_button_and_that_has_an_address(show, tmp_path):
    trace = attnctl.run("I love AI", heads=3, d_model=6)
    path = write([trace], tmp_path / "x.html")
    page = show(path, width=390, height=844)
    go(page, "#H0/AI/love/attention_weights")
    button = page.get_by_role("button", name="Compare")
    button.click()
    assert page.locator("#map .readout").inner_text() == "Choose the head to compare it with."
    page.get_by_role("radio", name="head 2").click()
    assert page.locator(".faces button").all_inner_texts() == ["head 0", "head 2"]
    assert page.evaluate("location.hash") == "#H0vsH2/AI/love/attention_weights"
    assert button.get_attribute("aria-pressed") == "true"
    there = show(path, fragment="#H0vsH2/AI/love/attention_weights")
    assert there.locator("figcaption").all_inner_texts() == ["head 0", "head 2"]
    there.get_by_role("radio", name="head 1").click()
    assert there.evaluate("location.hash") == "#H1vsH2/AI/love/attention_weights"
    there.go_back()
    arrive(there, "#H0vsH2/AI/love/attention_weights")
    button.click()
    assert page.locator("figcaption").count() == 0
    assert page.evaluate("location.hash") == "#H0/AI/love/attention_weights"
    assert show(path, fragment="#H0vsH9/AI/love/scores").locator("figcaption").count() == 0


def test_of_a_pair_of_sentences_one_is_looked_at(show, tmp_path):
    trace = attnctl.run("[CLS] I love [SEP] AI too [SEP]", heads=2)
    trace.header["special"] = [0, 3, 6]
    page = show(write([trace], tmp_path / "x.html"))
    go(page, "#H0/love/love/attention_weights")
    words = page.get_by_role("group", name="query tokens").get_by_role("button")
    weights = trace["attention_weights"][0, 2]
    for name, keys in (("A → A", range(4)), ("A → B", range(4, 7))):
        page.get_by_role("button", name=name).click()
        shaded = [each.evaluate("(word) => word.style.backgroundColor !== ''") for each in words.all()]
        assert shaded == [at in keys and weights[at] >= 0.02 for at in range(7)]


def pixels(page, selector):
    """A canvas as (row, column, red green blue)."""
    flat, width = page.locator(selector).evaluate(
        "(c) => [[...c.getContext('2d').getImageData(0, 0, c.width, c.height).data], c.width]"
    )
    return np.array(flat).reshape(-1, width, 4)[..., :3]


def test_a_head_in_little_loses_no_column(show, tmp_path):
    """97 % on one of 200 keys is as dark in little as it is large."""
    trace = attnctl.run(" ".join(f"w{at}" for at in range(200)), heads=2, keep=["attention_weights"])
    weights = np.full((2, 200, 200), 0.03 / 199)
    weights[..., 101] = 0.97
    weights[1] = 1 / 200
    page = show(
        write([Trace(trace.steps, {"attention_weights": weights}, trace.header)], tmp_path / "x.html")
    )
    page.locator("[data-toggle=log]").click()
    page.wait_for_timeout(100)
    spiked, even = (pixels(page, f"#map [role=radio]:nth-child({at}) canvas") for at in (1, 2))
    assert spiked[30].sum(axis=-1).min() < 200
    assert even.sum(axis=-1).min() > 650  # one scale for all heads: 0.005 is pale


def test_heads_of_another_sentence_are_drawn(show, tmp_path):
    page = show(write(attnctl.run_many(["I love AI", "AI loves me and you"], heads=2), tmp_path / "x.html"))
    page.get_by_role("button", name="AI loves me and you").click()
    arrive(page, "#T1")
    page.wait_for_timeout(100)
    assert len(page.locator("#hero .word").all()) == 5
    for at in (1, 2):
        assert len(np.unique(pixels(page, f"#map [role=radio]:nth-child({at}) canvas"), axis=0)) > 1


def test_toggles_change_what_is_shaded(show, tmp_path):
    page = show(write([attnctl.run("I love AI", heads=2)], tmp_path / "x.html"))
    go(page, "#H0/AI/AI/attention_weights")
    cell = cell_of(page, "attention_weights, head 0", 2, 2)
    seen = [cell.evaluate("(td) => td.style.backgroundColor")]
    for name in ("log", "row", "weighted"):
        page.locator(f"[data-toggle={name}]").click()
        seen.append(cell.evaluate("(td) => td.style.backgroundColor"))
        page.locator(f"[data-toggle={name}]").click()
    assert len(set(seen)) == 4
    page.locator("[data-toggle=weighted]").click()
    weighted = page.locator("#proof .beside dd").last.inner_text()
    assert f"{float(weighted):.2f}" == cell.inner_text()
    page.locator("[data-toggle=weighted]").click()
    assert page.locator("#proof .beside").count() == 0
    page.locator("[data-toggle=first]").click()
    assert grid(page, "attention_weights, head 0").locator("thead th").all_inner_texts() == ["love", "AI"]


def test_a_page_opens_with_what_was_asked_for(show, tmp_path):
    trace = attnctl.run("I love AI", heads=3, d_model=6)
    with (tmp_path / "x.html").open("wb") as stream:
        write_page([trace], stream, View(heads=(2,), log=True, without_first=True, precision=3))
    page = show(tmp_path / "x.html")
    table = grid(page, "attention_weights, head 2")
    weights = trace["attention_weights"][2, :, 1:]
    assert table.locator("tbody td").all_inner_texts() == [f"{each:.3f}" for each in weights.flat]
    assert page.locator("[data-toggle][aria-pressed=true]").all_inner_texts() == [
        "logarithm",
        "without first",
    ]
    assert not page.locator("#map").is_visible()


def test_values_weigh_in(show, tmp_path):
    """‖A V W_O‖ of a cell, from the run's own matrices."""
    trace = attnctl.run("I love AI", heads=2)
    page = show(write([trace], tmp_path / "x.html"))
    go(page, "#H1/love/AI/attention_weights")
    page.locator("[data-toggle=weighted]").click()
    value = trace["V"][1, 2] @ trace["W_O"][2:4]
    expected = trace["attention_weights"][1, 1, 2] * np.sqrt((value**2).sum())
    assert cell_of(page, "attention_weights, head 1", 1, 2).inner_text() == f"{expected:.2f}"


# --- large and strange ---


def test_a_large_matrix_is_a_picture_that_keys_and_pointer_reach(show, tmp_path):
    words = " ".join(f"w{number}" for number in range(40))
    trace = attnctl.run(words, heads=2, causal=True)
    page = show(write([trace], tmp_path / "x.html"))
    go(page, "#H1/w0/w0/attention_weights")
    explain = Said(trace, most=12)
    picture = grid(page, "attention_weights, head 1")
    picture.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert proof(page, "attention_weights") == wanted(explain, "attention_weights", (1, 2, 1))
    cell = page.locator(f"#{picture.get_attribute('aria-activedescendant')}")
    assert cell.get_attribute("aria-label").startswith("w2, w1: 0.")
    go(page, "#H1/w30/w5/attention_weights")
    box = picture.bounding_box()
    marks = picture.locator(".marks").evaluate(
        """(c) => {
            const { data, width } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
            const solid = [...data.keys()].filter((at) => at % 4 === 3 && data[at] > 250);
            const lit = solid.map((at) => at >> 2);
            const [xs, ys] = [lit.map((at) => at % width), lit.map((at) => Math.floor(at / width))];
            const middle = (all) => (Math.min(...all) + Math.max(...all)) / 2;
            return [middle(xs), middle(ys)];
        }"""
    )
    go(page, "#H1/w0/w0/attention_weights")
    page.mouse.move(box["x"] + marks[0], box["y"] + marks[1])
    assert page.locator("#proof .who").inner_text() == "w30 → w5"
    page.mouse.down()
    page.mouse.up()
    assert page.evaluate("location.hash") == "#H1/w30/w5/attention_weights"
    page.locator("#proof .more").first.click()
    assert proof(page, "attention_weights")["symbols"].count("exp") == 31 + 1


def test_a_hostile_token_is_text(show, tmp_path):
    trace = attnctl.run(f"I {HOSTILE} a/b", heads=2)
    page = show(write([trace], tmp_path / "x.html"))
    page.on("dialog", lambda dialog: pytest.fail("the token was run"))
    assert HOSTILE in page.locator("h1").inner_text()
    go(page, address(trace, "attention_weights", (0, 2, 1)))
    assert page.locator("#proof .who").inner_text() == f"a/b → {HOSTILE}"
    assert HOSTILE in page.locator("#hero").inner_text()
    assert page.evaluate("[...document.scripts].filter((each) => !each.type).length") == 1


def saved(page, tmp_path):
    with page.expect_download() as download:
        page.get_by_role("button", name="Save SVG").click()
    download.value.save_as(tmp_path / "saved.svg")
    return (tmp_path / "saved.svg").read_bytes()


def test_a_saved_picture_opens_elsewhere(show, tmp_path):
    trace = attnctl.run(f"I {HOSTILE} AI", heads=2, causal=True)
    page = show(write([trace], tmp_path / "x.html"))
    picture = saved(page, tmp_path)
    root = ET.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    texts = [each.text for each in root.iter(f"{space}text")]
    assert HOSTILE in texts
    weights = trace["attention_weights"]
    head = int(page.locator("[aria-checked=true] .which").inner_text())
    assert {f"{each:.2f}" for each in weights[head][np.tril_indices(3)]} <= set(texts)
    fills = [each.get("fill") for each in root.iter(f"{space}rect")]
    assert fills.count("url(#hatch)") == 3
    resvg = pytest.importorskip("resvg_py")
    assert len(bytes(resvg.svg_to_bytes(svg_string=picture.decode()))) > 1000


# --- findings ---


def test_a_page_of_a_cell_opens_there(show, tmp_path):
    attnctl.run("I love AI", heads=2).save(tmp_path / "a.json")
    assert call("explain", tmp_path / "a.json", "scores[1,AI,love]", "-o", tmp_path / "c.html")[0] == 0
    page = show(tmp_path / "c.html")
    assert page.locator("[aria-current=step]").inner_text() == "scores"
    assert page.evaluate("location.hash") == "#H1/AI/love/scores"


WITHOUT_SCALE = """
import numpy as np

def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
"""


def changed(trace, step, cell, value):
    array = trace[step].copy()
    array[cell] = value
    return Trace(trace.steps, {**trace, step: array}, trace.header)


def test_a_check_opens_on_the_wrong_cell_with_what_was_expected(show, tmp_path):
    right = attnctl.run("I love AI", heads=2)
    report = attnctl.check(changed(right, "scores", (1, 2, 0), 9.0))
    (tmp_path / "c.html").write_bytes(b"".join(check_pieces([report])))
    page = show(tmp_path / "c.html")
    assert page.locator("#finding pre").text_content() == str(report)
    assert page.locator("[aria-current=step]").inner_text().startswith("scores")
    assert "first wrong" in page.locator("[aria-current=step]").inner_text()
    assert page.locator("figcaption").all_inner_texts() == ["found", "expected"]
    assert page.locator("td.wrong").count() == 1
    assert page.locator("#proof .beside").inner_text().split() == [
        "found",
        "9",
        "expected",
        f"{right['scores'][1, 2, 0]:.4f}".replace("-", "−"),
    ]


def command_of(page):
    """What the opening of a finding says to type next, as arguments."""
    return shlex.split(page.locator("#next code").inner_text())[1:]


def test_a_check_shows_how_the_expected_number_comes_about(show, tmp_path):
    """Of a dump without scores: they are computed from Q and K, and the command works."""
    kept = ["Q", "K", "V", "attention_weights"]
    right, leak = (attnctl.run("I love AI", heads=2, causal=causal) for causal in (True, False))
    arrays = {**{name: right[name] for name in kept}, "attention_weights": leak["attention_weights"]}
    np.savez(tmp_path / "theirs.npz", **arrays)
    assert call("check", tmp_path / "theirs.npz", "--causal", "-o", tmp_path / "c.html")[0] == 1
    page = show(tmp_path / "c.html")
    place = np.unravel_index(
        np.abs(leak["attention_weights"] - right["attention_weights"]).argmax(), (2, 3, 3)
    )
    found, expected = (trace["attention_weights"][place] for trace in (leak, right))
    beside = page.locator("#proof .beside").inner_text().split()
    assert beside == ["found", f"{found:.4g}", "expected", f"{expected:.4g}"]
    assert page.locator("#proof h3").first.inner_text() == "expected = softmax over keys"
    assert page.locator("#proof .line b").first.inner_text() == "expected"
    assert page.locator("#proof .formula b").first.inner_text() == f"{expected:.3g}"
    leaked = cell_of(page, f"attention_weights, head {place[0]}", 0, 2)
    assert leaked.inner_text() == f"{leak['attention_weights'][place[0], 0, 2]:.2f}"
    code, printed, _ = call("explain", tmp_path / "c.html", *command_of(page)[2:])
    assert code == 0
    assert f" = {beside[3]}\nbut {beside[1]} was recorded here" in printed
    assert "Not recorded: scores, scaled_scores and masked_scores" in page.locator("#notes").inner_text()


def test_a_conform_opens_with_the_cause_and_the_command_that_runs_it_again(show, tmp_path):
    (tmp_path / "kernels.py").write_text(WITHOUT_SCALE)
    asked = ("--quick", "--feature", "attention", "--dtype", "float32", "--save", tmp_path / "cases")
    files = ("-o", tmp_path / "c.html", "-o", "-")
    code, printed, _ = call("conform", f"{tmp_path}/kernels.py:attention", *asked, *files)
    assert code == 1
    page = show(tmp_path / "c.html")
    assert page.locator("h1").inner_text() == "kernels.py:attention does not conform"
    finding, matrix = (page.locator(each).bounding_box() for each in ("#finding", "#matrix"))
    assert finding["y"] + finding["height"] <= matrix["y"]
    told = [each.strip() for each in page.locator("#finding > p").all_inner_texts()]
    lines = printed.split("\n")
    at = next(at for at, line in enumerate(lines) if line.startswith("no-scale: attention, in float32"))
    verdict = next(line for line in lines if line.startswith("It does not conform"))
    assert verdict == f"{told[1].removesuffix('.')}; a ratio above 1 is wrong."  # which the table has
    card = page.locator("#finding .cards li")
    assert card.locator(".what").inner_text() == lines[at + 1]
    replay = page.locator("#finding .command code").inner_text()
    assert replay == lines[at + 3]
    card.locator("a").click()
    arrive(page, "#")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.get_by_role("button", name="Copy the next command").click()
    assert page.evaluate("window.copied") == replay
    found, expected = page.locator("#proof .beside dd").all_inner_texts()
    numbers = [f"{float(each.replace('−', '-')):.3g}" for each in (found, expected)]
    written = re.search(r"is (\S+) at .* and should be (\S+)\.", card.inner_text())
    assert [f"{float(each):.3g}" for each in written.groups()] == numbers
    assert page.locator("#proof h3").first.inner_text() == "expected = A V"
    command = page.locator("#proof .tools code").last.inner_text()
    code, printed, _ = call("explain", tmp_path / "c.html", *shlex.split(command)[3:])
    assert code == 0
    assert f" = {expected.replace('−', '-')}\nbut {found.replace('−', '-')} was recorded here" in printed


def test_a_diff_opens_with_where_they_part_and_what_differs_in_the_settings(show, tmp_path):
    a, b = attnctl.run("I love AI", heads=2), attnctl.run("I love AI", heads=2, causal=True, seed=1)
    (tmp_path / "d.html").write_bytes(b"".join(diff_pieces([attnctl.diff(a, a), attnctl.diff(a, b)])))
    page = show(tmp_path / "d.html")
    assert (
        page.locator("h1").inner_text()
        == "A and B differ: embeddings is the first of 15 that differ (15 steps compared)"
    )
    rows = [row.split("\t") for row in page.locator("#finding tr").all_inner_texts()]
    assert rows[:3] == [["", "A", "B"], ["seed", "0", "1"], ["rules", "[]", '["causal"]']]
    cell = np.unravel_index(np.abs(b["output"] - a["output"]).argmax(), a["output"].shape)
    assert [row[0] for row in rows[3:]] == ["step", "embeddings", "output"]
    assert rows[5][5:] == [f"{trace['output'][cell]:.4g}" for trace in (a, b)]
    command = page.locator("#finding .command code").inner_text()
    assert command.startswith("attnctl explain 'd.html[2]' 'embeddings[")
    assert page.evaluate("location.hash").startswith("#T2")


def test_a_diff_shows_a_b_and_what_parts_them(show, tmp_path):
    a, b = attnctl.run("I love AI", heads=2), attnctl.run("I love AI", heads=2, causal=True)
    (tmp_path / "d.html").write_bytes(b"".join(diff_pieces([attnctl.diff(a, b)])))
    page = show(tmp_path / "d.html")
    assert page.locator("figcaption").all_inner_texts() == ["A", "B", "B − A"]
    go(page, "#T0H0/I/AI/attention_weights")
    name = "attention_weights"
    (one, other) = (each[name][0, 0, 2] for each in (a, b))
    delta = cell_of(page, f"{name}, head 0, B − A", 0, 2)
    assert delta.text_content() == f"{other - one:.2f}".replace("-", "−")
    go(page, "#T1H0/I/AI/masked_scores")
    page.get_by_role("button", name="A: I love AI").click()
    arrive(page, "#T0")
    assert page.locator("[aria-current=step]").inner_text().startswith("attention_weights")
    go(page, "#T1H0/I/AI/attention_weights")
    assert page.locator("figcaption").all_inner_texts() == ["A", "B", "B − A"]
    assert delta.text_content() == f"{other - one:.2f}".replace("-", "−")
    said = page.locator("#proof .beside").inner_text().replace("−", "-").split("\n")
    assert [word for word in said if word] == ["A", f"{one:.4f}", "B", "0", "B - A", f"{other - one:.4f}"]


# --- for everyone ---


def pages():
    """Pages of each kind."""
    right = attnctl.run("I love AI", heads=2, causal=True)
    report = attnctl.check(changed(right, "attention_weights", (1, 2, 0), 0.9))
    longer = attnctl.run(" ".join(f"w{number}" for number in range(60)), heads=2)
    return {
        "run": lambda path: write([right], path),
        "sentences": lambda path: write(attnctl.run_many(["I love", "AI loves me"], heads=2), path),
        "layers": lambda path: write(layers(), path),
        "cross": lambda path: write([attnctl.run("I love AI", context="cats sat", heads=2)], path),
        "long": lambda path: write([longer], path),
        "backward": lambda path: write([attnctl.run("I love AI", backward=True)], path),
        "chunks": lambda path: write([attnctl.run("I love AI and you", heads=2, chunks=2)], path),
        "check": lambda path: path.write_bytes(b"".join(check_pieces([report]))),
        "diff": lambda path: path.write_bytes(
            b"".join(diff_pieces([attnctl.diff(right, attnctl.run("I love AI", heads=2))]))
        ),
    }


KINDS = pages()


@pytest.mark.parametrize(("width", "height", "scheme"), [(390, 844, "light"), (1440, 900, "dark")])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing(show, tmp_path, kind, width, height, scheme):
    KINDS[kind](tmp_path / "x.html")
    page = show(tmp_path / "x.html", width=width, height=height, scheme=scheme)
    assert violations(page) == []
    page.get_by_role("button", name="scores", exact=True).click()
    assert violations(page) == []


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_screen_has_sentence_matrix_and_proof(show, tmp_path, kind, width, height):
    KINDS[kind](tmp_path / "x.html")
    page = show(tmp_path / "x.html", width=width, height=height)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if kind in {"check", "diff"} and width < 700:  # on a telephone a finding comes first
        assert page.locator("#finding").bounding_box()["y"] < height / 4
        return
    for part in ("#hero .word", "#matrix [role=grid]", "#proof .value"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] >= 0
        assert box["y"] < height - 40, part
    grid_box, value = (page.locator(each).first.bounding_box() for each in ("[role=grid]", "#proof .value"))
    beside = value["x"] >= grid_box["x"] + grid_box["width"]
    below = value["y"] >= grid_box["y"] + grid_box["height"]
    assert beside or below  # never over what is read


def box(page, selector):
    return page.locator(selector).first.bounding_box()


def test_on_a_telephone_the_heads_stand_above_the_matrix(show, tmp_path):
    page = show(write([attnctl.run("I love AI", heads=2)], tmp_path / "x.html"), width=390, height=844)
    heads, matrix = box(page, "#map"), box(page, "#matrix")
    assert heads["y"] + heads["height"] <= matrix["y"]


@pytest.mark.parametrize("width", [1440, 1024])
def test_what_a_small_matrix_leaves_free_is_the_proofs(show, tmp_path, width):
    page = show(write([attnctl.run("I love AI")], tmp_path / "x.html"), width=width, height=900)
    grid_box, value = box(page, "#matrix [role=grid]"), box(page, "#proof")
    assert grid_box["x"] < 60  # one head: no map, and no gap for one
    assert value["x"] - (grid_box["x"] + grid_box["width"]) < 240
    assert value["width"] > width * 0.45


def test_light_and_dark_are_followed_while_the_page_is_open(show, tmp_path):
    page = show(write([attnctl.run("I love AI")], tmp_path / "x.html"))
    cell = page.locator("tbody td").first
    colour = "(td) => getComputedStyle(td).backgroundColor"
    light = cell.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(100)
    assert cell.evaluate(colour) != light
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(100)
    assert cell.evaluate(colour) == light


def test_without_scripts_there_is_a_picture_and_text(chromium, tmp_path):
    path = write([attnctl.run("I love AI", heads=2)], tmp_path / "x.html")
    context = chromium.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("noscript img").bounding_box()["width"] > 100
    assert "attention_weights" in page.locator("noscript pre").inner_text()
    context.close()


def test_a_number_comes_about_step_by_step(show, tmp_path):
    """The products first, one after the other, and the number last: by a button or by the space bar."""
    page = show(write([attnctl.run("I love AI", heads=2)], tmp_path / "x.html"))
    go(page, "#H0/love/AI/scaled_scores")
    value = page.locator("#proof .value")
    page.get_by_role("button", name="Step by step").click()
    assert not value.is_visible()
    first = page.locator("#proof .now")
    assert first.count() == 1
    assert first.evaluate("(part) => part.matches('.bars li')")

    parts = page.locator("#proof .line, #proof .bars li").count()
    page.keyboard.press("Space")
    assert page.locator("#proof .later").count() == parts - 2
    for _ in range(parts - 1):
        page.keyboard.press("Space")
    assert value.is_visible()
    assert page.locator("#proof .later").count() == 0


def test_a_slider_goes_from_a_to_b(show, tmp_path):
    a, b = attnctl.run("I love AI"), attnctl.run("I love AI", causal=True)
    (tmp_path / "d.html").write_bytes(b"".join(diff_pieces([attnctl.diff(a, b)])))
    page = show(tmp_path / "d.html", fragment="#T0/I/AI/attention_weights")
    page.evaluate("""() => {
        const mix = document.getElementById("mix");
        mix.value = 50;
        mix.dispatchEvent(new Event("input"));
    }""")
    name = "attention_weights"
    half = (a[name][0, 0, 2] + b[name][0, 0, 2]) / 2
    cell = page.locator("#matrix tbody tr").first.locator("td").nth(2)
    assert cell.inner_text() == f"{half:.2f}"
    assert page.locator("#hero .word").nth(2).locator("small").inner_text() == f"{half:.2f}"
    page.get_by_role("button", name="A, B and B − A").click()
    assert page.locator("figcaption").all_inner_texts() == ["A", "B", "B − A"]


def test_a_telephone_shows_one_matrix_at_a_time(show, tmp_path):
    a, b = attnctl.run("I love AI"), attnctl.run("I love AI", causal=True)
    (tmp_path / "d.html").write_bytes(b"".join(diff_pieces([attnctl.diff(a, b)])))
    page = show(tmp_path / "d.html", width=390, height=844)
    grids = page.locator("#matrix [role=grid]")
    shown = [grids.get_attribute("aria-label")]
    page.get_by_role("button", name="A", exact=True).click()
    shown.append(grids.get_attribute("aria-label"))
    assert shown == ["attention_weights, head 0, B − A", "attention_weights, head 0"]


def test_emoji_are_joined_as_people_see_them(show, tmp_path):
    page = show(write([attnctl.run("a 👩\u200d💻 is\u202e here")], tmp_path / "x.html"))
    words = page.locator("#hero .word bdi").all_inner_texts()
    assert words == ["a", "👩\u200d💻", r"is\u202e", "here"]
    assert "👩\u200d💻" in page.locator("h1").inner_text()
    assert page.locator("#matrix tbody th").nth(1).inner_text() == "👩\u200d💻"


def test_a_checked_program_is_whole_on_a_telephone(show, tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text(
        f"{WITHOUT_SCALE}\nq, k, v = (np.random.RandomState(0).randn(4, 6) for _ in 'qkv')\n"
    )
    program.write_text(f"{program.read_text()}attention(q, k, v + {' + '.join(['0'] * 60)})\n")
    assert call("check", program, "-o", tmp_path / "c.html")[0] == 1
    page = show(tmp_path / "c.html", width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for line in page.locator(".lines code").all():
        frame = line.bounding_box()
        assert frame["x"] + frame["width"] <= 390
    assert violations(page) == []
    page.locator(".cards a").click()
    assert page.evaluate("location.hash") != ""


HAS_MARK = """() => {
    const canvas = document.querySelector(".picture canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 4)
        if (data[at] === 194 && data[at + 1] === 65 && data[at + 2] === 12) return true;
    return false;
}"""


def test_on_paper_a_large_matrix_has_its_mark_in_the_picture_itself(show, tmp_path):
    """A canvas above another hides it on paper: there is one, in the colours of a light page."""
    trace = attnctl.run(" ".join(f"w{number}" for number in range(30)))
    page = show(write([trace], tmp_path / "x.html"), scheme="dark")
    assert not page.evaluate(HAS_MARK)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    wait_until(page, HAS_MARK)
    assert not page.locator(".picture .marks").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("html").get_attribute("data-paper") is None
