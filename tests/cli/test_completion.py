"""What a shell offers: commands, steps, formats, configs, examples, files."""

import pytest

OVER = [f"softmax-over-{axes}" for axes in ("queries", "heads", "batch", "everything")]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], ["run"]),
        (["config", "s"], ["schema"]),
        (["run", "x", "--step", "att"], ["attention_weights"]),
        (["run", "x", "--step", "scores,mask"], ["scores,mask", "scores,masked_scores"]),
        (["show", "s.json", "--step", "W_Q"], ["W_Q", "W_Q_distances"]),
        (["run", "--format", "js"], ["json", "jsonl"]),
        (["run", "--dtype", ""], ["float64", "float32", "float16"]),
        (["run", "--tokenizer", "w"], ["whitespace", "words"]),
        (["run", "-c", "example:one"], ["example:one-matrix"]),
        (["run", "m"], ["mine.yaml", "more/"]),
        (["show", "la"], ["last"]),
        (["run", "-c", "m"], ["mine.yaml", "more/"]),
        (["check", "--about", "softmax-over"], OVER),
        (["learn", "--lesson", "sca"], ["scale"]),
        (["examples", "india"], ["india-is-great", "india-is-great-2-heads"]),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_what_may_come_next(workplace, words, offered):
    (workplace.folder / "mine.yaml").write_text("heads: 2\n")
    (workplace.folder / "mine.txt").write_text("")
    (workplace.folder / "more").mkdir()
    line = {"COMP_WORDS": " ".join(["attnctl", *words]), "COMP_CWORD": str(len(words))}
    done = workplace.run(_ATTNCTL_COMPLETE="complete_bash", **line)
    assert done.stdout.decode().split() == offered
    assert done.stderr == b""
