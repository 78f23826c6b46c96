"""The shell commands that `w` writes: run, they give the numbers that are seen."""

import io
import json
import shlex

import numpy as np
import pytest
from driven import DUMPS, VARIANTS, of_file, of_sentence

from attnctl.cli.program import program
from attnctl.formats import write
from attnctl.inputs.config.flags import flags
from attnctl.inputs.config.settings import Settings
from attnctl.models.run import ModelInput
from attnctl.sources.model import Layers
from attnctl.store.header import as_json_data
from attnctl.verbs import explore as go
from attnctl.verbs.explore import remake
from attnctl.verbs.explore.remake import begin_walk, commands

CONFIG = """
sentence: I love AI
d_model: 2
embeddings: {I: [1, 0], love: [0, 1], AI: [1, 1]}
weights: {W_Q: identity, W_K: identity, W_V: identity}
rules: [causal]
"""


def run(command):
    """What a command, or two with a pipe between them, prints; `<<` gives it a document to read."""
    line, _, document = command.partition("\n")
    stdin = document.removesuffix("CONFIG")
    for part in line.replace(" <<'CONFIG'", "").split(" | "):
        words = shlex.split(part)
        assert words[0] == "attnctl"
        streams = io.TextIOWrapper(io.BytesIO(stdin.encode())), io.StringIO(), io.StringIO()
        code = program(words[1:], *streams)
        assert code == 0, streams[2].getvalue()
        stdin = streams[1].getvalue()
    return stdin


def numbers_of(command, walk):
    """The step that a command prints, every digit of it."""
    words, break_, document = command.partition("\n")
    start, heredoc, _ = words.partition(" <<'CONFIG'")
    without_head = shlex.join(
        word
        for before, word in zip(["", *shlex.split(start)], shlex.split(start), strict=False)
        if "--head" not in (before, word)
    )
    found = json.loads(run(f"{without_head} --json{heredoc}{break_}{document}"))
    found = found[-1] if isinstance(found, list) else found
    return found["steps"][walk.step]["data"]


def holds(walk, off=0):
    """Whether the commands of a walk give its matrix, or are so far off, and the value of its cell."""
    matrix, cell = commands(walk)
    if off:
        np.testing.assert_allclose(walk.array, numbers_of(matrix, walk), rtol=0, atol=off)
    else:
        assert numbers_of(matrix, walk) == as_json_data(walk.array.tolist())
    run(matrix)  # and the head is one that it has
    printed = run(cell)
    from attnctl.verbs.explain.view import number_for_people

    assert number_for_people(walk.node.value, 4) in printed
    assert printed.startswith(walk.step)


SENTENCES = {
    "plain": {},
    "sizes": {"heads": 2, "kv_heads": 1, "d_model": 8, "d_k": 3, "d_v": 5},
    "rules": {"causal": True, "window": (3, None), "softcap": 2.5},
    "alibi": {"positions": "alibi", "heads": 2},
    "rope": {"positions": "rope", "theta": 500.0, "dims": 2, "interleaved": True},
    "sinusoidal": {"positions": "sinusoidal", "seed": 3, "dtype": "float32"},
    "cross": {"context": "le chat noir", "scale": 0.5},
    "characters": {"split": "characters", "lowercase": True, "causal": True, "causal_offset": 1},
}


def options_of(given):
    from attnctl.inputs.config.fields import ROPE_OPTIONS, TOKENIZER

    parts = {key.name: key.keyword for form in (ROPE_OPTIONS, TOKENIZER) for key in form.keys.values()}
    return {parts.get(name, name): value for name, value in given.items()}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence(name):
    walk = of_sentence("I love AI it is", **options_of(SENTENCES[name]))
    holds(walk)
    edited = go.move(remake.add_edit(go.move(walk, 1, 0), "*=0.5"), 0, 1)
    holds(go.to_step(edited, "output"))
    assert all("<<" not in command for command in commands(edited))


def test_heads_that_share():
    walk = go.to_step(of_sentence(heads=4, kv_heads=2, d_model=8), "K")
    matrix, _ = commands(go.along(walk, "head", 1))
    assert shlex.split(matrix)[-2:] == ["--head", "2"]
    holds(walk)


def test_a_config_and_what_flags_lay_over_it(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    walk = of_sentence(None, str(path), seed=4)
    assert commands(walk)[0] == f"attnctl run -c {path} --seed 4 --step attention_weights"
    holds(walk)
    on = remake.switch_rule(walk, "softcap")
    assert commands(on)[0].startswith(f"attnctl run -c {path} --seed 4 --softcap 30")
    holds(on)


def test_what_flags_cannot_say_is_a_config_on_standard_input(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    off = remake.add_edit(remake.switch_rule(of_sentence(None, str(path)), "causal"), "0.25")
    assert all("run -c - " in command and "<<'CONFIG'" in command for command in commands(off))
    holds(off)


@pytest.mark.slow
def test_a_shell_understands_the_commands(workplace):
    """One in a pipe, with quotes, a document and a sentence that begins with a dash."""
    walk = remake.switch_rule(remake.switch_rule(of_sentence('- it\'s "so" $HOME'), "alibi"), "causal")
    rope = of_sentence('- it\'s "so" $HOME', positions="rope")
    for each in (remake.add_edit(walk, "0.5"), remake.add_edit(remake.switch_rule(rope, "alibi"), "0.5")):
        matrix, cell = commands(each)
        done = workplace.shell(cell)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode().startswith("attention_weights: edited")
        assert workplace.shell(matrix).returncode == 0


@pytest.mark.parametrize("name", ["causal", "grouped-query", "cache", "padding"])
def test_a_dump(name):
    walk = of_file(VARIANTS / f"{name}.json")
    holds(walk)
    assert commands(walk)[0].startswith(f"attnctl show {VARIANTS / name}.json --step attention_weights")


@pytest.mark.parametrize("name", ["causal", "cross", "learned", "cache"])
def test_an_edited_dump(name):
    holds(remake.add_edit(go.move(of_file(VARIANTS / f"{name}.json"), 1, 1), "0.5"))


def test_one_trace_of_several(tmp_path):
    import attnctl

    path = str(tmp_path / "s.jsonl")
    write(attnctl.run_many(["I love AI", "we do"]), path)
    walk = go.to_layer(of_file(path), 1)
    assert shlex.split(commands(walk)[0]) == [
        "attnctl",
        "show",
        f"{path}[1]",
        "--step",
        "attention_weights",
    ]
    holds(walk)


def test_anyones_arrays(tmp_path):
    path = str(tmp_path / "theirs.npz")
    rng = np.random.default_rng(0)
    np.savez(
        path, query=rng.normal(size=(2, 3, 4)), key=rng.normal(size=(2, 3, 4)), A=np.full((2, 3, 3), 0.5)
    )
    names = {"query": "Q", "key": "K", "A": "attention_weights"}
    walk = of_file(path, rename=names, flags={"scale": 0.25})
    (cell,) = commands(walk)
    assert "but 0.5 was recorded here" in run(cell)
    assert "--scale 0.25" in cell


MODEL = VARIANTS.parent.parent / "tests" / "models" / "checkpoints" / "gpt-oss"


def test_layers_of_a_model():
    source = Layers(str(MODEL), ModelInput(ids=(4, 5, 6, 7, 4, 5)), "all", Settings(dtype="float32"))
    walk = begin_walk(source)
    holds(go.to_layer(walk, 1), off=1e-6)  # by itself it comes of a layer of which nothing is kept
    edited = remake.add_edit(walk, "0")
    holds(go.to_step(edited, "output"))
    later = go.to_layer(edited, 1)
    assert "--layer 0,1" in commands(later)[0]
    holds(later)


def test_flags_say_all_or_nothing():
    assert flags(Settings(), Settings()) == []
    assert flags(Settings(mask=[[1.0]]), Settings()) is None
    assert flags(Settings(), Settings(heads=2)) is None
    assert flags(Settings(positions=[[1.0]]), Settings()) is None


@pytest.mark.slow
@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_every_step_of_every_variant(path):
    walk = of_file(path)
    for step in walk.layer.steps:
        holds(go.move(go.to_step(walk, step), 1, 1))
    if path.stem not in {"padding", "pages"}:  # their lengths are in no array of the dump
        edited = remake.add_edit(walk, "*=0.5")
        for step in edited.layer.steps[-4:]:
            holds(go.to_step(edited, step))
