"""What looking inside a model costs from the shell: commands, seconds, and memory at the most.

    python tests/benchmarks/models.py MODEL [TASK …]

MODEL is a folder, a GGUF file or an id of the hub. Each task is one command, in a process of its own.
"""

from __future__ import annotations

import json
import resource
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
    "weights of a head": ("run", PROMPT, "--model", "{}", "--layer", "2", "--head", "1", "--step", "A"),
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
    code: int


def write_prompts(folder: str) -> str:
    """Twenty prompts of one length, each with its counterpart."""
    lines = []
    for place in PLACES:
        for giver, other in (("John", "Mary"), ("Mary", "John")):
            start = f"When Mary and John went to the {place},"
            line = {
                "prompt": f"{start} {giver} gave a drink to",
                "other": f"{start} {other} gave a drink to",
            }
            lines.append(json.dumps({**line, "a": f" {other}", "b": f" {giver}"}))
    path = Path(folder) / "prompts.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def measure(words: list[str]) -> Measured:
    begun = time.perf_counter()
    command = [sys.executable, "-m", "attnctl", *words]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    return Measured(time.perf_counter() - begun, code)


def main() -> None:
    model, *wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        prompts = write_prompts(folder)
        for name, words in TASKS.items():
            if wanted and name not in wanted:
                continue
            named = [{"{}": model, "{prompts}": prompts}.get(word, word) for word in words]
            found = measure(named)
            # The most of any command so far, which grows only where one takes more than all before it.
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(f"{name:30}{found.seconds:8.1f} s{peak:8.0f} MB  exit {found.code}", flush=True)


if __name__ == "__main__":
    main()
