"""What a command reads it does not overwrite: every option that writes × every file that is read."""

import io
import json
import shlex
import shutil
from pathlib import Path

import pytest
from command_line import working_in
from commands import commands

import attnctl
from attnctl.cli.program import program
from attnctl.store.source import arrays
from attnctl.verbs.corpus import survey_blocks, surveyed
from attnctl.verbs.learn import SHIPPED

MODELS = Path(__file__).parent.parent / "models" / "checkpoints"

READING = {
    "--adapter", "--answers", "--claims", "--config", "--file", "--from", "--image", "--inputs", "--model",
    "--picture",
    "--replay", "--stdin", "--survey", "--watch", "--xfail",
}  # fmt: skip
"""The options that name a file or a folder and write over none."""

OF_MODEL = (
    "m/config.json m/model-1.safetensors m/model.safetensors.index.json m/tokenizer.json m/vocab.json"
)
SCENES = {
    "run": {
        "'I love' -c c.json": "c.json w.json e.json",
        "--file s.json": "s.json",
        "'I love' --edit scores=@two.json": "two.json",
        "--model m --layer 0 --ids 4,5": OF_MODEL,
        "--model m --layer 0 --ids 4,5 --edit X=@x.json": "x.json",
        "--model m --adapter lora --layer 0 --ids 4,5": "lora/adapter_config.json",
        "--model tiny.gguf.json --layer 0 --ids 4,5": "tiny.gguf.json",
    },
    "attend": {
        "a.json --edit head_outputs=@b.json -c heads.json": "a.json b.json heads.json",
        "hidden.json --model m --layer 0": "hidden.json m/config.json",
    },
    "show": {"d.json": "d.json", "lines.json[1]": "lines.json", "sheet.json": "sheet.json"},
    "check": {
        "d.json -c heads.json": "d.json heads.json",
        "sheet.json": "sheet.json",
        "hidden.json --model m --layer 0": "hidden.json m/config.json",
    },
    "explain": {"d.json 'A[0,0,0]'": "d.json", "-c c.json 'A[0,0,0]'": "c.json w.json e.json"},
    "diff": {"d.json lines.json[0]": "d.json lines.json"},
    "model": {"m": OF_MODEL},
    "effect": {"--model m --ids 4,5 --between 4 5": OF_MODEL},
    "stats": {
        "d.json lines.json": "d.json lines.json",
        "'I love' -c c.json": "c.json w.json e.json",
        "--model m": OF_MODEL,
    },
    "corpus run": {
        "s.json -c c.json": "s.json c.json w.json e.json",
        "s.json --survey blocks.json": "s.json blocks.json",
    },
    "corpus merge": {"part.json": "part.json"},
    "conform": {
        "k.py:f --claims claims.json --xfail xfail.json": "k.py helper.py claims.json xfail.json",
        "k:f": "k.py helper.py",
        "k.py:f --inputs a.json": "k.py a.json",
        "k.py:f --replay case.json": "k.py case.json",
        "-- ./k.py {in} {out}": "k.py",
    },
    "mutants": {},  # it reads nothing
    "capture": {"k.py": "k.py"},
    "config init": {"-c c.json --force": "c.json"},
    "examples": {},  # what is installed has no name that a person gives
    "exercise make": {
        "-c c.json --blank scores": "c.json w.json e.json",
        "d.json --blank scores": "d.json",
    },
    "exercise grade": {
        "sheet.json -c heads.json": "sheet.json heads.json",
        "sheet.json --json": "sheet.json",
    },
}
"""For each command that writes lines of it, each with the files that it reads."""


def options():
    """Every option of every command: the command, and what is declared of it."""
    for command, registered in commands():
        for option in registered.options:
            if not option.declared.is_argument:
                yield command, option.declared


WRITING = [
    (command, min(option.flags, key=len))
    for command, option in options()
    if option.writes and command != "mistakes"  # which reads nothing
]


def test_an_option_that_names_a_file_reads_it_or_writes_it():
    named = {
        max(option.flags, key=len)
        for _, option in options()
        if option.metavar in {"FILE", "DIR", "FOLDER"} and not option.writes
    }
    assert named == READING
    assert {command for command, _ in WRITING} == set(SCENES)
    assert {flag for _, flag in WRITING} == {"-o", "--junit", "--save"}


@pytest.fixture(scope="module")
def stocked(tmp_path_factory):
    """A folder with a file of every kind that is read."""
    folder = tmp_path_factory.mktemp("stocked")
    shutil.copytree(MODELS / "qwen2", folder / "m")
    tensors = folder / "m" / "model.safetensors"
    names = arrays(tensors)
    tensors.rename(folder / "m" / "model-1.safetensors")
    text = dict.fromkeys(names, "model-1.safetensors")
    (folder / "m" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": text}))
    (folder / "m" / "tokenizer.json").write_text("{}")
    data = {
        "c.json": {
            "sentence": "I love AI", "d_model": 4, "embeddings": {"file": "e.json", "name": "E"},
            "vocab": ["I", "love", "AI"], "weights": {"W_Q": {"file": "w.json"}},
        },
        "heads.json": {"heads": 1, "sentence": "I love"},
        "w.json": {"W_Q": [[1.0] * 4] * 4},
        "e.json": {"E": [[1.0, 2.0, 3.0, 4.0]] * 3},
        "a.json": {name: [[1.0, 2.0], [3.0, 4.0]] for name in "QKV"},
        "hidden.json": {"hidden": [[0.5] * 16] * 2},
        "claims.json": {"features": ["causal"]},
        "xfail.json": {"causal": "not yet"},
    }  # fmt: skip
    for name, value in data.items():
        (folder / name).write_text(json.dumps(value))
    (folder / "s.json").write_text("I love AI\n")
    (folder / "blocks.json").write_bytes(surveyed.bytes_of(survey_blocks(str(folder / "s.json"))))
    (folder / "tiny.gguf.json").write_bytes(b"GGUF")
    (folder / "lora").mkdir()
    (folder / "lora" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (folder / "helper.py").write_text("X = 1\n")
    (folder / "k.py").write_text("import helper\n\ndef f(q, k, v):\n    return v\n")
    made = [
        "run 'I love AI' we -o lines.jsonl",
        "run 'I love' -o two.json --step scores",
        "run 'I love AI' -o d.json",
        "attend a.json -o b.json",
        "corpus run s.json --shard 1/1 -o part.json",
        "exercise make -c heads.json --blank scores -o sheet.json",
        "run --model m --layer 0 --ids 4,5 -o x.json --step X",
    ]
    with working_in(folder):
        for line in made:
            assert run(line)[0] == 0, line
        assert run("conform k.py:f --quick --dtype float64 --feature attention --save cases")[0] == 1
        next(Path("cases").iterdir()).rename("case.json")
        Path("lines.jsonl").rename("lines.json")
    return folder


def run(line, stdin=None):
    """Its exit code, and what it complained of."""
    err = io.StringIO()
    code = program(shlex.split(line), stdin, io.StringIO(), err)
    return int(code), err.getvalue()


LINES = [
    pytest.param(command, flag, line, inputs, id=f"{command} {line} {flag}")
    for command, flag in WRITING
    for line, inputs in SCENES[command].items()
    if flag != "--save"
]


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.sample(5)
@pytest.mark.parametrize(("command", "flag", "line", "inputs"), LINES)
def test_what_is_read_is_not_overwritten(stocked, tmp_path, command, flag, line, inputs):
    folder = shutil.copytree(stocked, tmp_path / "work")
    before = contents(folder)
    options, dashes, called = line.partition("-- ")
    with working_in(folder):
        for number, path in enumerate(inputs.split()):
            link = Path(f"link-{number}{'.npz' if command == 'capture' else '.json'}")
            link.symlink_to(path)
            for name in [link, path] if flag != "-o" or path.endswith(".json") else [link]:
                code, err = run(f"{command} {flag} {name} {options}{dashes}{called}")
                assert (code, err.count("\n")) == (2, 1), (name, err)
                assert err.startswith(f"attnctl: {flag} {name}: it is "), err
                assert err.endswith("this command reads; give another name\n"), err
            link.unlink()
    assert contents(folder) == before


@pytest.mark.slow
def test_a_failing_case_is_not_saved_over_what_was_read(stocked, tmp_path):
    line = "conform k.py:f --quick --dtype float64 --feature attention --save cases"
    with working_in(shutil.copytree(stocked, tmp_path / "work")):
        assert run(line)[0] == 1
        (case,) = Path("cases").iterdir()
        shutil.copy("claims.json", case)
        refused = f"attnctl: {case}: it is what this command reads; give another name\n"
        assert run(f"{line} --claims {case}") == (2, refused)
        assert case.read_bytes() == Path("claims.json").read_bytes()


def test_what_was_learned_is_not_noted_over_a_lesson(call, tmp_path):
    lesson, progress = tmp_path / "own" / "one.yaml", tmp_path / "attnctl" / "progress.json"
    lesson.parent.mkdir()
    progress.parent.mkdir()
    shutil.copy(min(SHIPPED.glob("*.yaml")), lesson)
    progress.symlink_to(lesson)
    before = lesson.read_bytes()
    done = call("learn", "--from", "own", "--reset", XDG_DATA_HOME=str(tmp_path))
    assert (done.code, lesson.read_bytes()) == (2, before)
    assert "progress.json: it is own/one.yaml, which this command reads" in done.err


def test_standard_input_may_be_the_file(call):
    call("run", "I love AI", "-o", "d.json")
    before = Path("d.json").read_bytes()
    with Path("d.json").open() as stream:
        code, err = run("show - -o d.json", stream)
    refused = "attnctl: -o d.json: it is standard input, which this command reads; give another name\n"
    assert (code, err, Path("d.json").read_bytes()) == (2, refused, before)


def test_two_outputs_are_two_files(call):
    done = call("run", "I", "-o", "a.json", "-o", "./a.json")
    assert done == (2, "", "attnctl: -o ./a.json: -o a.json is the same file; give another name\n")
    assert not Path("a.json").exists()


def test_a_command_may_write_what_another_one_read(call):
    call("run", "I love AI", "-o", "d.json")
    assert call("show", "d.json", "-o", "e.json").code == 0
    assert call("run", "I love", "-o", "d.json").code == 0
    trace = attnctl.load("d.json")
    trace.save("d.json")
    assert attnctl.load("d.json").sentence == "I love"


@pytest.mark.parametrize("line", ["config init", "examples i-love-ai"])
def test_a_config_is_not_written_over_another(call, line):
    init = line.split()
    said = "note: wrote attnctl.schema.json, too: an editor completes and checks the config by it"
    assert call(*init, "-o", "mine.yaml") == (0, "", f"attnctl: {said}\n")
    Path("mine.yaml").write_text("heads: 2\n")
    Path("attnctl.schema.json").write_text("{}")
    refused = "-o mine.yaml: it is there already, and is kept; give another name, or add --force"
    assert call(*init, "-o", "mine.yaml") == (2, "", f"attnctl: {refused}\n")
    assert Path("mine.yaml").read_text() == "heads: 2\n"
    assert call(*init, "-o", "mine.yaml", "--force") == (0, "", "")
    assert Path("mine.yaml").read_text() == call(*init).out
    assert Path("attnctl.schema.json").read_text() == "{}"
    assert call(*init, "--force") == (2, "", "attnctl: --force: goes with -o FILE\n")
