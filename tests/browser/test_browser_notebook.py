"""A notebook run by nbclient shows a trace; its exported HTML works in the browser."""

import pytest

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
