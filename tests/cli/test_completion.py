"""What a shell offers: commands, steps, formats, configs, examples, cells of a dump."""

from pathlib import Path

import pytest

CELLS = ["attention_weights[0,the#1,", "attention_weights[0,cat,", "attention_weights[0,the#2,"]


EXAMPLES = sorted(path.stem for path in (Path(__file__).parent.parent.parent / "configs").glob("*.yaml"))
OVER = ["softmax-over-queries", "softmax-over-heads", "softmax-over-everything"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], ["run"]),
        (["config", "s"], ["schema"]),
        (["run", "x", "--step", "att"], ["attention_weights"]),
        (["run", "x", "--step", "scores,mask"], ["scores,mask", "scores,masked_scores"]),
        (["show", "s.json", "--step", "W_Q"], ["W_Q"]),
        (["run", "--format", "js"], ["json", "jsonl"]),
        (["run", "--dtype", ""], ["float64", "float32", "float16"]),
        (["run", "--tokenizer", "w"], ["whitespace", "words"]),
        (["run", "-c", "example:one"], ["example:one-matrix"]),
        (["run", "-c", "example", ":", "one"], ["one-matrix"]),
        (["run", "example", ":", "india-is-great-"], ["india-is-great-2-heads"]),
        (["run", "example", ":", "cats-chase-mice", "--step", "att"], ["attention_weights"]),
        (["run", "example", ":"], EXAMPLES),
        (["run", "m"], ["mine.yaml", "more/"]),
        (["show", "la"], ["last"]),
        (["run", "-c", "m"], ["mine.yaml", "more/"]),
        (["check", "--about", "softmax-over"], OVER),
        (["learn", "--lesson", "sca"], ["scale"]),
        (["examples", "india"], ["india-is-great", "india-is-great-2-heads"]),
        (["explain", "s.json", "scaled"], ["scaled_scores[0,", "scaled_scores[1,"]),
        (["explain", "s.json", "attention_weights[0,"], CELLS),
        (["explain", "s.json", "attention_weights[0,cat,c"], ["attention_weights[0,cat,cat]"]),
        (["explain", "none.json", "att"], []),
        (["explain", "'I love AI'", "--heads", "2", "A[1,AI,l"], ["A[1,AI,love]"]),
        (["explain", "example:one-matrix", "scaled_scores[0,the,ca"], ["scaled_scores[0,the,cat]"]),
        (["explain", "-", "att"], []),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_what_may_come_next(workplace, words, offered):
    (workplace.folder / "mine.yaml").write_text("heads: 2\n")
    (workplace.folder / "mine.txt").write_text("")
    (workplace.folder / "more").mkdir()
    if "s.json" in words:
        assert workplace.run("run", "the cat the", "--heads", "2", "-o", "s.json").returncode == 0
    line = {"COMP_WORDS": " ".join(["attnctl", *words]), "COMP_CWORD": str(len(words))}
    done = workplace.run(_ATTNCTL_COMPLETE="complete_bash", **line)
    assert done.stdout.decode().split() == offered
    assert done.stderr == b""
