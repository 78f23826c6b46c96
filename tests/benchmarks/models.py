"""What looking inside a model costs from the shell: commands, seconds, and memory at the most.

    python tests/benchmarks/models.py MODEL [--beside LIBRARY=PYTHON …] [TASK …]

MODEL is a folder, a GGUF file or an id of the hub. Each task is one command, in a process of its own;
beside it stands the same task by `others.py`, with the Python in which that library is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PROMPT = "When Mary and John went to the store, John gave a drink to"
OTHER = "When Mary and John went to the store, Mary gave a drink to"
PAIR = ("--between", " Mary", " John")

TASKS: dict[str, tuple[str, ...]] = {
    "next tokens": ("run", PROMPT, "--model", "{}", "--next", "5"),
    "weights of a head": (
        "run",
        PROMPT,
        "--model",
        "{}",
        "--layer",
        "2",
        "--head",
        "1",
        "--step",
        "attention_weights",
    ),
    "map of heads": ("run", PROMPT, "--model", "{}"),
    "lens": ("run", PROMPT, "--model", "{}", "--lens"),
    "a head left out": ("run", PROMPT, "--model", "{}", "--next", "5", "--edit", "2:head_outputs[1]=0"),
    "a network left out": ("run", PROMPT, "--model", "{}", "--next", "5", "--edit", "2:mlp_output=0"),
    "effects of heads": ("effect", PROMPT, "--model", "{}", *PAIR),
    "patching by layer": ("effect", PROMPT, "--model", "{}", *PAIR, "--patch", OTHER, "--by", "layer"),
    "by position over 20 prompts": (
        "effect",
        "--prompts",
        "{prompts}",
        "--model",
        "{}",
        "--by",
        "position",
    ),
    "compare two models": ("diff", PROMPT, "--model", "{}", "--model", "{}"),
    "generate 20 tokens": ("run", PROMPT, "--model", "{}", "--tokens", "20"),
}

PLACES = [
    "store",
    "school",
    "park",
    "station",
    "market",
    "garden",
    "office",
    "library",
    "museum",
    "harbour",
]


class Measured(NamedTuple):
    seconds: float
    processor: float
    memory: float
    code: int


def prompts_of_places() -> list[dict[str, str]]:
    """Twenty prompts of one length, each with its counterpart."""
    prompts = []
    for place in PLACES:
        for giver, other in (("John", "Mary"), ("Mary", "John")):
            start = f"When Mary and John went to the {place},"
            texts = {
                "prompt": f"{start} {giver} gave a drink to",
                "other": f"{start} {other} gave a drink to",
            }
            prompts.append({**texts, "a": f" {other}", "b": f" {giver}"})
    return prompts


def write_prompts(folder: str) -> str:
    path = Path(folder) / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in prompts_of_places()))
    return str(path)


def measure(command: list[str]) -> Measured:
    """One process by itself, and the most memory that it had."""
    begun = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Measured(
        seconds=time.perf_counter() - begun,
        processor=usage.ru_utime + usage.ru_stime,
        memory=usage.ru_maxrss / 1024,
        code=process.returncode,
    )


def main() -> None:
    model, *rest = sys.argv[1:]
    beside: dict[str, str] = {}
    while rest[:1] == ["--beside"]:
        library, _, python = rest[1].partition("=")
        beside[library] = python
        rest = rest[2:]

    print(f"{'':30}{'':14}{'seconds':>9}{'processor':>11}{'MB':>7}")
    with tempfile.TemporaryDirectory() as folder:
        prompts = write_prompts(folder)
        for name, words in TASKS.items():
            if rest and name not in rest:
                continue
            named = [{"{}": model, "{prompts}": prompts}.get(word, word) for word in words]
            show(name, "attnctl", measure([sys.executable, "-m", "attnctl", *named]))
            for library, python in beside.items():
                show(name, library, measure([python, OTHERS, library, model, name]))


OTHERS = str(Path(__file__).with_name("others.py"))


def show(task: str, program: str, found: Measured) -> None:
    failed = f"  exit {found.code}" if found.code else ""
    numbers = f"{found.seconds:9.1f}{found.processor:11.1f}{found.memory:7.0f}"
    print(f"{task:30}{program:14}{numbers}{failed}", flush=True)


if __name__ == "__main__":
    main()
