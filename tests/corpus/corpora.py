"""Small corpora, a model with a tokenizer of our own, and what an oracle makes of them."""

from __future__ import annotations

import json
import random
import shutil
from math import fsum, log2
from pathlib import Path

import numpy as np

import attnctl

CHECKPOINTS = Path(__file__).parents[1] / "models" / "checkpoints"
WORDS = tuple("abcdefghijklmnop")


def written(path, lines=40, seed=0):
    """A corpus of sentences of 1 to 9 words, some lines of it empty."""
    drawn = random.Random(seed)
    sentences = [" ".join(drawn.choices(WORDS, k=drawn.randint(0, 9))) for _ in range(lines)]
    path.write_text("".join(f"{each}\n" for each in sentences))
    return path


class Encoding:
    def __init__(self, ids, tokens):
        self.ids, self.tokens = ids, tokens
        self.type_ids = [0] * len(ids)
        self.special_tokens_mask = [token == "[CLS]" for token in tokens]


class WordIds:
    """What the project asks of `tokenizers.Tokenizer`: a number for each word."""

    truncation = padding = None

    def no_truncation(self):
        raise AssertionError("there is none")

    no_padding = no_truncation

    def encode(self, text, pair=None):
        words = ["[CLS]", *text.split()]
        return Encoding([1 if word == "[CLS]" else 2 + WORDS.index(word) for word in words], words)

    def decode(self, ids, *, skip_special_tokens):
        return ("[CLS]", *WORDS)[ids[0] - 1]


def model_in(folder, family="bert"):
    """A tiny trained model beside a tokenizer's file."""
    shutil.copytree(CHECKPOINTS / family, folder, copy_function=shutil.copyfile)
    (folder / "tokenizer.json").write_text(json.dumps({"words": WORDS}))
    return folder


def entropies(sentence, **options):
    """−Σ p log2 p of each row of each head, a row at a time."""
    weights = attnctl.run(sentence, keep=["attention_weights"], **options)["attention_weights"]
    return [
        [-fsum(p * log2(p) for p in row if p > 0) for row in np.asarray(head).tolist()] for head in weights
    ]
