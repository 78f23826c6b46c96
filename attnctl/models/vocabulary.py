"""The tokenizer of a GGUF file, as the tokenizer.json that would split texts as it does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import one_of, quote
from attnctl.models.gguf import Texts, read_gguf

SPACE = "\u2581"
"""What stands for a space in the vocabularies of SentencePiece."""

CONTROL, USER_DEFINED, UNUSED, BYTE = 3, 4, 5, 6
"""Types of tokens that are no plain piece of text."""

LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{LETTERS}|\p{{N}}{{1,3}}|{REST}"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def by_case(suffix: str, digits: str) -> str:
    """Words, and parts of them that begin with capitals."""
    start = r"[^\r\n\p{L}\p{N}]?"
    words = [f"{start}[{UPPER}]*[{LOWER}]+{suffix}", f"{start}[{UPPER}]+[{LOWER}]*{suffix}"]
    rest = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    return "|".join([*words, digits, rest])


TEKKEN = by_case("", r"\p{N}")
GPT4O = by_case(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")
QWEN2 = rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{LETTERS}|\p{{N}}|{REST}"

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
GPT2_STEP = {**BYTES, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}

BY_DIGIT = {"type": "Sequence", "pretokenizers": [DIGITS, GPT2_STEP]}


def split_by(pattern: str) -> dict[str, Any]:
    """Pieces by a pattern, then bytes as letters."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**BYTES, "use_regex": False}]}


PIECES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("default", "gpt-2", "gpt2"), GPT2_STEP),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"), split_by(LLAMA3)),
    **dict.fromkeys(("gpt-4o", "llama4"), split_by(GPT4O)),
    "tekken": split_by(TEKKEN),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), split_by(QWEN2)),
    **dict.fromkeys(("smollm", "starcoder", "refact"), BY_DIGIT),
}
"""How a text is cut before pairs are merged, by `tokenizer.ggml.pre`."""

WHOLE_FIRST = ("llama-bpe", "llama3", "llama-v3", "tekken")
"""Those that take a piece that is a token as it is, whatever its merges are."""

COMPOSED = ("qwen2", "deepseek-r1-qwen")
"""Those that compose letters and their accents first (NFC)."""


def tokenizer_text(path: Path) -> str:
    """The tokenizer.json of a GGUF file. Raises AttnError for kinds that are not read."""
    metadata = read_gguf(path).metadata
    kind = metadata.get("tokenizer.ggml.model")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, Texts) or not tokens.length:
        raise AttnError(f"{path}: it has no tokens; give the ids of tokens instead: --ids 1,2,3")

    makers = {"gpt2": bytes_of, "llama": pieces_of}
    if not isinstance(kind, str) or kind not in makers:
        instead = "give the ids of tokens: --ids 1,2,3"
        raise AttnError(
            f"{path}: tokenizer.ggml.model {quote(str(kind))} is not read; only {one_of(makers)}; {instead}"
        )
    texts = tokens.read()
    made = makers[kind](metadata, texts, path)
    return json.dumps({"version": "1.0", **made, "added_tokens": added(metadata, texts)})


def types_of(metadata: Mapping[str, Any], count: int) -> Sequence[int]:
    types = metadata.get("tokenizer.ggml.token_type")
    if isinstance(types, np.ndarray) and len(types) == count:
        return [int(number) for number in types]
    return [1] * count


def added(metadata: Mapping[str, Any], texts: Sequence[str]) -> list[dict[str, Any]]:
    """The tokens that are found in a text before it is cut."""
    found = []
    for number, (text, kind) in enumerate(zip(texts, types_of(metadata, len(texts)), strict=True)):
        if kind in {CONTROL, USER_DEFINED} and text:
            token = {"id": number, "content": text, "special": kind == CONTROL, "single_word": False}
            found.append({**token, "lstrip": False, "rstrip": False, "normalized": False})
    return found


def first_of_all(
    metadata: Mapping[str, Any], texts: Sequence[str], *, otherwise: bool
) -> dict[str, Any] | None:
    """The step that puts the tokens of a beginning and an end around a text, where the model has them."""
    pieces: list[Any] = [{"Sequence": {"id": "A", "type_id": 0}}]
    special: dict[str, Any] = {}
    ends = {"bos": otherwise, "eos": False}
    for name, is_usual in ends.items():
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        is_added = metadata.get(f"tokenizer.ggml.add_{name}_token", is_usual)
        if not is_added or not isinstance(number, int) or not 0 <= number < len(texts):
            continue
        text = texts[number]
        special[text] = {"id": text, "ids": [number], "tokens": [text]}
        token = {"SpecialToken": {"id": text, "type_id": 0}}
        pieces = [token, *pieces] if name == "bos" else [*pieces, token]
    if not special:
        return None
    pair = [*pieces, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": pieces, "pair": pair, "special_tokens": special}


def vocabulary_of(texts: Sequence[str]) -> dict[str, int]:
    """The number of each text; of one that is there twice, the first."""
    vocabulary: dict[str, int] = {}
    for number, text in enumerate(texts):
        vocabulary.setdefault(text, number)
    return vocabulary


def bytes_of(metadata: Mapping[str, Any], texts: Sequence[str], path: Path) -> dict[str, Any]:
    """Pairs of bytes that are merged, as GPT-2 has them."""
    name = metadata.get("tokenizer.ggml.pre", "default")
    if not isinstance(name, str) or name not in PIECES:
        raise AttnError(
            f"{path}: it cuts texts as {quote(str(name))} does, which is not known; known are "
            f"{', '.join(sorted(PIECES))}; give the ids of tokens: --ids 1,2,3"
        )
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, Texts):
        raise AttnError(f"{path}: no tokenizer.ggml.merges; give the ids of tokens: --ids 1,2,3")

    pairs = [pair.split(" ", 1) for pair in merges.read()]
    model = {
        "type": "BPE",
        "vocab": vocabulary_of(texts),
        "merges": [pair for pair in pairs if len(pair) == 2],
        "ignore_merges": name in WHOLE_FIRST,
        "fuse_unk": False,
        "byte_fallback": False,
    }
    return {
        "normalizer": {"type": "NFC"} if name in COMPOSED else None,
        "pre_tokenizer": PIECES[name],
        "post_processor": first_of_all(metadata, texts, otherwise=name in WHOLE_FIRST),
        "decoder": {**BYTES, "use_regex": True},
        "model": model,
    }


def pieces_of(metadata: Mapping[str, Any], texts: Sequence[str], path: Path) -> dict[str, Any]:
    """Pieces of SentencePiece: of two that stand together, those whose joined piece has the best score."""
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(texts):
        raise AttnError(f"{path}: no score for each token; give the ids of tokens: --ids 1,2,3")

    vocabulary = vocabulary_of(texts)
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    model = {
        "type": "BPE",
        "vocab": vocabulary,
        "merges": merges_by_score(vocabulary, scores, types_of(metadata, len(texts))),
        "unk_token": texts[unknown] if isinstance(unknown, int) and 0 <= unknown < len(texts) else None,
        "fuse_unk": True,
        "byte_fallback": True,
    }
    spaces: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    decoders = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        spaces = [{"type": "Prepend", "prepend": SPACE}, *spaces]
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": spaces},
        "pre_tokenizer": None,
        "post_processor": first_of_all(metadata, texts, otherwise=True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }


LONGEST_PIECE = 64
"""Letters of a piece that is cut in two in every way: no vocabulary has longer ones that are merged."""


def merges_by_score(
    vocabulary: Mapping[str, int], scores: Any, types: Sequence[int]
) -> list[tuple[str, str]]:
    """Every pair of pieces that makes a third, the best first."""
    found: list[tuple[float, int, int, int, str, str]] = []
    for text, number in vocabulary.items():
        if types[number] in {CONTROL, UNUSED, BYTE} or not 2 <= len(text) <= LONGEST_PIECE:
            continue
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in vocabulary and right in vocabulary:
                order = (-float(scores[number]), number, vocabulary[left], vocabulary[right])
                found.append((*order, left, right))
    found.sort()
    return [(left, right) for *_, left, right in found]
