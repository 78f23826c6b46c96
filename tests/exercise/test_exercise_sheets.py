"""Sheets that people fill in: in a browser, on paper, one for each student of a roster."""

import csv
import json
import re
from html import unescape
from pathlib import Path

import classroom
import numpy as np
import pytest

from attnctl.verbs.exercise import file_name, place_sheets, read_roster

BLANK = "scores,masked_scores,output"


@pytest.fixture
def make(call, tmp_path):
    """Make an exercise of the class's config in a folder of its own."""
    (tmp_path / "task.yaml").write_text(classroom.CONFIG)
    return lambda *more, blank=BLANK: call("exercise", "make", "task.yaml", "--blank", blank, *more)


def test_no_number_is_handed_out_in_more_decimals_than_asked(make):
    sheet = json.loads(make("--decimals", "2").out)
    given = [name for name in sheet["steps"] if name not in sheet["blank"]]
    assert {"embeddings", "W_Q", "Q", "V", "W_O"} <= set(given)
    for name in given:
        numbers = np.array(sheet["steps"][name]["data"], dtype=float)
        assert (numbers == np.round(numbers, 2)).all(), name


def test_what_is_given_follows_from_what_is_given(make):
    """Q is worked out from the rounded X and W_Q that stand beside it, not from the numbers behind them."""
    steps = json.loads(make("--decimals", "1").out)["steps"]
    x, w, q = (np.array(steps[name]["data"]) for name in ("X", "W_Q", "Q"))
    np.testing.assert_allclose(q, np.round(x @ w, 1), atol=1e-12)


def test_a_page_holds_the_exercise_and_a_box_for_each_blank(make, tmp_path):
    assert make("--seed-from", "Ann", "-o", "sheet.html", "-o", "sheet.json").code == 0
    page, sheet = (tmp_path / "sheet.html").read_text(), json.loads((tmp_path / "sheet.json").read_text())
    inside = re.search(r'<script type="application/json" id="dump">(.*?)</script>', page, re.DOTALL)
    assert json.loads(inside[1]) == sheet
    places = set(re.findall(r'data-step="(\w+)" data-at="([\d ]+)"', page))
    cells = {
        (name, " ".join(map(str, at)))
        for name in sheet["blank"]
        for at in np.ndindex(*sheet["steps"][name]["shape"])
    }
    assert places == cells
    assert len(cells) == 32 + 32 + 16


def test_a_page_runs_its_own_script_and_reads_nothing_else(make, tmp_path):
    make("-o", "sheet.html")
    page = (tmp_path / "sheet.html").read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)


@pytest.mark.parametrize("suffix", [".html", ".md", ".json"])
def test_no_handout_says_nan(make, tmp_path, suffix):
    make("-o", f"sheet{suffix}")
    assert "NaN" not in (tmp_path / f"sheet{suffix}").read_text().replace("Number.isNaN", "")


def test_paper_has_a_box_in_each_blank_and_the_given_numbers(make, tmp_path):
    make("--decimals", "2", "-o", "sheet.md")
    text = (tmp_path / "sheet.md").read_text()
    scores = text.partition("## scores: fill in")[2].partition("##")[0]
    assert scores.count("____") == 32
    assert not re.search(r"\d\.\d", scores)
    assert re.search(r"## W_Q\n\n`given`", text)
    assert "scaled_scores: `S′ = scores / √d_k`" in text
    assert "\n`X = embeddings`\n" in text
    assert "head_outputs: `Z = A V`" in text


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_sheet_that_is_shown_has_boxes_too(call, make, form):
    make("-o", "sheet.json")
    done = call("show", "sheet.json", "--step", "scores,Q", "--format", form)
    assert done.out.count("____") == 32
    assert "NaN" not in done.out
    assert "____ stands for what is still to be filled in" in done.err


def test_any_source_becomes_an_exercise(call, make):
    sentence = json.loads(call("exercise", "make", "the cat sat down", "--blank", "scores").out)
    assert sentence["tokens"] == ["the", "cat", "sat", "down"]
    by_option, by_name = (
        call("exercise", "make", *args, "--blank", "scores").out
        for args in (("-c", "example:i-love-ai"), ("example:i-love-ai",))
    )
    assert by_option == by_name
    call("run", "-c", "example:i-love-ai", "-o", "run.json")
    of_dump = json.loads(call("exercise", "make", "run.json", "--blank", "scores").out)
    assert of_dump["steps"]["Q"]["data"] == json.loads(by_name)["steps"]["Q"]["data"]


HOSTILE = "</script><img src=x onerror=alert(1)> | `x` <b>&amp;"


def test_a_name_is_only_ever_text(call, make, tmp_path):
    (tmp_path / "own.yaml").write_text(f"sentence: {json.dumps(HOSTILE)}\nd_model: 2\n")
    done = call("exercise", "make", "own.yaml", "--blank", "scores", "--seed-from", HOSTILE, "-o", "x.html")
    assert done.code == 0, done.err
    page = (tmp_path / "x.html").read_text()
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert HOSTILE in unescape(page)


def test_a_suffix_that_is_no_sheet_is_refused_before_anything_is_written(make, tmp_path):
    for path, said in [
        ("x.pdf", "write .html, and print that"),
        ("x.png", "expected one of .json, .html, .xlsx, .md"),
    ]:
        done = make("-o", "x.html", "-o", path)
        assert (done.code, done.out) == (2, "")
        assert said in done.err
        assert not (tmp_path / "x.html").exists()


def test_a_sheet_too_large_for_people_is_refused(make):
    done = make("--d-model", "128", "-o", "x.html")
    assert done.code == 2
    assert "a sheet for people holds 4,000; make the run smaller, or write .json" in done.err


# --- a class ---


def test_a_roster_gets_a_sheet_each_with_numbers_of_their_own(make, tmp_path):
    (tmp_path / "class.csv").write_text("Name,Email\nAnn Lee,1\n\nBen,2\n")
    assert make("--students", "class.csv", "-o", "sheets/", "-o", "json/{name}.json").code == 0
    assert {each.name for each in (tmp_path / "sheets").iterdir()} == {"Ann Lee.html", "Ben.html"}
    ann, ben = (json.loads((tmp_path / "json" / f"{name}.json").read_text()) for name in ("Ann Lee", "Ben"))
    assert (ann["student"], ben["student"]) == ("Ann Lee", "Ben")
    assert ann["steps"]["X"]["data"] != ben["steps"]["X"]["data"]
    assert ann == json.loads(make("--seed-from", "ann lee").out) | {"student": "Ann Lee"}


@pytest.mark.parametrize("suffix", ["json", "html", "md"])
def test_no_sheet_of_a_student_tells_the_seed_of_its_answers(suffix, make, tmp_path):
    assert make("--seed-from", "Ann", "-o", f"s.{suffix}").code == 0
    text = (tmp_path / f"s.{suffix}").read_text()
    assert "2102083630" not in text  # that of Ann
    assert '"seed"' not in text
    assert "drawn N(0, 1/d_model)" in text or suffix == "md"


def test_equal_names_are_told_apart_by_ids(call, make, tmp_path):
    (tmp_path / "r.csv").write_text("Name,ID\nAnn Lee,17\nAnn Lee,18\nBo,19\n")
    assert make("--students", "r.csv", "-o", "in/{name}.json", "-o", "all.md").code == 0
    files = sorted((tmp_path / "in").iterdir())
    assert [file.name for file in files] == ["Ann Lee 17.json", "Ann Lee 18.json", "Bo 19.json"]
    one, other, _ = (json.loads(file.read_text()) for file in files)
    assert (one["student"], one["student_id"], other["student_id"]) == ("Ann Lee", "17", "18")
    assert one["steps"]["X"]["data"] != other["steps"]["X"]["data"]
    assert "Name: **Ann Lee 17**" in (tmp_path / "all.md").read_text()
    files[1].unlink()
    graded = call(
        "exercise", "grade", "in", "--students", "r.csv", "-o", "g.json", "-o", "g.csv", "-o", "-"
    )
    assert graded.code == 1
    assert "Ann Lee 17" in graded.out
    assert "missing: Ann Lee 18." in graded.out
    hand_ins = json.loads((tmp_path / "g.json").read_text())["hand_ins"]
    who = [("Ann Lee", "17", []), ("Bo", "19", []), ("Ann Lee", "18", [])]
    assert [(sheet["name"], sheet["id"], sheet["notes"]) for sheet in hand_ins] == who
    rows = csv.DictReader((tmp_path / "g.csv").read_text().splitlines())
    assert [row["id"] for row in rows] == ["17", "19", "18"]


def test_one_page_for_a_class_is_for_paper(make, tmp_path):
    (tmp_path / "class.csv").write_text("Ann\nBen\n")
    assert make("--students", "class.csv", "-o", "all.html").code == 0
    page = (tmp_path / "all.html").read_text()
    assert page.count("<article>") == 2
    assert "<script" not in page
    assert "<input" not in page
    assert page.count('<td class="blank"></td>') == 2 * (32 + 32 + 16)


ROSTERS = [
    ("Ann\nBen\n", ["Ann", "Ben"]),
    ("\ufeffname\r\nAnn\r\n", ["Ann"]),
    ('Student,ID,Section\n"Lee, Ann",1,A\n', ["Lee, Ann"]),
    ("First Name,Last Name,SID,Email\nAnn,Lee,1,a@b\n", ["Ann Lee"]),
    ("Surname;First name;ID number\nLee;Ann;1\n", ["Ann Lee"]),
    ("email\tname\nx@y\tAnn\n", ["Ann"]),
    ("Ann  Lee \n \n", ["Ann Lee"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "names"), ROSTERS)
def test_rosters_as_schools_export_them(text, names, tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(text, newline="")
    assert [student.name for student in read_roster(str(path))] == names


REFUSED = [
    (b"", "r.csv: no student in it"),
    (b"id,email\n1,x@y\n", "r.csv:1: no column of names, only 'id' and 'email'"),
    (b"Ann\nBen\nann \n", "r.csv:3: ann, as in line 1, would have the same numbers"),
    (
        b"id,name\n1,Ann\n1,Bo\n",
        "r.csv:3: Bo 1, as in line 2, would have the same numbers; give each their",
    ),
    (b"Ann\n\xff\xfe\n", "r.csv:2: byte 0xff is not UTF-8"),
]


@pytest.mark.parametrize(("raw", "message"), REFUSED)
def test_rosters_that_are_refused(raw, message, make, tmp_path):
    (tmp_path / "r.csv").write_bytes(raw)
    done = make("--students", "r.csv", "-o", "sheets/")
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not (tmp_path / "sheets").exists()


TOGETHER = [
    (("--students", "r.csv"), "--students: where to?"),
    (("--students", "r.csv", "-o", "a.json"), "a.json: a .json holds one sheet"),
    (("--students", "r.csv", "--seed-from", "Ann", "-o", "s/"), "--seed-from: --students has the names"),
    (("--students", "r.csv", "--seed", "1", "-o", "s/"), "--seed: the name of a student gives it"),
    (("--students", "none.csv", "-o", "s/"), "none.csv: No such file"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), TOGETHER)
def test_what_does_not_go_with_a_roster(options, message, make, tmp_path):
    (tmp_path / "r.csv").write_text("Ann\n")
    done = make(*options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


NAMES = [
    ("Ann Lee", "Ann Lee"), ("../../etc/passwd", "_.._etc_passwd"), ("Zoë", "Zoë"), ("", "student"),
    ("...", "student"), ("CON", "CON_"), ("a/b\\c:d*", "a_b_c_d_"), ("x" * 200, "x" * 80), ("\x00\n", "__"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "stem"), NAMES)
def test_a_name_is_a_file_name_on_every_system(name, stem):
    assert file_name(name) == stem
    assert Path("s", f"{file_name(name)}.html").parent == Path("s")


def test_no_two_students_share_a_file():
    assert place_sheets("s/", ["a/b", "a:b", "A_B"]) == ["s/a_b.html", "s/a_b-2.html", "s/A_B-3.html"]
    assert place_sheets("s/{name}.json", ["Ann"]) == ["s/Ann.json"]


def text_of(part):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", part)).split())


def paper(call, *asked):
    """The classes and the rows of a sheet's page, each row the words of its stages and arrows."""
    assert call("exercise", "make", *asked, "-o", "paper.html").code == 0
    page = Path("paper.html").read_text(encoding="utf-8")
    (classes,) = re.findall(r'<div class="(steps[^"]*)">', page)
    rows = [
        [text_of(f"<{part}") for part in re.split(r'<div class="(?=stage|arrow)', row)[1:]]
        for row in page.partition("</article>")[0].split('<div class="row">')[1:]
    ]
    return classes.split(), rows


def test_a_sheet_begins_with_the_task_and_explains_its_words(call):
    paper(call, "I love AI", "--heads", "2", "--causal", "--blank", "scores")
    page = text_of(Path("paper.html").read_text(encoding="utf-8").partition("<main>")[2])
    order = [
        "Fill in every blank",
        "2 heads",
        "side by side",
        "d_model 4",
        "how many numbers stand for a token",
    ]
    places = [page.index(words) for words in order]
    assert places == sorted(places)
    assert "causal : a token sees itself and those before it" in page


def test_matrices_stand_on_one_page_joined_by_arrows(call):
    classes, rows = paper(call, "I love AI", "--blank", "scores,attention_weights")
    assert classes[:2] == ["steps", "fit"]
    first, *_ = rows
    opened = [words.split()[0] for words in first if words and words != "X = embeddings"]
    assert opened == ["embeddings", "W_Q", "Q", "scores"]
    printed = " ".join(" ".join(row) for row in rows)
    assert printed.index("scaled_scores: S′ = scores / √d_k") < printed.index(
        "attention_weights A = softmax"
    )


LAYOUTS = [
    (["I love AI"], True, False),
    (["I love AI", "--heads", "2"], True, True),
    (["a b c d e f g h i j", "--heads", "4", "--d-model", "16"], False, False),
]


@pytest.mark.parametrize(("asked", "fits", "beside"), LAYOUTS)
def test_heads_stand_where_matrices_may_be_larger(call, asked, fits, beside):
    classes, _ = paper(call, *asked, "--blank", "scores,scaled_scores,attention_weights,output")
    assert ("fit" in classes) == fits
    assert ("beside" in classes) == beside
