"""The tokenizer that a GGUF file's metadata makes splits texts as the one that it was made from."""

import json

import numpy as np
import pytest
from ggufs import write_gguf

from attnctl.base.errors import AttnError
from attnctl.models.source import Words
from attnctl.models.vocabulary import merges_by_score, tokenizer_text

gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")

TEXT = "The animal did not cross the road because it was tired. Il a payé 1234 €; don't you?\n\n  x = 12"
SAMPLES = [
    "the road was tired",
    " the  road",
    "don't cross 1234",
    "payé 12€\n\n x",
    "<s>the road</s>",
    "été",  # composed, and as letters with their accents
    "e\u0301te\u0301",
    "🙂",
]


def trained(pre):
    """A tokenizer of bytes as people train one, its pieces those of this program."""
    from attnctl.models.vocabulary import COMPOSED, PIECES, WHOLE_FIRST

    whole = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "NFC"} if pre in COMPOSED else None,
        "pre_tokenizer": PIECES[pre],
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {}, "merges": [], "ignore_merges": pre in WHOLE_FIRST},
    }
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(whole))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    return tokenizer


def words_of(path, pre, tokens, types, *, merges=(), model="gpt2", scores=None, **more):
    """What reads the texts for a file with these tokens and no tensors."""

    def add(writer):
        writer.add_tokenizer_model(model)
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        if merges:
            writer.add_token_merges(merges)
        if scores is not None:
            writer.add_token_scores(scores)
        for name, value in more.items():
            getattr(writer, f"add_{name}")(value)

    return Words(write_gguf(path, "llama", {}, {}, tokens=[add]))


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "smollm", "gpt-4o", "tekken"])
def test_pairs_of_bytes_are_merged_as_they_were_trained(tmp_path, pre):
    right = trained(pre)
    data = json.loads(right.to_str())
    tokens = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
    types = [3 if token in {"<s>", "</s>"} else 1 for token in tokens]
    merges = [" ".join(pair) for pair in data["model"]["merges"]]
    words = words_of(tmp_path / "x.gguf", pre, tokens, types, merges=merges, add_bos_token=False)
    for text in SAMPLES:
        assert words.tokens(text).ids == right.encode(text).ids, text


def test_a_beginning_is_put_before_a_text_where_the_file_says_so(tmp_path):
    right = trained("gpt-2")
    data = json.loads(right.to_str())
    tokens = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
    merges = [" ".join(pair) for pair in data["model"]["merges"]]
    types = [3, 3, *[1] * (len(tokens) - 2)]
    both = {"bos_token_id": 0, "eos_token_id": 1}
    words = words_of(tmp_path / "x.gguf", "gpt-2", tokens, types, merges=merges, add_bos_token=True, **both)
    found = words.tokens("the road")
    assert found.ids == [0, *right.encode("the road").ids]
    assert found.labels[0] == "<s>"
    assert found.special == (0,)


PIECES = ["<unk>", "<s>", "</s>", "<0xE2>", "<0x82>", "<0xAC>", "▁", "a", "b", "c", "▁a", "ab", "▁ab", "bc"]
SCORES = [0.0] * 6 + [-10.0, -11.0, -12.0, -13.0, -3.0, -2.0, -1.0, -4.0]
TYPES = [2, 3, 3, 6, 6, 6, *[1] * 8]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("abc", ["<s>", "▁ab", "c"]),  # ab comes before bc, and then ▁ab
        ("bc", ["<s>", "▁", "bc"]),
        ("a a", ["<s>", "▁a", "▁a"]),
        ("€", ["<s>", "▁", "<0xE2>", "<0x82>", "<0xAC>"]),
        ("x", ["<s>", "▁", "<unk>"]),
    ],
)
def test_pieces_are_joined_by_the_best_score(tmp_path, text, labels):
    words = words_of(
        tmp_path / "x.gguf", "default", PIECES, TYPES, model="llama", scores=SCORES, bos_token_id=1
    )
    assert [PIECES[number] for number in words.tokens(text).ids] == labels


def test_no_space_is_put_before_a_text_where_the_file_says_so(tmp_path):
    words = words_of(
        tmp_path / "x.gguf",
        "default",
        PIECES,
        TYPES,
        model="llama",
        scores=SCORES,
        bos_token_id=1,
        add_space_prefix=False,
    )
    assert [PIECES[number] for number in words.tokens("abc").ids] == ["<s>", "ab", "c"]


def test_every_pair_that_makes_a_piece_is_a_merge():
    vocabulary = {text: number for number, text in enumerate(PIECES)}
    found = merges_by_score(vocabulary, np.array(SCORES), TYPES)
    assert found == [("▁", "ab"), ("▁a", "b"), ("a", "b"), ("▁", "a"), ("b", "c")]


@pytest.mark.parametrize(
    ("model", "pre", "more", "message"),
    [
        ("gpt2", "klingon", {"merges": ["a b"]}, "it cuts texts as 'klingon' does, which is not known"),
        ("gpt2", "gpt-2", {}, "no tokenizer.ggml.merges"),
        ("bert", "gpt-2", {}, "tokenizer.ggml.model 'bert' is not read; only gpt2 or llama"),
        ("llama", "default", {}, "no score for each token"),
    ],
)
def test_other_tokenizers_are_refused_by_name(tmp_path, model, pre, more, message):
    with pytest.raises(AttnError) as caught:
        words_of(tmp_path / "x.gguf", pre, PIECES, TYPES, model=model, **more)
    assert message in str(caught.value)
    assert "--ids 1,2,3" in str(caught.value)


def test_a_file_without_tokens_asks_for_ids(tmp_path):
    path = write_gguf(tmp_path / "x.gguf", "llama", {}, {})
    with pytest.raises(AttnError, match="it has no tokens; give the ids"):
        tokenizer_text(path)
