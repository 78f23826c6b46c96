"""Pieces of byte-level vocabularies are shown as the text that they stand for."""

import json

import pytest
from command_line import call

from attnctl.base.pieces import byte_of_letter, bytes_of_piece, read_pieces, text_of_piece


def test_the_alphabet_is_that_of_tokenizers():
    tokenizers = pytest.importorskip("tokenizers")
    assert {*byte_of_letter()} == {*tokenizers.pre_tokenizers.ByteLevel.alphabet()}
    assert len(byte_of_letter()) == 256


@pytest.mark.parametrize("text", ["a b", "été", "\n\n", "日本", "👩\u200d🚀", "\x00\x7f\xad"])
def test_a_piece_reads_as_the_text_that_a_tokenizer_cut(text):
    tokenizers = pytest.importorskip("tokenizers")
    cutter = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ((piece, _),) = cutter.pre_tokenize_str(text)
    assert text_of_piece(piece) == text
    assert bytes_of_piece(piece) == text.encode()


def test_a_part_of_a_character_reads_as_its_bytes():
    assert text_of_piece("ðŁĻ") == "<0xF0><0x9F><0x99>"
    assert text_of_piece("Ĥ") == "<0x82>"


READ = {
    "words of GPT-2": (["I", "Ġlove", "ĠAI", "Ċ", "Ġ"], ["I", "love", "AI", "\n", " "]),
    "a special token": (["<|endoftext|>", "ĠcafÃ©"], ["<|endoftext|>", "café"]),
    "an emoji in two pieces": (["Ġ", "ðŁĻ", "Ĥ"], [" ", "<0xF0><0x9F><0x99>", "<0x82>"]),
    "plain words": (["I", "love", "AI"], ["I", "love", "AI"]),
    "words with accents": (["café", "Ãtre"], ["café", "Ãtre"]),
    "Maltese": (["Ġorġ", "jħobb", "Ċ"], ["Ġorġ", "jħobb", "Ċ"]),
    "a list that has spaces of its own": (["Ġanni", "u jien"], ["Ġanni", "u jien"]),
    "SentencePiece": (["▁I", "▁love"], ["▁I", "▁love"]),
}


@pytest.mark.parametrize(("tokens", "expected"), READ.values(), ids=READ)
def test_lists_of_pieces_are_read_and_words_stay(tokens, expected):
    assert read_pieces(tokens) == expected


def shown_by(tokens, sentence, tmp_path, *more):
    path = tmp_path / "run.json"
    dump = json.loads(call("run", "a b c", "-o", "-", "--format", "json")[1])
    path.write_text(json.dumps(dump | {"tokens": tokens, "sentence": sentence}))
    code, out, err = call("show", path, *more)
    assert code == 0, err
    return out


def test_a_dump_with_pieces_is_shown_with_words(tmp_path):
    screen = shown_by(["I", "ĠcafÃ©", "Ċ"], "I café\n", tmp_path, "--step", "A")
    assert "café" in screen
    assert "\\n" in screen
    assert not {*"ĠĊÃ"} & {*screen}

    code, out, _ = call("explain", tmp_path / "run.json", "A[I,café]")
    assert code == 0
    assert "attention_weights[0,I,café]" in out

    shown_by(
        ["I", "ĠcafÃ©", "Ċ"],
        "I café\n",
        tmp_path,
        "-o",
        tmp_path / "run.svg",
        "-o",
        tmp_path / "run.json.html",
    )
    assert "Ġ" not in (tmp_path / "run.svg").read_text()
    again = json.loads(shown_by(["I", "ĠcafÃ©", "Ċ"], "", tmp_path, "-o", "-", "--format", "json"))
    assert again["tokens"] == ["I", "ĠcafÃ©", "Ċ"]  # a dump keeps what it was given


def test_words_of_maltese_stay_words(tmp_path):
    assert "Ġanni" in shown_by(["Ġanni", "u", "jien"], "Ġanni u jien", tmp_path)
