"""What is shipped runs: the scripts, the dumps of the variants, the configs' schema line."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VARIANTS = sorted((ROOT / "samples" / "variants").glob("*.json"))


@pytest.mark.slow
def test_the_variants_are_what_the_script_makes(workplace):
    done = workplace.shell("mkdir again; samples/variants/make.sh again")
    assert (done.returncode, done.stderr) == (0, b"")
    again = sorted(path.name for path in (workplace.folder / "again").iterdir())
    assert again == [path.name for path in VARIANTS]
    for path in VARIANTS:
        done = workplace.run("diff", f"samples/variants/{path.name}", f"again/{path.name}")
        assert done.returncode == 0, done.stdout.decode()


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_every_variant_checks(workplace, path):
    done = workplace.run("check", f"samples/variants/{path.name}", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["agrees"]


def test_the_gate_lets_the_same_through_and_stops_a_change(workplace):
    gate = "samples/ci-gate.sh configs/i-love-ai.yaml golden.json"
    assert workplace.shell(gate).stdout == b"recorded golden.json\n"
    assert workplace.shell(gate).returncode == 0
    changed = workplace.shell(f"sed -i 's/seed: 0/seed: 1/' configs/i-love-ai.yaml; {gate}")
    assert changed.returncode == 1
    assert changed.stdout.startswith(b"differ: ")


@pytest.mark.slow
def test_the_scripts_of_a_corpus_give_what_one_process_gives(workplace):
    whole = "attnctl corpus run samples/sentences.txt --pairs -o whole.json"
    slurm = (
        "for i in 3 1 2; do SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_COUNT=3 "
        "samples/corpus/slurm-array.sh samples/sentences.txt slurm --pairs; done; "
        "attnctl corpus merge slurm/part-*.json -o slurm/whole.json"
    )
    done = workplace.shell(
        f"set -e; {whole}; samples/corpus/parallel.sh samples/sentences.txt 4 parts --pairs; {slurm};"
        "cmp whole.json parts/whole.json; cmp whole.json slurm/whole.json"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_every_sample_sentence_runs(workplace):
    done = workplace.run("run", "--file", "samples/sentences.txt", "--format", "jsonl")
    assert len(done.stdout.splitlines()) == len(
        (ROOT / "samples" / "sentences.txt").read_text().splitlines()
    )


def test_someone_who_scripts(workplace):
    done = workplace.shell("samples/scripter.sh")
    assert (done.returncode, done.stderr) == (0, b"")
    weights, *entropies, code, verdict, percent, agrees = done.stdout.decode().splitlines()
    assert weights == "0.026\t0.065\t0.91"
    assert entropies == ["'-[0],1.314", "'-[1],1.426", "'-[2],1.366", "all,1.369"]
    assert (code, percent, agrees) == ("exit 1", "91", "true")
    assert verdict == "differ: attention_weights is the first of 4 that differ (15 steps compared)"


def test_someone_who_errs_is_told_what_to_write(workplace):
    done = workplace.shell("samples/erring.sh")
    assert (done.returncode, done.stdout) == (0, b"")
    said = done.stderr.decode().splitlines()
    slips = (ROOT / "samples" / "erring.sh").read_text().count("\nerr attnctl")
    assert len(said) == slips
    assert all(line.startswith("attnctl: ") for line in said)
    helps = ("did you mean", "there are", "writes one", "Possible options")
    assert sum(any(words in line for words in helps) for line in said) >= 7
