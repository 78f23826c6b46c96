"""A notebook run by nbclient shows a trace; its exported HTML works in the browser."""

import pytest

import attnctl

pytestmark = pytest.mark.slow

CELLS = (
    "import attnctl\ntrace = attnctl.run('I love AI', heads=2, causal=True)\ntrace",
    "attnctl.check(trace)",
    "attnctl.diff(trace, attnctl.run('I love AI', heads=2))",
)


def test_an_exported_notebook_shows_pages(show, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    export = pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    client.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    kinds = [set(cell.outputs[0].data) for cell in notebook.cells]
    assert kinds == [{"text/html", "text/plain"}] * 3
    html, _ = export.HTMLExporter(template_name="basic").from_notebook_node(notebook)
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{html}", encoding="utf-8")
    page = show(path, wait="iframe")
    frames = page.locator("iframe")
    assert frames.count() == 3
    for number in range(3):
        frame = frames.nth(number).content_frame
        frame.locator("html[data-ready=yes]").wait_for()
        frame.get_by_role("button", name="scores", exact=True).click()
        frame.locator("#matrix tbody td").first.click()
        said = frame.locator("#proof .equation.symbols").text_content()
        assert said.startswith("scores[")
        assert " = Q[" in said


def test_a_frame_is_as_dark_as_its_notebook(show, tmp_path):
    """Whatever the system is: the notebook says so, and says so again when it changes."""
    path = tmp_path / "notebook.html"
    frame = attnctl.run("I love AI", heads=2)._repr_html_()
    path.write_text(f"<!doctype html><meta charset=utf-8><body style='background: #111'>{frame}", "utf-8")
    page = show(path, wait="iframe", scheme="light")
    inside = page.frame_locator("iframe")
    inside.locator("html[data-ready=yes][data-theme=dark]").wait_for()
    assert (
        inside.locator("body").evaluate("(b) => getComputedStyle(b).backgroundColor") == "rgb(20, 24, 29)"
    )
    page.evaluate("document.body.style.background = '#fff'")
    inside.locator("html[data-theme=light]").wait_for()
    first = page.locator("iframe").bounding_box()
    for part in ("#hero .word", "#matrix [role=grid]", "#proof .value"):
        box = inside.locator(part).first.bounding_box()
        assert box["y"] + 40 < first["y"] + first["height"], part
