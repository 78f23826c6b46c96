"""Bad input: one clear line each on stderr, exit 2, nothing on stdout, nothing written."""

import pytest

CONFIGS = {
    "unknown-key.yaml": "sentence: I love AI\nhaeds: 2\n",
    "duplicate-key.yaml": "heads: 2\nsentence: I love AI\nheads: 4\n",
    "ragged.yaml": "sentence: I\nembeddings:\n  - [1, 2]\n  - [1, 2, 3]\n",
    "wrong-shape.yaml": "sentence: I love\nd_model: 2\nweights:\n  W_Q: [[1, 2], [3, 4], [5, 6]]\n",
    "heads.yaml": "sentence: I love AI\nd_model: 8\nheads: 3\n",
    "vocab.yaml": "sentence: I love AI\nvocab: [I, love, IA]\n",
    "many.yaml": "sentence: I love AI\nheads: two\nd_model: -1\ncolour: red\n",
    "number.yaml": "sentence: I\nembeddings: [[1, .nan]]\n",
}

# ruff: noqa: E501  (a row a line)
REFUSED = [
    (["run", ""], ["sentence: no tokens in ''"]),
    (["run", "   "], ["sentence: no tokens in '   '"]),
    (["run"], ["no sentence"]),
    (["run", "I love AI", "--heads", "3"], ["--heads: 3 does not divide d_model 4; use 1, 2 or 4, or give d_k"]),
    (["run", "I love AI", "--heads", "0"], ["--heads: 0 is too small; write 1 or more"]),
    (["run", "I love AI", "--heads", "2.0"], ["--heads: 2.0 is not a whole number; write one like 4"]),
    (["run", "I love AI", "--scale", "nan"], ["--scale: nan is not a finite number"]),
    (["run", "I love AI", "--softcap", "0"], ["--softcap: 0 is not above 0; write a number like 1.5"]),
    (["run", "I love AI", "--seed", "-1"], ["--seed: -1 is too small; write 0 or more"]),
    (["run", "I love AI", "--kv-heads", "3", "--heads", "4"], ["--kv-heads: 3 does not divide heads 4; use 1, 2 or 4"]),
    (["run", "I love AI", "--window", "a"], ["--window: a is not a whole number"]),
    (["run", "I love AI", "--window", "1,2,3"], ["--window: 1,2,3 is not L or L,R"]),
    (["run", "I love AI", "--window", "9" * 5000], ["--window: 999", "is too large; write 1000"]),
    (["run", "I love AI", "--head", "9" * 5000], ["--head: 999", "is too large; write 9999 or less"]),
    (["run", "I love AI", "--heads=-1"], ["--heads: -1 is too small; write 1 or more"]),
    (["run", "I love AI", "--kv-heads=-1"], ["--kv-heads: -1 is too small; write 1 or more"]),
    (["run", "I love AI", "--dtype", "int8"], ["--dtype: int8 is not one of the choices; write float64, float32 or float16"]),
    (["run", "I love AI", "--positions", "rop"], ["--positions: rop is not a kind of positions; write none, sinusoidal, rope or alibi"]),
    (["run", "I love AI", "--format", "xml"], ["--format: xml is not one of the choices; write table, json"]),
    (["explain", "x.json", "X[0,0]", "--depth", "0"], ["--depth: 0 is too small; write 1 or more"]),
    (["diff", "x.json", "y.json", "--rtol", "-1"], ["--rtol: -1 is not a tolerance"]),
    (["run", "I", "--heads", "x", "--scale", "nan", "--precision", "18", "--max-memory", "lots", "--head", "1,"],
     ["--heads: x is not", "--scale: nan is not", "--precision: 18 is too large", "--max-memory: 'lots'", "--head: nothing is not"]),
    (["run", "I love AI", "--chunks", "1:3"], ["--chunks: 1:3 does not go on from key 0; write ranges one behind the other"]),
    (["run", "I love AI", "--chunks", "0:1,2:3"], ["--chunks: 2:3 does not go on from key 1"]),
    (["run", "I love AI", "--chunks", "0:2,2:2,2:3"], ["--chunks: 2:2 does not go on from key 2"]),
    (["run", "I love AI", "--theta", "5"], ["--theta: only rotary positions have that; add --positions rope"]),
    (["run", "I love AI", "--d-model", "1000000000"], ["of memory, more than", "--max-memory"]),
    (["run", "a b c " * 999, "--max-memory", "100M"], ["--step output takes ", "--cost says what each step does"]),
    (["run", "I love AI", "--max-memory", "lots"], ["--max-memory: 'lots' is not a size"]),
    (["run", "I love AI", "--step", "score"], ["no step 'score' here; there are embeddings"]),
    (["run", "I love AI", "--step", "weights"], ["no step 'weights' here", "did you mean attention_weights?"]),
    (["run", "I love AI", "--head", "2"], ["head 2"]),
    (["run", "I love AI", "--json", "--precision", "2"], ["--precision: only tables and pictures have that"]),
    (["run", "I love AI", "-o", "x.docx"], ["x.docx", ".json"]),
    (["run", "I love AI", "-o", "x", "-o", "y.docx"], ["x: no suffix that says its format; expected one of .json", "y.docx: no format"]),
    (["stats", "none.json", "-o", "x.docx"], ["x.docx: no format for the suffix '.docx'; expected one of .json, .csv"]),
    (["run", "I love AI", "-o", ""], ["'': no suffix"]),
    (["run", "I love AI", "-o", "configs"], ["configs: it is a folder; expected one of .json"]),
    (["run", "I love AI", "-o", "no/such/folder/x.json"], ["no/such/folder"]),
    (["run", "-c", "none.yaml"], ["none.yaml: no such file"]),
    (["run", "-not a flag"], ['put "--" before a sentence that starts with "-"']),
    (["run", "--file", "none.txt"], ["none.txt: No such file"]),
    (["run", "-c", "unknown-key.yaml"], ["unknown-key.yaml:2 $.haeds", "heads"]),
    (["run", "-c", "duplicate-key.yaml"], ["duplicate-key.yaml:3", "heads", "1"]),
    (["run", "-c", "ragged.yaml"], ["ragged.yaml:4 $.embeddings[1]", "3", "2"]),
    (["run", "-c", "wrong-shape.yaml"], ["wrong-shape.yaml:4 $.weights.W_Q", "3 × 2, expected 2 × 2"]),
    (["run", "-c", "heads.yaml"], ["heads.yaml:3 $.heads: 3 does not divide d_model 8; use 1, 2, 4 or 8, or give d_k"]),
    (["run", "-c", "vocab.yaml"], ["vocab.yaml:2 $.vocab", "unknown token 'AI'", "'IA'"]),
    (["run", "-c", "many.yaml"], ["many.yaml:2 $.heads", "many.yaml:3 $.d_model", "many.yaml:4 $.colour"]),
    (["run", "-c", "number.yaml"], ["number.yaml:2 $.embeddings[0][1]"]),
    (["show", "none.json"], ["none.json", "No such file"]),
    (["show", "configs/none.yaml"], ["configs/none.yaml", "no such file"]),
    (["attend", "heads.yaml"], ["heads.yaml"]),
    (["nonsense"], ["No such command"]),
]  # fmt: skip


@pytest.mark.parametrize(("args", "expected"), REFUSED, ids=lambda value: " ".join(value)[:40])
def test_refusal(workplace, args, expected):
    for name, text in CONFIGS.items():
        (workplace.folder / name).write_text(text)
    before = sorted(workplace.folder.rglob("*"))
    done = workplace.run(*args)
    message = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")
    for part in expected:
        assert part in message
    assert "Traceback" not in message
    assert sorted(workplace.folder.rglob("*")) == before


def test_a_broken_pipe_ends_quietly(workplace):
    done = workplace.shell("attnctl run 'I love AI' --json | head -n 1; echo ${PIPESTATUS[0]} >&2")
    assert done.stderr.strip() in {b"141", b"0"}  # 0 where all fitted into the pipe
    script = "attnctl run -c configs/base-transformer.yaml --json | head -c 100 > /dev/null; echo ${PIPESTATUS[0]}"
    done = workplace.shell(script)
    assert (done.stdout, done.stderr) == (b"141\n", b"")


def test_no_colour_in_a_pipe_unless_forced(workplace):
    assert b"\x1b" not in workplace.run("run", "I love AI").stdout
    assert b"\x1b" in workplace.run("run", "I love AI", FORCE_COLOR="1").stdout
    assert b"\x1b" not in workplace.run("run", "I love AI", FORCE_COLOR="0").stdout
    assert b"\x1b[4" not in workplace.run("run", "I love AI", FORCE_COLOR="1", NO_COLOR="1").stdout


def test_a_bug_of_ours_is_exit_70_with_one_line(workplace):
    (workplace.folder / "sitecustomize.py").write_text(
        "import attnctl.inputs.plan.sentence\ndef broken(*a, **k): raise RuntimeError('boom')\nattnctl.inputs.plan.sentence.tokenize = broken\n"
    )
    done = workplace.process("run", "I love AI", PYTHONPATH=str(workplace.folder))
    assert (done.returncode, done.stderr.count(b"\n")) == (70, 1)
    assert b"boom" in done.stderr
    assert b"--debug" in done.stderr
    shown = workplace.process("--debug", "run", "I love AI", PYTHONPATH=str(workplace.folder))
    assert b"Traceback" in shown.stderr
