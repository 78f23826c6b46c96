"""Workbooks: each number a live formula, whose value a spreadsheet of its own finds to be the run's."""

import io
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.drawing.show.workbook.book import ABOUT, range_name, write_xlsx
from attnctl.drawing.show.workbook.layout import StepSheet, letters, sheet_names
from attnctl.inputs.config.load import load
from attnctl.store.source import read

openpyxl = pytest.importorskip("openpyxl")

SAMPLES = Path(__file__).parent.parent.parent / "samples"
CONFIGS = SAMPLES.parent / "configs"
FEW = 20_000
"""Numbers of a sample that a spreadsheet works out in a second."""


def workbook(trace):
    stream = io.BytesIO()
    write_xlsx(trace, stream)
    return openpyxl.load_workbook(stream)


def places(trace):
    """Every number of a trace: its step, its cell, and its sheet and place in the workbook."""
    names = sheet_names(trace, taken=[ABOUT])
    for step, array in trace.items():
        sheet = StepSheet(names[step], array.shape)
        for cell in np.ndindex(array.shape):
            yield step, cell, sheet.name, sheet.position(cell)


# --- what is written ---


def test_what_a_cell_says():
    """Typed in: two tokens, one head of two; the first row of numbers is row 5, the first column B."""
    trace = attnctl.run("I love", d_model=2, heads=1, causal=True)
    book = workbook(trace)
    assert book.sheetnames[:3] == [ABOUT, "embeddings", "X"]
    assert book["X"]["B5"].value == "='embeddings'!B5"
    assert book["Q"]["C6"].value == "=SUM(MMULT('X'!B6:C6,'W_Q'!C5:C6))"
    assert book["scores"]["C5"].value == "=SUMPRODUCT(('Q'!B5:C5*'K'!B6:C6))"
    assert book["masked_scores"]["C5"].value == -1e300
    assert book["masked_scores"]["C5"].number_format.startswith('[<-1E+299]"−∞"')
    assert book["masked_scores"]["B5"].value == "='scaled_scores'!B5"
    assert isinstance(book["embeddings"]["B5"].value, float)
    assert book.defined_names["scores"].attr_text == "'scores'!$B$5:$C$6"


def test_tokens_are_texts_whatever_they_say():
    book = workbook(attnctl.run("=1+1 I \x07"))
    heads = [book["scores"].cell(4, column) for column in (2, 3, 4)]
    assert [cell.data_type for cell in heads] == ["s"] * 3
    assert heads[0].value == "=1+1"
    assert "\x07" not in heads[2].value
    assert book[ABOUT]["A1"].data_type == "s"


def test_each_head_stands_below_the_one_before():
    book = workbook(attnctl.run("I love AI", heads=2))
    assert [book["scores"].cell(row, 1).value for row in range(4, 13)] == [
        *("head 0", "I", "love", "AI", None),
        *("head 1", "I", "love", "AI"),
    ]
    assert {"scores_0", "scores_1"} <= set(book.defined_names)


def test_weights_are_coloured_and_numbers_that_are_given_are_yellow():
    book = workbook(attnctl.run("I love AI"))
    assert [str(each.sqref) for each in book["attention_weights"].conditional_formatting] == ["B5:D7"]
    assert book["W_Q"]["B5"].fill.start_color.rgb == "00FFF7D6"
    assert book["scores"]["B5"].fill.fill_type is None


def test_edited_numbers_are_written_down():
    trace = attnctl.run("I love AI", edits=["scores=1"])
    book = workbook(trace)
    assert book["scores"]["B5"].value == 1
    assert str(book["scaled_scores"]["B5"].value).startswith("=")


def test_a_run_too_large_is_refused_before_anything_is_written(call, tmp_path):
    done = call("run", "a b c d e f g h", "--d-model", "256", "-o", "large.xlsx")
    assert done.code == 2
    assert "numbers: a workbook holds 200,000" in done.err
    assert not Path("large.xlsx").exists()


@pytest.mark.parametrize(
    ("column", "name"), [(1, "A"), (26, "Z"), (27, "AA"), (52, "AZ"), (703, "AAA"), (16384, "XFD")]
)
def test_names_of_columns(column, name):
    assert letters(column) == name


def test_names_of_sheets_and_ranges_are_such_as_spreadsheets_take():
    long = "a" * 40
    assert sheet_names(["X", "x", long, long + "b"]) == {
        "X": "X",
        "x": "x_2",
        long: "a" * 31,
        long + "b": "a" * 29 + "_2",
    }
    assert [range_name(name) for name in ("Q", "Q1", "R", "c", "scores_0")] == [
        *("Q", "Q1_", "R_", "c_"),
        "scores_0",
    ]


# --- what a spreadsheet makes of it ---


@pytest.fixture(scope="module")
def spreadsheet(tmp_path_factory):
    """Files worked out by LibreOffice, all of them in one go: their workbooks, as values."""
    if shutil.which("soffice") is None:
        if os.environ.get("ATTNCTL_TESTS_SPREADSHEET") == "required":
            pytest.fail("soffice is not there")
        pytest.skip("soffice is not there")
    home = tmp_path_factory.mktemp("home")

    def work_out(paths):
        out = tmp_path_factory.mktemp("values")
        words = ["soffice", "--headless", "--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", out]
        environment = {**os.environ, "HOME": str(home)}
        subprocess.run([*words, *paths], check=True, capture_output=True, env=environment, timeout=600)
        return [openpyxl.load_workbook(out / path.name, data_only=True) for path in paths]

    return work_out


def shown_traces():
    for path in sorted((SAMPLES / "variants").glob("*.json")):
        yield path.stem, read(path)[0]
    for path in sorted(CONFIGS.glob("*.yaml")):
        settings = load(path)
        yield path.stem, attnctl.run(settings=settings)
        yield f"{path.stem}-backward", attnctl.run(settings=settings, backward=True)


@pytest.mark.slow
def test_every_number_of_the_samples_is_worked_out_again(spreadsheet, tmp_path):
    """Of 45 runs with rules, positions, groups, caches, gates and gradients."""
    traces = {name: trace for name, trace in shown_traces() if sum(a.size for a in trace.values()) < FEW}
    paths = [tmp_path / f"{name}.xlsx" for name in traces]
    for path, trace in zip(paths, traces.values(), strict=True):
        with path.open("wb") as stream:
            write_xlsx(trace, stream)
    formulas = 0
    for path, trace, values in zip(paths, traces.values(), spreadsheet(paths), strict=True):
        written = openpyxl.load_workbook(path)
        # A spreadsheet counts in float64; what the run rounded is near, by three digits.
        tolerance = 5e-3 if trace.config.get("dtype") == "float16" else 1e-10
        for step, cell, sheet, place in places(trace):
            value = values[sheet].cell(*place).value
            expected = float(trace[step][cell])
            where = f"{path.name} {step}{list(cell)}"
            formulas += str(written[sheet].cell(*place).value).startswith("=")
            if expected == -np.inf:
                assert value < -1e299, where
            elif np.isnan(expected):
                assert value in {"", None}, where
            else:
                assert abs(value - expected) < tolerance, where
    assert len(traces) >= 40
    assert formulas > 15_000


@pytest.mark.slow
def test_a_number_that_is_changed_changes_what_follows_as_an_edit_does(spreadsheet, tmp_path):
    trace = attnctl.run("I love AI", heads=2)
    book = workbook(trace)
    book["embeddings"]["B5"].value = 2.5
    path = tmp_path / "changed.xlsx"
    book.save(path)
    (values,) = spreadsheet([path])
    edited = attnctl.run("I love AI", heads=2, edits=["embeddings[I,0]=2.5"])
    for step, cell, sheet, place in places(edited):
        assert abs(values[sheet].cell(*place).value - float(edited[step][cell])) < 1e-12, step


@pytest.mark.slow
def test_what_is_filled_in_right_turns_green(spreadsheet, call, tmp_path):
    words = ("I love AI", "--causal", "--blank", "scores,masked_scores", "--decimals", "2")
    assert call("exercise", "make", *words, "-o", "sheet.xlsx").code == 0
    book = openpyxl.load_workbook("sheet.xlsx")
    hidden = [sheet.title for sheet in book if sheet.sheet_state == "hidden"]
    assert hidden == [
        *("answer scores", "answer scaled_scores", "answer masked_scores"),
        *("mark scores", "mark masked_scores"),
    ]
    assert all(book["scores"].cell(row, column).value is None for row in (5, 6, 7) for column in (2, 3, 4))

    (answers,) = spreadsheet([Path("sheet.xlsx")])
    for step in ("scores", "masked_scores"):
        for (cell,) in zip(answers[f"answer {step}"]["B5:D7"], strict=True):
            for each in cell:
                value = "-inf" if each.value < -1e299 else round(each.value, 2)
                book[step][each.coordinate].value = value
    book["scores"]["B5"].value += 0.01  # the last decimal may be off by one
    book["scores"]["B6"].value += 0.03
    book["scores"]["B7"].value = None
    book.save("filled.xlsx")
    (marked,) = spreadsheet([Path("filled.xlsx")])
    told = {row[0].value: row[4].value for row in marked[ABOUT].iter_rows(max_col=5)}
    assert told["scores"] == "7 of 9 right"
    assert told["masked_scores"] == "9 of 9 right"
    assert [marked["mark scores"][name].value for name in ("B5", "B6", "B7")] == [1, 0, 0]
    rules = [rule.formula for each in book["scores"].conditional_formatting for rule in each.rules]
    assert rules == [["'mark scores'!B5=1"], ["AND(B5<>\"\",'mark scores'!B5=0)"]]
