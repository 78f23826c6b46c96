"""What opens: the tables of samples/models/README.md, made of the families, architectures and types.

    python tests/models/opens.py

writes them anew between their marks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from attnctl.base.words import one_of
from attnctl.models.architectures import ARCHITECTURES
from attnctl.models.families import ATTENTIONS_ONLY, FAMILIES, TOWERS, speech
from attnctl.models.family import DEFAULTS, Stack
from attnctl.models.gguf import KINDS
from attnctl.models.keys import setting_value
from attnctl.models.packing import FORMATS

PAGE = Path(__file__).parents[2] / "samples" / "models" / "README.md"
MARKED = re.compile(r"(<!-- what opens -->\n).*?(<!-- end -->)", re.DOTALL)


def group_of(kind: str, stacks: Mapping[str, Stack]) -> str:
    """What a model is, by the settings of its stacks."""
    stack = stacks[""]
    settings = {**DEFAULTS, **stack.settings}
    if "decoder" in stacks:
        return "an encoder and a decoder"
    if "embed" not in stack.outer:
        return "of sounds, from the rows of their first layer on" if kind in speech.SOUNDS else "of images"
    if "vision" in stacks:
        return "of images and texts"
    if setting_value(settings["causal"], {}) is False:
        return "encoders, which see both ways"
    if settings["delta"]:
        return "decoders with layers of a delta rule"
    if settings["state_space"]:
        return "decoders with layers of a state space (Mamba 2)"
    if settings["convolution"]:
        return "decoders with layers of a short convolution"
    if settings["experts"] is not None:
        return "decoders with experts"
    return "decoders"


def table(head: str, rows: Mapping[str, str]) -> list[str]:
    return [head, "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items())]


def code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def what_opens() -> str:
    """Both tables: by model_type, and by what stands on the disk."""
    groups: dict[str, list[str]] = {}
    for kind, stacks in FAMILIES.items():
        groups.setdefault(group_of(kind, stacks), []).append(kind)
    kinds = {name: code(groups[name]) for name in sorted(groups)}
    with_head = [kind for kind in TOWERS if kind not in ATTENTIONS_ONLY]
    kinds["the text of models that see or hear"] = code(with_head)
    kinds["the same, without logits"] = code([*ATTENTIONS_ONLY])

    packed = one_of((each.name for each in FORMATS.values()), "and", most=len(FORMATS))
    numbers = ", ".join(kind.name for kind in KINDS.values())
    files = {
        "`--model DIR`, or an id of the hub": "`config.json` with `model.safetensors`, or "
        "shards with their index or without: float64, float32, float16, bfloat16, MXFP4, FP8 with a "
        f"scale for a block, a row or a matrix, and whole numbers as {packed} pack them",
        "the same with `pytorch_model.bin`, or shards of it": "by torch, which runs nothing of it",
        "`--model ckpt.pt`": "a checkpoint of nanoGPT, by torch (`--ids`, as it has no tokenizer)",
        "`--model DIR --adapter DIR`": "LoRA as PEFT saves it: `adapter_config.json` and its "
        "`adapter_model.safetensors`",
        "`--model FILE.gguf`": f"{code([*ARCHITECTURES])}, in {numbers} (`pip install 'attnctl[gguf]'`)",
        "`--model ollama:NAME`": "the GGUF file that Ollama pulled, in its own store",
    }
    lines = [
        *table("| what it is | its `model_type` |", kinds),
        "",
        *table("| given as | what is read |", files),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(MARKED.sub(lambda match: match[1] + what_opens() + match[2], text), encoding="utf-8")
