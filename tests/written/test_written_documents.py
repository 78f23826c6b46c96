"""Runs and explanations in LaTeX, Typst and Markdown: they compile, and tokens are words."""

import io
import os
import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.drawing.show import View
from attnctl.drawing.show.written.document import write_document
from attnctl.drawing.show.written.formulas import formula
from attnctl.drawing.show.written.languages import LANGUAGES, WIDEST, Matrix, set_width
from attnctl.store.source import read

VARIANTS = Path(__file__).parent.parent.parent / "samples" / "variants"

HOSTILE = '$x_1$ \\end{document} # 100% a&b {c} ~^ #let //x `y` "z" it\'s -- ?` <q> @r |s| *t* =u é 😀 שלום'
"""A sentence of what means something to one of the languages, and of what few fonts have."""

UNESCAPED = {
    "latex": r"(?<!\\)[$#%_^&](?!\d)|\\end\{document\}(?!\n*\Z)",
    "typst": r"(?<![\\\"\w])[$#@*`]|(?<!\\)//",
}


def written(trace, name, **view):
    stream = io.StringIO()
    write_document([trace], stream, LANGUAGES[name], View(**view))
    return stream.getvalue()


def tokens_in(text, name):
    """The labels of a document's matrices, as the language has them."""
    pattern = {"latex": r"\\text\{((?:[^{}]|\{[^{}]*\}|\\[{}])*)\}", "typst": r'"((?:[^"\\]|\\.)*)"'}
    return re.findall(pattern[name], text)


# --- formulas ---


@pytest.mark.parametrize(
    ("text", "latex", "typst"),
    [
        ("Q Kᵀ", r"Q \, K^{\top}", "Q thin K^(top)"),
        ("scores / √d_k", r"\frac{\mathrm{scores}}{\sqrt{d_{k}}}", 'frac("scores", sqrt(d_(k)))'),
        ("Q_rotated K_sharedᵀ", None, 'Q_("rotated") thin K_("shared")^(top)'),
        ("S where allowed, else −∞", r"S \text{ where allowed, else } - \infty", None),
        ("d_Q W_Qᵀ", r"d Q \, W_{Q}^{\top}", "d Q thin W_(Q)^(top)"),
        ("A ∘ (d_scores − delta)", r"A \circ ( d \, \mathrm{scores} - \delta )", None),
        ("Σ over d_v of Z", r"\sum_{d_{v}}  Z", "sum_(d_(v))  Z"),
        ("Σ over heads of d_K W_Kᵀ", r"\sum_{\text{heads}}  d K \, W_{K}^{\top}", None),
        ("3 · tanh(S / 3)", r"3 \cdot \tanh ( \frac{S}{3} )", r"3 dot tanh \( frac(S, 3) \)"),
        ("K turned by pos · θ^(−2i/d)", None, 'K " turned by pos " dot theta ^(- 2 i \\/ d)'),
    ],
)
def test_a_formula_is_written_as_mathematics(text, latex, typst):
    if latex:
        assert formula(text, LANGUAGES["latex"]) == latex
    if typst:
        assert formula(text, LANGUAGES["typst"]) == typst


def formulas_of_all_kinds():
    found = set()
    for path in sorted(VARIANTS.glob("*.json")):
        found |= {step.formula for trace in read(path) for step in trace.steps.values()}
    trace = attnctl.run("a b", heads=4, kv_heads=2, d_model=8, backward=True, causal=True, positions="rope")
    return sorted(found | {step.formula for step in trace.steps.values()})


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_formula_keeps_each_of_its_words_and_names(name):
    texts = formulas_of_all_kinds()
    assert len(texts) > 60
    for text in texts:
        plain = re.sub(r"[^A-Za-z0-9]", "", formula(text, LANGUAGES[name]))
        for word in re.findall(r"[A-Za-z]{4,}", re.sub(r"[a-z]+_|Σ over", "_", text)):
            assert word in plain, text


# --- documents ---


def test_what_a_document_of_latex_says():
    text = written(
        attnctl.run("I love", d_model=2, causal=True), "latex", steps=("masked_scores",), precision=2
    )
    assert text.startswith("\\documentclass{article}\n\\usepackage{amsmath}\n")
    assert "\\[ S \\text{ where allowed, else } - \\infty \\]" in text
    assert re.search(r"\\text\{I\} & (\\phantom\{-\})?-?\d\.\d\d & (\\phantom\{-\})?-\\infty \\cr", text)
    assert text.endswith("\\end{document}\n")


@pytest.mark.parametrize("name", LANGUAGES)
def test_digits_steps_and_heads_are_those_that_are_asked_for(name):
    trace = attnctl.run("I love AI", heads=2)
    text = written(trace, name, steps=("attention_weights",), heads=(1,), precision=3)
    for value in trace["attention_weights"][1].ravel():
        assert f"{value:.3f}" in text
    assert f"{trace['attention_weights'][0, 0, 0]:.3f}" not in text
    assert "head 1" in text
    assert "head 0" not in text


def test_small_and_large_numbers_have_powers_of_ten():
    trace = attnctl.attend({"Q": np.full((1, 2), 1.5e-9), "K": np.ones((1, 2)), "V": np.ones((1, 2))})
    assert "1.5000 \\cdot 10^{-9}" in written(trace, "latex", steps=("Q",))
    assert "1.5000 dot 10^(-9)" in written(trace, "typst", steps=("Q",))


@pytest.mark.parametrize("name", UNESCAPED)
def test_no_token_is_a_command(name):
    tokens = tokens_in(written(attnctl.run(HOSTILE), name, steps=("attention_weights",)), name)
    assert len(tokens) > 2 * len(HOSTILE.split())
    for token in tokens:
        assert not re.search(UNESCAPED[name], token.replace("\\\\", "")) or name == "typst", token
    if name == "latex":
        assert "\\textbackslash{}end\\{document\\}" in tokens
        assert "\\$x\\_1\\$" in tokens
        assert "\\unicode{1F600}{😀}" in tokens
        assert "\\'{e}" in tokens
        assert "-{}-" in tokens
    else:
        assert "\\\\end{document}" in tokens
        assert '\\"z\\"' in tokens


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_wide_and_long_matrices_are_set_in_parts_that_hold_every_cell_once(language):
    cells = [[f"{row}.{column}" for column in range(30)] for row in range(80)]
    matrix = Matrix("", [f"row{row}" for row in range(80)], [f"c{column}" for column in range(30)], cells)
    parts = list(matrix.parts(language))
    assert sorted(cell for part in parts for row in part.cells for cell in row) == sorted(chain(*cells))
    assert max(part.width(language) for part in parts) <= WIDEST
    assert len(parts) > 3
    for part in parts:
        for row, label in zip(part.cells, part.rows, strict=True):
            assert [cell.split(".")[0] for cell in row] == [label[3:]] * len(part.columns)


def test_more_numbers_than_anyone_reads_are_refused(call):
    done = call("run", "a b c d e f g h", "--d-model", "256", "--as", "latex")
    assert done.code == 2
    assert "numbers: a document holds 20,000; choose some with --step and --head" in done.err


# --- the command line ---


def test_as_is_on_stdout_or_in_a_file_by_its_suffix(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = call("run", "I love AI", "--as", "typst", "--brief").out
    assert printed.startswith("= I love AI\n")
    assert call("run", "I love AI", "--as", "typst", "--brief", "-o", "a.typ").out == ""
    assert call("run", "I love AI", "--brief", "-o", "b.typ").out == ""
    assert Path("a.typ").read_text() == Path("b.typ").read_text() == printed
    call("run", "I love AI", "--brief", "--as", "markdown", "-o", "c.md", "-o", "c.json")
    assert "```math" in Path("c.md").read_text()
    assert attnctl.load("c.json").sentence == "I love AI"
    call("run", "I love AI", "--brief", "-o", "d.md")
    assert "```math" not in Path("d.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--as", "latex", "-o", "a.json"], "--as: no FILE of -o has its suffix; name one, or none"),
        (["--as", "latex", "--json"], "--as: that is another format; leave one of them out"),
        (["--as", "latex", "--heat"], "--heat: only tables have that"),
        (["--as", "latex", "--cost"], "--cost: means nothing with --as; leave it out"),
        (["--as", "word"], "--as: word is not one of the choices"),
        (["--log", "-o", "a.tex"], "--log: only pictures and heat maps have that"),
    ],
)
def test_what_does_not_go_with_as_is_refused(call, words, message):
    done = call("run", "I love AI", *words)
    assert done.code == 2
    assert message in done.err
    assert not Path("a.tex").exists()


@pytest.mark.parametrize("name", LANGUAGES)
def test_explain_writes_each_line_of_its_arithmetic(call, name):
    done = call("explain", "I love AI", "A[0,love,AI]", "--depth", "3", "--as", name, "--precision", "3")
    trace = attnctl.run("I love AI")
    for step in ("attention_weights", "scaled_scores", "scores"):
        assert f"{trace[step][0, 1, 2]:.3f}" in done.out
    assert done.out.count("love") > 6
    assert f"{trace['Q'][0, 1, 0]:.3f}" in done.out


def test_explain_in_a_file_has_the_digits_that_are_asked_for(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = attnctl.run("I love AI")["scores"][0, 1, 2]
    call("explain", "I love AI", "scores[0,love,AI]", "--as", "latex", "--precision", "2", "-o", "e.tex")
    assert f"= {value:.2f}\n" in Path("e.tex").read_text()
    call("explain", "I love AI", "scores[0,love,AI]", "-o", "f.tex")
    assert f"= {value:.4f}\n" in Path("f.tex").read_text()


def test_a_long_sum_of_latex_ends_its_lines():
    long = attnctl.run("I love AI", d_model=64)
    from attnctl.record.cells import parse_address
    from attnctl.verbs.explain import Explainer
    from attnctl.verbs.explain.written import explanation_text

    question = (Explainer(long), parse_address("scores[0,love,AI]"), 1)
    text = explanation_text([question], "latex", full=True)
    lines = [line for line in text.splitlines() if "&" in line]
    assert len(lines) > 20
    assert max(map(set_width, lines)) < 1.6 * WIDEST


# --- compiled ---


def samples():
    for path in sorted(VARIANTS.glob("*.json")):
        yield path.stem, read(path)[0]
    yield "hostile", attnctl.run(HOSTILE, heads=2)
    yield (
        "backward",
        attnctl.run("I love AI", heads=4, kv_heads=2, d_model=8, positions="rope", backward=True),
    )
    yield "long", attnctl.run(" ".join(f"w{n}" for n in range(50)))


@pytest.mark.slow
def test_latex_compiles_with_a_bare_article(tmp_path):
    if shutil.which("pdflatex") is None:
        if os.environ.get("ATTNCTL_TESTS_LATEX") == "required":
            pytest.fail("pdflatex is not there")
        pytest.skip("pdflatex is not there")
    for name, trace in samples():
        (tmp_path / f"{name}.tex").write_text(written(trace, "latex"))
        words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False, timeout=300)
        log = done.stdout.decode(errors="replace")
        assert done.returncode == 0, (name, log[-2000:])
        wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)]
        assert max(wide, default=0) < (20 if name != "hostile" else 80), name


@pytest.mark.slow
def test_typst_compiles():
    typst = pytest.importorskip("typst")
    for _, trace in samples():
        assert typst.compile(written(trace, "typst").encode()).startswith(b"%PDF")


@pytest.mark.parametrize("words", [("run", "I love AI"), ("explain", "I love AI", "A[0,love,AI]")])
def test_markdown_begins_with_its_heading(call, words):
    done = call(*words, "--as", "markdown")
    assert done.out.startswith("#")
    assert "\\documentclass" not in done.out
    assert "\\end{document}" not in done.out
