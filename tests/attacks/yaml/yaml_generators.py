"""Hostile configs that are too large, or too binary, to keep as files; each says what it tries."""

from collections.abc import Callable

GENERATORS: dict[str, Callable[[], bytes]] = {}


def hostile(make: Callable[[], str | bytes]) -> None:
    """Enter a generator into the corpus under its name."""

    def as_bytes() -> bytes:
        made = make()
        return made.encode() if isinstance(made, str) else made

    GENERATORS[make.__name__] = as_bytes


@hostile
def brackets():
    """A nesting that overflows the stack of a recursive loader."""
    return "weights: " + "[" * 100_000


@hostile
def closed_brackets():
    """The same, well-formed."""
    return "weights: " + "[" * 100_000 + "]" * 100_000


@hostile
def braces():
    """Mappings within mappings on one line."""
    return "{a: " * 100_000


@hostile
def dashes():
    """Lists within lists in block style, all on one line."""
    return "- " * 1_000_000


@hostile
def steps():
    """Mappings within mappings, a line and a space deeper each."""
    return "".join(" " * i + "a:\n" for i in range(3000))


@hostile
def question_marks():
    """Keys that are mappings whose keys are mappings."""
    return "? " * 1_000_000


@hostile
def zero_bytes():
    """NUL where text should be."""
    return b"sentence: I\0love\0AI\n"


@hostile
def escape_bytes():
    """A terminal sequence in the raw text."""
    return b"sentence: \x1b[31mred\n"


@hostile
def latin_1():
    """A file in another encoding."""
    return "sentence: café\n".encode("latin-1")


@hostile
def utf_16():
    """A file as some editors save it."""
    return "sentence: I love AI\n".encode("utf-16")


@hostile
def overlong_utf_8():
    """A slash in two bytes, and a surrogate in three."""
    return b"sentence: \xc0\xaf \xed\xa0\x80\n"


@hostile
def picture():
    """A picture where a config should be."""
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@hostile
def archive():
    """An archive where a config should be."""
    return b"PK\x03\x04\x14\0\0\0"


@hostile
def huge_comment():
    """A file above any sensible size."""
    return b"#" * (64 * 2**20 + 1)


@hostile
def many_empty_lists():
    """The most values for a byte, so that memory runs out."""
    return b"weights: [" + b"[]," * (21 * 2**20) + b"]"


@hostile
def many_numbers():
    """A row of very many numbers, the last of them a word."""
    return b"embeddings: [[" + b"1," * 300_000 + b"x]]"


@hostile
def many_keys():
    """More unknown keys than anyone wants to read about."""
    return "".join(f"key{i}: 1\n" for i in range(100_000))


@hostile
def one_key_many_times():
    """One key given a million times."""
    return "heads: 1\n" * 200_000


@hostile
def many_anchors():
    """An anchor for each of many values, and an alias for each."""
    return "".join(f"a{i}: &a{i} [x]\nb{i}: *a{i}\n" for i in range(50_000))


@hostile
def many_tag_directives():
    """Directives that libyaml compares each with each."""
    return "".join(f"%TAG !t{i}! tag:x,2000:{i}\n" for i in range(500_000)) + "---\nheads: 1\n"


@hostile
def many_documents():
    """A stream of configs."""
    return "---\nheads: 1\n" * 100_000


@hostile
def long_key():
    """A key longer than YAML lets a simple key be."""
    return "k" * 100_000 + ": 1\n"


@hostile
def long_key_in_quotes():
    """The same in quotes and announced, so that it is a key after all."""
    return '? "' + "k" * 1_000_000 + '"\n: 1\n'


@hostile
def long_tag():
    """A tag of a megabyte."""
    return "heads: !" + "t" * 1_000_000 + " 1\n"


@hostile
def long_anchor():
    """An alias of a megabyte."""
    return "heads: *" + "a" * 1_000_000 + "\n"


@hostile
def long_number():
    """Digits that take quadratic time to read."""
    return "d_model: " + "9" * 1_000_000 + "\nscale: " + "9" * 1_000_000 + "\n"


@hostile
def long_numbers_in_a_row():
    """The same within a matrix."""
    return "embeddings: [[" + ", ".join(["9" * 100_000] * 10) + "]]\n"


@hostile
def nested_in_one_word():
    """Brackets within a plain word, for a reader that takes a row of words for JSON."""
    return "embeddings:\n- - 1, " + "[" * 100_000 + "\n"


@hostile
def many_wrong_cells():
    """A problem in each cell of a large matrix."""
    return "embeddings:\n" + ("  - [" + ", ".join(["x"] * 64) + "]\n") * 5000


@hostile
def spaces():
    """Very much of nothing, then a mistake."""
    return "heads:" + " " * 10_000_000 + "two\n"


@hostile
def line_ends():
    """Every kind of line end there is, then a mistake."""
    return "\r\n\x85\u2028\u2029\r" * 1_000_000 + "heads: two\n"


@hostile
def escapes():
    """A word made of escapes, which grows no limit."""
    return 'heads: "' + "\\U0001F600" * 500_000 + '"\n'
