"""A tokenizer.json takes the memory that there may be, and no more; what carries it out may do anything."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnctl.base.errors import AttnError
from attnctl.math.engine.cost import limit_memory
from attnctl.models.source import TOKENIZER, Words, load_tokenizer

FAKE = """
import os, sys, time
class Encoding:
    ids, tokens, special_tokens_mask, type_ids = [7], ["x"], [0], [0]
class Tokenizer:
    truncation = padding = None
    @staticmethod
    def from_file(path):
        {loading}
        return Tokenizer()
    def encode(self, *words, add_special_tokens=True):
        {encoding}
        return Encoding()
    def decode(self, ids, skip_special_tokens=True):
        return "x"
"""

LIMIT = 100 * 2**20
TOO_MUCH = "its tokenizer takes more than the 100.0 MiB of memory that there may be"
FAILING = {
    "a text that grows": ("", 'x = "a"\n        while True: x += x', TOO_MUCH),
    "a list that grows": ("", "x = [bytes(2**20) for _ in range(4000)]", TOO_MUCH),
    "a vocabulary that grows": ("x = bytes(2**30)", "", TOO_MUCH),
    "a library that aborts where there is no memory": (
        "",
        'print("memory allocation of 99 bytes failed", file=sys.stderr, flush=True); os.abort()',
        TOO_MUCH,
    ),
    "a library that aborts": ("", "os.abort()", "its tokenizer died of SIGABRT"),
    "a library that ends its process": ("", "os._exit(0)", "its tokenizer failed: it said nothing"),
    "a library that panics": ("", "class Panic(BaseException): pass\n        raise Panic(1)", "Panic: 1"),
    "a file of something else": ("raise Exception('no JSON')", "", "not a tokenizer: no JSON"),
    "a text that it does not take": ("", "raise TypeError('no text')", "no text"),
    "answers of nothing": ("", "Encoding.ids = object()", "not JSON serializable"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a tokenizer.json, and a library that does what is said to it."""

    def make(loading="", encoding=""):
        library = tmp_path / "library" / "tokenizers"
        library.mkdir(parents=True)
        text = FAKE.format(loading=loading or "pass", encoding=encoding or "pass")
        (library / "__init__.py").write_text(text)
        monkeypatch.syspath_prepend(str(library.parent))
        (tmp_path / TOKENIZER).write_text("{}")
        return tmp_path

    return make


@pytest.mark.sample(3)
@pytest.mark.parametrize(("loading", "encoding", "said"), FAILING.values(), ids=FAILING)
def test_a_tokenizer_that_fails_is_said(folder, loading, encoding, said):
    with pytest.raises(AttnError) as caught, limit_memory(LIMIT):
        Words(folder(loading, encoding)).tokens("a text")
    assert f"{TOKENIZER}: " in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(("size", "fits"), [(60, True), (140, False)])
def test_the_limit_is_the_one_that_was_asked(folder, size, fits):
    made = folder("", f"x = bytes({size} * 10**6)")
    with limit_memory(LIMIT):
        words = Words(made)
    if fits:
        assert words.tokens("a text").ids == [7]
        return
    with pytest.raises(AttnError, match=r"more than the 100\.0 MiB"):
        words.tokens("a text")


def test_its_process_ends_with_it(folder):
    tokenizer = load_tokenizer(folder("", "print('x' * 10**6); os.write(1, b'y')"))
    assert tokenizer.encode("a").ids == [7]
    process = tokenizer.process
    del tokenizer
    assert process.poll() is not None


def test_its_process_ends_with_the_command(folder, tmp_path):
    made = folder("open('begun', 'w').write(str(os.getpid()))", "time.sleep(600)")
    code = "import sys; from pathlib import Path; from attnctl.models.source import Words; "
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, "-c", f"{code}Words(Path(sys.argv[1])).tokens('x')", str(made)]
    process = subprocess.Popen(words, cwd=tmp_path, env=environ)
    end = time.monotonic() + 30
    while not (tmp_path / "begun").exists() or not (tmp_path / "begun").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    process.kill()
    process.wait()
    child = Path(f"/proc/{(tmp_path / 'begun').read_text()}/stat")
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.05)


# --- the library itself ---

WORDS = {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}
GROWING = {
    "replacements": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100},
    "prefixes": {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 200},
    "every place": {"type": "Replace", "pattern": {"Regex": ""}, "content": "a" * 150},
}


@pytest.mark.parametrize("one", GROWING.values(), ids=GROWING)
def test_normalizers_that_multiply_a_text_are_held_to_the_limit(tmp_path, one):
    pytest.importorskip("tokenizers")
    made = {
        "version": "1.0", "added_tokens": [], "model": WORDS,
        "normalizer": {"type": "Sequence", "normalizers": [one] * 8},
    }  # fmt: skip
    (tmp_path / TOKENIZER).write_text(json.dumps(made))
    with limit_memory(LIMIT), pytest.raises(AttnError, match=r"more than the 100\.0 MiB"):
        Words(tmp_path).tokens("a" * 10)
    made["normalizer"]["normalizers"] = [one]
    (tmp_path / TOKENIZER).write_text(json.dumps(made))
    with limit_memory(LIMIT):
        assert Words(tmp_path).tokens("a" * 10).ids


def test_it_is_asked_as_the_library_is(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import models, pre_tokenizers

    own = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    own.enable_truncation(3)
    own.enable_padding(length=5, pad_id=2, pad_token="?")
    own.save(str(tmp_path / TOKENIZER))
    words = Words(tmp_path)
    assert words.notes == ("tokenizer.json truncates to 3 and pads to 5; that is switched off",)
    own.no_truncation()
    own.no_padding()
    for text, pair in (("a b c a b", None), ("a b", "c a"), ("é b", None)):
        tokens = words.tokens(text, pair)
        encoding = own.encode(*([text] if pair is None else [text, pair]))
        assert tokens.ids == encoding.ids
        assert tokens.segments == encoding.type_ids
    assert words.tokenizer.encode("a", add_special_tokens=False).ids == [0]
    assert [words.tokenizer.id_to_token(number) for number in (1, 9)] == ["b", None]
    with pytest.raises(AttnError, match=r"TextInputSequence must be str"):
        words.tokens("\ud800")
