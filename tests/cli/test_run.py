"""`attnctl run` and `show` as a shell sees them."""

import json

import pytest

EVERY_STEP = [
    "embeddings", "X", "W_Q", "W_K", "W_V", "Q", "K", "V", "scores", "scaled_scores",
    "attention_weights", "head_outputs", "concat", "W_O", "output",
]  # fmt: skip


def test_run_prints_every_step(workplace):
    done = workplace.run("run", "I love AI", "--heads", "2")
    assert (done.returncode, done.stderr) == (0, b"")
    titles = [
        line.split()[0] for line in done.stdout.decode().splitlines() if "   " in line and "=" in line
    ]
    assert titles == EVERY_STEP


RECOMPUTE = """
import json, sys
import numpy as np

s = {name: np.array(step["data"]) for name, step in json.load(sys.stdin)["steps"].items()}
Q, K, V = (s["X"] @ s["W_" + name] for name in "QKV")
scores = Q @ K.transpose(0, 2, 1)
scaled = scores / np.sqrt(K.shape[-1])
A = np.exp(scaled) / np.exp(scaled).sum(-1, keepdims=True)
Z = A @ V
concat = np.concatenate(list(Z), axis=-1)
ours = {"Q": Q, "K": K, "V": V, "scores": scores, "scaled_scores": scaled, "attention_weights": A}
ours |= {"head_outputs": Z, "concat": concat, "output": concat @ s["W_O"]}
print(max(abs(s[name] - value).max() for name, value in ours.items()) < 1e-12)
"""


def test_ten_lines_of_numpy_recompute_the_dump(workplace):
    (workplace.folder / "recompute.py").write_text(RECOMPUTE)
    done = workplace.shell("attnctl run 'I love AI' --heads 2 --json | python recompute.py")
    assert done.stdout == b"True\n"


def test_jq_reads_the_dump(workplace):
    script = (
        "attnctl run 'I love AI' --heads 2 --json | jq -c '.steps.attention_weights.data[0][1] | length'"
    )
    assert workplace.shell(script).stdout == b"3\n"


def test_the_dump_is_strict_json_even_with_infinities(workplace):
    def refuse(constant):
        raise AssertionError(constant)

    done = workplace.run("run", "I love AI", "--causal", "--json")
    dump = json.loads(done.stdout, parse_constant=refuse)
    assert dump["steps"]["masked_scores"]["data"][0][0][1] == "-Infinity"
    assert dump["schema"] == "attnctl/trace/1"


@pytest.mark.sample(2)
@pytest.mark.parametrize("suffix", ["json", "npz", "safetensors", "jsonl"])
@pytest.mark.parametrize("config", ["i-love-ai", "cats-chase-mice"])
def test_show_gives_the_tables_of_the_run(workplace, suffix, config):
    args = ("-c", f"configs/{config}.yaml")
    direct = workplace.run("run", *args)
    assert workplace.run("run", *args, "-o", f"x.{suffix}").stdout == b""
    assert workplace.run("show", f"x.{suffix}").stdout == direct.stdout


@pytest.mark.parametrize("suffix", ["json", "npz", "safetensors", "jsonl"])
def test_reading_and_writing_again_is_the_identity(workplace, suffix):
    workplace.run("run", "-c", "configs/cats-chase-mice.yaml", "-o", f"a.{suffix}")
    assert workplace.run("show", f"a.{suffix}", "-o", f"b.{suffix}").returncode == 0
    assert (workplace.folder / f"a.{suffix}").read_bytes() == (
        workplace.folder / f"b.{suffix}"
    ).read_bytes()


def test_several_outputs_at_once(workplace):
    done = workplace.run("run", "I love AI", "-o", "x.json", "-o", "x.csv", "-o", "x.md")
    assert (done.returncode, done.stdout) == (0, b"")
    assert (workplace.folder / "x.csv").read_text().splitlines()[0] == "step,head,row,column,value"
    assert (workplace.folder / "x.md").read_text().startswith("#")


def test_the_config_of_a_dump_runs_it_again(workplace):
    script = (
        "attnctl run 'I love AI' --heads 2 --causal --positions rope --json > a.json;"
        "jq .config a.json > again.yaml; attnctl run -c again.yaml --json | cmp - a.json"
    )
    done = workplace.shell(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_config_init_reproduces_the_run(workplace):
    flags = "'I love AI' --heads 2 --causal --window 2 --softcap 20 --seed 3 --d-model 8"
    init, run = f"attnctl config init {flags} > x.yaml", f"attnctl run {flags} > a"
    done = workplace.shell(f"{init}; {run}; attnctl run -c x.yaml > b; cmp a b")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_several_sentences_give_a_trace_each(workplace):
    done = workplace.run("run", "I love AI", "AI loves cats and dogs", "--json")
    first, second = json.loads(done.stdout)
    assert (first["tokens"], len(second["tokens"])) == (["I", "love", "AI"], 5)
    lines = workplace.run("run", "-", "--format", "jsonl", stdin=b"I love AI\ngo\n").stdout.splitlines()
    assert [json.loads(line)["sentence"] for line in lines] == ["I love AI", "go"]


def test_flags_beat_the_environment_and_the_config(workplace):
    assert workplace.run("run", "I", ATTNCTL_FORMAT="csv").stdout.startswith(b"step,")
    assert workplace.run("run", "I", "--json", ATTNCTL_FORMAT="csv").stdout.startswith(b"{")
    done = workplace.run("run", "-c", "configs/i-love-ai.yaml", "--heads", "4", "--json")
    assert json.loads(done.stdout)["config"]["heads"] == 4


def test_cost_is_told_without_running(workplace):
    done = workplace.run("run", "I love AI", "--d-model", "64", "--cost", "--json", "--step", "output")
    steps = json.loads(done.stdout)["steps"]
    # Q: 3 tokens × 64 columns × 64 products and sums; scores: 3 × 3 × 64 of them.
    assert steps["Q"] == {
        "shape": [1, 3, 64],
        "bytes": 1536,
        "flops": 24576,
        "grows": "head · query · d_k",
        "kept": False,
    }
    assert steps["scores"]["flops"] == 1152


def test_what_config_init_writes_runs_as_it_is(call):
    (call("config", "init", "-o", "mine.yaml"))
    assert call("run", "-c", "mine.yaml").out == call("run", "I love AI").out
    (call("config", "init", "-c", "example:one-matrix", "--seed", "1", "-o", "other.yaml"))
    assert call("run", "-c", "other.yaml").code == 0


def test_a_step_that_is_named_wins_over_brief(call):
    assert call("run", "I love AI", "--step", "scores", "--brief") == call(
        "run", "I love AI", "--step", "scores"
    )
