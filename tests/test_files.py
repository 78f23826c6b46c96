"""Files are opened in one place, which knows them however they are spelled, and where pipes may stand."""

import ast
import io
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from attnctl.base import files
from attnctl.base.files import OverwriteError, announce_output, hold_output, one_command, open_input
from attnctl.cli.program import program

PACKAGE = Path(files.__file__).parents[1]
CHECKPOINT = Path(__file__).parent / "models" / "checkpoints" / "qwen2"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a file in it under several names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("a")
    (tmp_path / "soft").symlink_to("a")
    (tmp_path / "softer").symlink_to("soft")
    (tmp_path / "folder").symlink_to(".")
    os.link("a", "hard")
    return tmp_path


NAMES = ["a", "./a", "folder/a", "folder/./folder/soft", "soft", "softer", "hard"]


@pytest.mark.parametrize("name", [*NAMES, "absolute"])
@pytest.mark.parametrize("read", ["a", "soft", "hard"])
def test_a_file_is_known_under_every_name(folder, read, name):
    name = str(folder / "a") if name == "absolute" else name
    with one_command():
        with open_input(read):
            pass
        for held in (hold_output, lambda path: announce_output(path, "-o")):
            with pytest.raises(OverwriteError, match="this command reads; give another name"):
                held(name)
        hold_output("b")
    hold_output(name)  # no command: a program may write over what it has read


def test_what_is_to_be_written_is_not_read(folder):
    with one_command():
        announce_output("soft", "--csv")
        refused = "--csv soft: it is hard, which this command reads; give another name"
        with pytest.raises(OverwriteError, match=f"^{refused}$"), open_input("hard"):
            pass


def test_another_file_in_its_place_is_no_other_file(folder):
    with one_command():
        with open_input("a"):
            pass
        (folder / "b").write_text("b")
        (folder / "b").rename("a")
        with pytest.raises(OverwriteError):
            hold_output("folder/a")


def test_commands_have_files_of_their_own(folder):
    with one_command():
        with open_input("a"):
            pass
        with one_command():
            hold_output("a")
        with pytest.raises(OverwriteError):
            hold_output("a")


def test_devices_are_no_files(folder):
    with one_command(), open_input(os.devnull):
        hold_output(os.devnull)
        announce_output(os.devnull, "-o")
        announce_output(os.devnull, "--csv")


# --- pipes ---


FOUND = {
    "a shard": ("run --model m --layer 0 --ids 4,5", "m/model.safetensors"),
    "a config of a model": ("model m", "m/config.json"),
    "an index": ("model m", "m/model.safetensors.index.json"),
    "a tokenizer": ("run I --model m --layer 0", "m/tokenizer.json"),
    "weights of a config": ("run I -c c.yaml", "w.npz"),
    "an edit of a config": ("run I -c e.yaml", "e.json"),
    "a gradient of a config": ("run I -c g.yaml", "g.npy"),
    "a gradient of a config, over arrays": ("attend qkv.npz -c g.yaml", "g.npy"),
    "an answer of a file": ("learn --answers a.yaml --lesson your-own", "own.npz"),
    "a corpus": ("corpus run s.txt", "s.txt"),
    "a lesson": ("learn --from lessons --list", "lessons/a.yaml"),
    "a dump of a lesson": ("learn --from dumps --lesson a", "dumps/d.json"),
}


@pytest.mark.parametrize(("line", "path"), FOUND.values(), ids=FOUND)
def test_a_pipe_that_nobody_named_is_refused_and_does_not_hang(tmp_path, monkeypatch, line, path):
    folder, said = tmp_path, io.StringIO()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    shutil.copytree(CHECKPOINT, folder / "m")
    for name in ("lessons", "dumps"):
        (folder / name).mkdir()
    (folder / "c.yaml").write_text("weights: {file: w.npz}\nd_model: 4\n")
    np.savez(folder / "qkv.npz", **dict.fromkeys("QKV", np.ones((2, 4))))
    (folder / "e.yaml").write_text("edits: [scores=@e.json]\n")
    (folder / "g.yaml").write_text("backward: true\ncotangent: g.npy\n")
    (folder / "a.yaml").write_text("your-own: own.npz\n")
    (folder / "dumps" / "a.yaml").write_text(
        "title: A\nkind: number\ndump: d.json\ntext: A.\nask: B?\nanswer: X[0,0]\n"
    )
    (folder / path).unlink(missing_ok=True)
    if "index" in path:
        (folder / "m" / "model.safetensors").unlink()
    os.mkfifo(folder / path)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(10)
    try:
        assert program(line.split(), stdout=said, stderr=said) == 2, said.getvalue()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert Path(path).name in said.getvalue()


def test_a_pipe_that_a_person_named_is_read(workplace):
    done = workplace.shell(
        "attnctl show <(attnctl run 'I love AI' --json) --step output | head -n 1; "
        "attnctl run 'I love' -c <(echo heads: 2) --json | jq .config.heads; "
        "attnctl run --file <(echo one two) --json | jq -c .tokens; "
        "attnctl run 'I love' --edit scores=@<(attnctl run 'I love' --json) --json | jq -c .sentence; "
        "attnctl run I --json | attnctl show /dev/stdin --json | jq -c .tokens; "
        "attnctl run I --json > d.json; attnctl show /dev/stdin --json < d.json | jq -c .tokens"
    )
    assert done.stderr == b""
    first, *others = done.stdout.decode().splitlines()
    assert "I love AI" in first
    assert others == ["2", '["one","two"]', '"I love"', '["I"]', '["I"]']


# --- one place ---

OPENING = {"open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "from_file", "ZipFile"}
OPENING |= {"load", "loadtxt", "save", "savez", "memmap", "fromfile", "tofile"}
"""Methods that open files, in Python, NumPy and tokenizers."""

BUILTIN = {"open", "ZipFile", "open_descriptor"}
OURS = {f"{of}.load" for of in ("found", "tensor", "npy", "weight", "scales", "blocks")} | {"self.save"}
ELSEWHERE = {
    ("base/files.py", "open"): "the place where files are read",
    ("base/files.py", "os.open"): "the same",
    ("base/plugins.py", "os.open"): "what is installed",
    ("store/files.py", "Path(path).open"): "the place where files are written: a device",
    ("store/files.py", "temporary.open"): "the same: beside the target",
    ("store/raw.py", "open"): "a descriptor of a file that is open",
    ("store/npz.py", "ZipFile"): "a stream that is open",
    ("drawing/show/workbook/book.py", "self.book.save"): "the same",
    ("drawing/show/cell.py", "images.open"): "a picture in memory",
    ("drawing/show/cell.py", "first.save"): "a stream that is open",
    ("models/images/files.py", "images.open"): "a picture in memory",
    ("store/torch_file.py", "torch.load"): "a stream that is open",
    ("store/npz.py", "archive.open"): "a member of an archive",
    ("models/tokenizing.py", "Tokenizer.from_file"): "a library opens it: the folder of a model is noted",
    ("models/tokenizing.py", "Path('/proc/self/statm').read_text"): "the system's",
    ("math/engine/cost.py", "Path('/proc/meminfo').read_text"): "the system's",
    (
        "pages/__init__.py",
        "Path(__file__).with_name('page').joinpath(name).read_text",
    ): "installed with attnctl",
    ("store/sent.py", "open"): "in a temporary folder, what a program left there",
    ("store/sent.py", "os.open"): "the same",
    ("store/sent.py", "ZipFile"): "the same",
    ("store/sent.py", "archive.open"): "the same",
    ("sources/program/run.py", "changed.write_text"): "in a temporary folder",
    ("sources/program/run.py", "answers.write_bytes"): "the same",
    ("sources/program/run.py", "answers.open"): "the same",
    ("sources/program/child.py", "Path(changed).read_text"): "the same, in a process of its own",
    ("sources/program/record.py", "np.savez"): "in a temporary folder",
    ("sources/program/text.py", "Path(path).read_text"): "the program, in a process of its own",
    ("sources/program/text.py", "tokenize.open"): "the same",
    ("verbs/conform/target.py", "np.savez"): "in a temporary folder",
    ("verbs/capture/file.py", "open_descriptor"): "the capture, which grows while a program runs",
    ("verbs/capture/file.py", "self.open"): "the same",
    ("verbs/capture/run.py", "Path(path).read_bytes"): "the program, in a process of its own",
    ("verbs/mutants/tested.py", "json.load"): "a stream that is open",
    ("verbs/mutants/tested.py", "np.savez"): "the same",
    ("verbs/learn/__init__.py", "np.savez"): "in a temporary folder",
    ("verbs/conform/target.py", "path.open"): "in a temporary folder",
    ("verbs/conform/target.py", "sent.read_bytes"): "the same",
    ("verbs/conform/target.py", "given.write_bytes"): "the same",
    ("cli/__init__.py", "os.open"): "nothing: /dev/null",
    ("cli/__init__.py", "os.fdopen"): "nothing: /dev/null",
    ("cli/program.py", "os.open"): "nothing: /dev/null",
    ("cli/explore.py", "os.open"): "the terminal",
    ("cli/app.py", "formatter.write_text"): "no file: a formatter of help",
    ("sources/last.py", "open"): "the last run, in the user's state folder",
    ("sources/last.py", "os.open"): "the same",
    ("drawing/screen/palette.py", "os.open"): "the terminal",
    ("verbs/corpus/__init__.py", "fsspec.open"): "a corpus elsewhere, or compressed: noted before",
    ("store/elsewhere.py", "fsspec.open"): "what is elsewhere, by its address",
    ("verbs/exercise/sheet.py", "(ASSETS / name).read_text"): "installed with attnctl",
}
"""What opens files beside the place where they are noted, each with why it may."""


def openings():
    """What opens a file: where, and what is called."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if not any(f"{name}(" in text for name in OPENING | BUILTIN):
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(ast.Attribute(attr=method)) if method in OPENING:
                    called = ast.unparse(node.func)
                case ast.Call(ast.Name(id=called)) if called in BUILTIN:
                    pass
                case _:
                    continue
            if called not in OURS:
                yield path.relative_to(PACKAGE).as_posix(), called


def test_files_are_opened_in_one_place():
    assert set(openings()) == set(ELSEWHERE)
