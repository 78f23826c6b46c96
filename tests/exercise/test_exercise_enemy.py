"""What is blank is the teacher's word: sheets as a person makes them who would rather not do the work."""

import copy
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import classroom
import numpy as np
import pytest
from command_line import call

from attnctl.verbs.exercise import own_or_new_key
from attnctl.verbs.exercise.make import KEY

CONFIG = classroom.CONFIG + "seed: 5\n"
EASIER = "scores"
"""What the enemy would rather be asked for."""


def made(config, blank, *more, home=None):
    """A sheet, sealed with the key of the teacher or of somebody else."""
    with pytest.MonkeyPatch.context() as patch:
        if home:
            patch.setenv("XDG_DATA_HOME", str(home))
        code, out, err = call("exercise", "make", str(config), "--blank", blank, *more)
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    (folder / "task.yaml").write_text(CONFIG)
    return folder / "task.yaml"


@pytest.fixture(scope="module")
def ann(task):
    return made(task, classroom.BLANK, "--seed-from", "Ann")


def graded(sheet, task, *options):
    path = task.parent / "hand-in.json"
    path.write_text(json.dumps(sheet))
    code, out, err = call("exercise", "grade", str(path), "--json", *options)
    (hand_in,) = json.loads(out)["hand_ins"]
    assert (code == 0) == hand_in["right"], err
    return hand_in


WAYS = {"seal": "", "config": "-c {task}", "all that was asked": f"-c {{task}} --blank {classroom.BLANK}"}
"""How a teacher grades."""


def ways(task):
    return [way.format(task=task).split() for way in WAYS.values()]


# --- the enemy ---


def without(sheet, *keys):
    return {name: value for name, value in sheet.items() if name not in keys}


def with_numbers(sheet, value, names=None):
    """The sheet with one number everywhere, or in some steps."""
    for name in names or sheet["steps"]:
        step = sheet["steps"][name]
        step["data"] = np.full(step["shape"], value).tolist()
    return sheet


def zeros(sheet, **_):
    return with_numbers(without(sheet, "blank", "handed_out", "seal"), 0)


def zeros_beside_what_is_given(sheet, **_):
    return with_numbers(sheet, 0, classroom.BLANK.split(","))


def zeros_to_no_decimals(sheet, **_):
    return with_numbers(sheet, 0, classroom.BLANK.split(",")) | {"decimals": 0}


def infinity(sheet, **_):
    return with_numbers(sheet, "-Infinity", classroom.BLANK.split(","))


def only_what_is_easy(sheet, **_):
    answers = classroom.solved(sheet)
    kept = without(sheet, "blank", "seal")
    for name in set(answers) - {EASIER}:
        del kept["steps"][name]
    return classroom.fill(kept, answers, {EASIER})


def fewer_blanks(sheet, **_):
    return classroom.fill(sheet, classroom.solved(sheet), {EASIER}) | {"blank": [EASIER]}


def an_easier_sheet(sheet, task, home):
    own = made(task, EASIER, "--seed-from", "Ann", home=home)
    own["steps"][EASIER]["data"] = classroom.written(classroom.solved_scores(own))
    return own


def easier_numbers(sheet, task, home):
    easy = Path(home) / "easy.yaml"
    easy.parent.mkdir(exist_ok=True)
    easy.write_text(CONFIG + "weights: {W: identity, W_O: identity}\n")
    own = made(easy, classroom.BLANK, "--seed", "1", home=home) | {"student": "Ann"}
    return classroom.fill(own, classroom.solved(own))


def given_zeros(sheet, **_):
    with_numbers(sheet, 0, ["X", "W_Q", "W_K", "W_V", "W_O", "Q", "K", "V", "embeddings"])
    return classroom.fill(sheet, classroom.solved(sheet))


def edited(sheet, **_):
    steps = classroom.BLANK.split(",")
    edits = [{"step": name, "edit": f"{name}=0"} for name in steps]
    return with_numbers(sheet, 0, steps) | {"edits": edits}


def rows_that_see_nothing(sheet, **_):
    with_numbers(sheet, "NaN", classroom.BLANK.split(","))
    return sheet | {"empty_rows": [[head, query] for head in range(2) for query in range(4)]}


def coarse(sheet, **_):
    """Numbers that are right to a percent, in a type that has no more."""
    answers = {name: array * 1.004 for name, array in classroom.solved(sheet).items()}
    for name in classroom.BLANK.split(","):
        sheet["steps"][name]["dtype"] = "float16"
    return classroom.fill(sheet, answers) | {"config": sheet["config"] | {"dtype": "float16"}}


def one_decimal(sheet, **_):
    answers = {name: np.round(array, 1) for name, array in classroom.solved(sheet).items()}
    return classroom.fill(sheet, answers) | {"decimals": 1}


def steps_of_nothing(sheet, **_):
    """Each blank step a copy of X, as the sheet has it."""
    for name in classroom.BLANK.split(","):
        sheet["steps"][name] = {**sheet["steps"]["Q"], "inputs": ["Q"], "formula": "Q"}
    return sheet


def a_seal_of_anything(sheet, **_):
    return fewer_blanks(sheet) | {"seal": ["0" * 32]}


ATTACKS = [
    zeros, zeros_beside_what_is_given, zeros_to_no_decimals, infinity, only_what_is_easy, fewer_blanks,
    an_easier_sheet, easier_numbers, given_zeros, edited, rows_that_see_nothing, coarse, one_decimal,
    steps_of_nothing, a_seal_of_anything,
]  # fmt: skip


SLOW = {infinity}
"""Their numbers are held to all pairs of mistakes."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    "attack",
    [pytest.param(each, marks=pytest.mark.slow) if each in SLOW else each for each in ATTACKS],
    ids=lambda attack: attack.__name__,
)
def test_it_does_not_pass(attack, way, ann, task, tmp_path):
    sheet = attack(copy.deepcopy(ann), task=task, home=tmp_path / "enemy")
    hand_in = graded(sheet, task, *way.format(task=task).split())
    assert not hand_in["right"]
    wrong = [step for step in hand_in["steps"].values() if step["verdict"] != "right"]
    assert wrong or hand_in["notes"]


def test_work_that_was_done_passes_every_way(ann, task):
    sheet = classroom.fill(copy.deepcopy(ann), classroom.solved(ann))
    told = [graded(sheet, task, *way) for way in ways(task)]
    assert [each["right"] for each in told] == [True] * 3
    assert [each["vouched_by"] for each in told] == ["seal", "seal", "config"]


def test_without_a_seal_the_config_and_the_blanks_say_what_was_to_be_done(ann, task):
    sheet = without(classroom.fill(copy.deepcopy(ann), classroom.solved(ann)), "seal")
    told = [graded(sheet, task, *way) for way in ways(task)]
    assert [each["right"] for each in told] == [False, False, True]
    assert [each["vouched_by"] for each in told] == ["itself", "itself", "config"]
    assert told[0]["notes"] == ["the sheet vouches for itself, as it has no seal"]
    assert {step["verdict"] for step in told[0]["steps"].values()} == {"right"}


def test_a_sheet_of_another_exercise_shows_though_it_was_sealed(ann, task):
    """One that was handed out last week, and is easier."""
    files = []
    for name, blank in [("Ann", classroom.BLANK), ("Ben", classroom.BLANK), ("Eve", EASIER)]:
        sheet = made(task, blank, "--seed-from", name)
        answers = {EASIER: classroom.solved_scores(sheet)} if name == "Eve" else classroom.solved(sheet)
        files.append(task.parent / f"{name}.json")
        files[-1].write_text(json.dumps(classroom.fill(sheet, answers)))
    code, out, _ = call("exercise", "grade", *map(str, files), "--json")
    told = {each["name"]: each["asides"] for each in json.loads(out)["hand_ins"]}
    assert told == {"Ann": [], "Ben": [], "Eve": ["another exercise than most of these"]}
    assert code == 0
    assert call("exercise", "grade", *map(str, files), *ways(task)[2])[0] == 1


def test_where_there_is_no_key_the_report_says_so(ann, task, tmp_path, monkeypatch):
    sheet = classroom.fill(copy.deepcopy(ann), classroom.solved(ann))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (note,) = graded(sheet, task)["notes"]
    assert note == "the sheet vouches for itself, as there is no key here to tell its seal"
    (task.parent / "Ann.json").write_text(json.dumps(sheet))
    said = call("exercise", "grade", str(task.parent / "Ann.json"))[1]
    assert note in said
    assert "-c CONFIG --blank STEP,…" in said
    assert not list(tmp_path.iterdir())  # to grade makes no key


def test_other_decimals_than_were_asked_for_are_said(ann, task):
    sheet = classroom.fill(copy.deepcopy(ann), classroom.solved(ann)) | {"decimals": 2}
    hand_in = graded(sheet, task, *ways(task)[2])
    assert hand_in["notes"] == ["it says 2 decimals, and is held to 4 (--decimals)"]


def test_blanks_without_a_config_are_refused(tmp_path):
    code, out, err = call("exercise", "grade", "x.json", "--blank", "scores")
    assert (code, out) == (2, "")
    assert "--blank: the steps of which run? add -c CONFIG" in err


VARIANTS = [
    "dtype: float32", "dtype: float16", "context: le chat noir", "rules: [{window: [1, 0]}]", "kv_heads: 1",
    "positions: rope", "heads: 4", "lowercase: true\nseed: 3",
]  # fmt: skip


@pytest.mark.parametrize("more", VARIANTS)
def test_every_kind_of_run_keeps_its_seal(more, tmp_path):
    """Also where another program has read the sheet and written it again."""
    own = {line.split(":")[0]: line for line in [*CONFIG.splitlines(), *more.splitlines()]}
    own.pop("lowercase", None)
    (tmp_path / "task.yaml").write_text("\n".join(own.values()))
    sheet = made(tmp_path / "task.yaml", "attention_weights", "--seed-from", "Zoë “=1” \u202e")
    assert graded(json.loads(json.dumps(sheet, indent=2)), tmp_path / "task.yaml")["vouched_by"] == "seal"
    changed = copy.deepcopy(sheet)
    changed["sentence"] = "a cat sat down"
    assert graded(changed, tmp_path / "task.yaml")["vouched_by"] == "itself"


# --- the key ---


def test_the_key_is_for_its_owner_alone_and_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: own_or_new_key(), range(32)))
    assert keys == {own_or_new_key()}
    (path,) = (tmp_path / "attnctl").iterdir()
    assert path.name == KEY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_sheet_holds_the_key(ann):
    assert own_or_new_key().hex() not in json.dumps(ann)


@pytest.mark.parametrize("broken", ["", "xyz", "00", "é" * 40, "0" * 66])
def test_a_broken_key_is_said(broken, task, ann, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "attnctl").mkdir()
    (tmp_path / "attnctl" / KEY).write_text(broken)
    code, out, err = call("exercise", "make", str(task), "--blank", "scores")
    assert code == 0
    assert "seal" not in json.loads(out)
    assert f"{KEY}: no key; remove it" in err
    (task.parent / "x.json").write_text(json.dumps(ann))
    code, out, err = call("exercise", "grade", str(task.parent / "x.json"))
    assert (code, out) == (2, "")
    assert f"{KEY}: no key; remove it" in err


def test_a_data_folder_that_is_a_file_leaves_the_sheet_without_a_seal(task, tmp_path, monkeypatch):
    (tmp_path / "attnctl").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    code, out, err = call("exercise", "make", str(task), "--blank", "scores")
    assert code == 0
    assert "seal" not in json.loads(out)
    assert "the sheet has no seal" in err


def test_the_key_is_not_written_over(task, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    key = own_or_new_key()
    path = tmp_path / "attnctl" / KEY
    code, _, _ = call("exercise", "make", str(task), "--blank", "scores", "-o", str(path))
    assert code == 2
    assert own_or_new_key() == key
