"""Hostile sentences: tokens that would steer a screen, a spreadsheet or a parser, or fill memory."""

# ruff: noqa: E501  (a row a line)
from attack import OK, Attack

MARKUP = {
    "markup": "[red]I[/red] love [bold]AI[/]",
    "a_closing_tag_alone": "[/INST] I love AI",
    "special_tokens": "[PAD] [UNK] [CLS] <s> </s> <|endoftext|>",
    "emoji_codes": ":smile: love :warning:",
    "links": "[link=file:///etc/passwd]I[/link] love AI",
    "formats": "{0} {sentence} %s %n ${HOME} `id` $(id)",
    "quotes": "' \" \\ \\\" ''' \\u0041 \\N{BULLET}",
    "cells": "a[0,1] b,c d#2 : -1 0",
    "formulas": "=1+1 +1 -1 @SUM(A1) =cmd|'/C_calc'!A0",
    "markdown": "| a | <script>alert(1)</script> **b** `c` [d](e) <!-- f",
    "yaml": "no on null ~ 1.0 12:30 0o10 - {a: b} !!python/object:x &a *a",
    "numbers": "0 -0 1e999 nan inf 007 ٣ ²",
    "names_of_steps": "scores attention_weights output W_Q __class__ constructor",
}
STEERING = {
    "colours": "\x1b[31mI\x1b[0m love AI",
    "a_title": "\x1b]0;owned\x07 I love AI",
    "a_link_of_the_terminal": "\x1b]8;;http://example.com\x1b\\I love AI",
    "a_cleared_screen": "\x1b[2J\x1b[H I",
    "one_byte_controls": "\x9b31mI \x90 \x9d love",
    "backspaces": "I\x08\x08\x08 lo\x7fve\rAI",
    "other_line_ends": "I\x0blove\x0cAI\x85you\u2028me\u2029all",
    "bidirectional_overrides": "\u202eI love\u202c \u2066AI\u2069 \u200f\u061c",
    "nothing_to_see": "\u200b \u2060 \ufeff \u00ad \u3164 \u034f \U000e0001 \u180e",
    "tags_of_flags": "\U0001f3f4\U000e0067\U000e0062\U000e007f I",
    "private_and_no_characters": "\ue000 \ufdd0 \uffff \U0010ffff I",
}
WIDE = {
    "combining_marks_alone": "\u0301\u0302 \u0300 \u20dd",
    "a_hundred_marks_on_a_letter": "Z" + "\u0335\u0336\u0337\u0338" * 25 + " I",
    "joined_emoji": "👨‍👩‍👧‍👦 👩🏽‍🚀 🏳️‍🌈 1️⃣ ❤️",
    "wide_characters": "我 愛 人工智慧 ｆｕｌｌ 한국어 カタカナ ｶﾅ",
    "both_directions": "שלום عالم hello",
    "one_letter_two_spellings": "é e\u0301",
    "spaces_that_are_not": "I\u00a0love\u3000AI\u2003now",
}
LARGE = {
    "one_long_token": "x" * 100_000,
    "one_token_repeated": "the " * 300,
    "many_characters_of_many_cells": "愛" * 2000,
}

SENTENCES = {
    name: Attack(f"the sentence {text[:40]!a}", ("run", "--step", "X,attention_weights", "--", text), OK)
    for name, text in {**MARKUP, **STEERING, **WIDE, **LARGE}.items()
}
for name, text in {**MARKUP, **STEERING, **WIDE}.items():
    for kind in ("json", "csv", "markdown"):
        SENTENCES[f"{name}_as_{kind}"] = Attack(
            f"the same, written as {kind}", ("run", "--brief", "--format", kind, "--", text), OK
        )
SENTENCES |= {
    "ten_thousand_tokens": Attack(
        "more scores than the memory there is", ("run", "-", "--max-memory", "1G"),
        stdin=b" ".join(b"t%d" % i for i in range(10_000)), says="more than",
    ),
    "ten_thousand_tokens_of_a_kind": Attack(
        "the same of one token, in the memory there is left", ("run", "-", "--brief", "-o", "x.npz"),
        stdin=b"the " * 10_000, says="memory",
    ),
    "thousands_of_lines": Attack(
        "a batch larger than it may be", ("run", "-", "--max-memory", "100K"), stdin=b"I\n" * 2000, says="memory"
    ),
    "bytes_in_an_argument": Attack("bytes that are no UTF-8", ("run", b"I \xff\xfe love"), says="not UTF-8"),
    "a_surrogate_in_an_argument": Attack("half a character", ("run", b"\xed\xa0\x80"), says="not UTF-8"),
    "bytes_in_the_context": Attack("the same elsewhere", ("run", "I", "--context", b"\xc3"), says="not UTF-8"),
    "bytes_in_a_cell": Attack("the same in a cell", ("explain", "good.json", b"X[\xff]"), says="not UTF-8"),
    "bytes_in_an_option": Attack("the same as an option", ("run", "I", b"--\xff"), says="not UTF-8"),
    "bytes_in_a_command": Attack("the same as a command", (b"\xff\x1b[31m",), says="not UTF-8"),
    "bytes_on_stdin": Attack("the same from a pipe", ("run", "-"), stdin=b"I\n\xff\n", says="not UTF-8 at byte 2"),
    "utf_16_in_a_file": Attack(
        "a file as some editors save it", ("run", "--file", "s.txt"),
        files={"s.txt": lambda: "I love AI".encode("utf-16")}, says="not UTF-8",
    ),
    "a_surrogate_in_a_file": Attack(
        "half a character in a file", ("run", "--file", "s.txt"), files={"s.txt": lambda: b"I \xed\xa0\x80"},
        says="not UTF-8",
    ),
    "a_byte_order_mark": Attack(
        "a mark before the first word", ("run", "--file", "s.txt", "--brief", "--format", "csv"), OK,
        files={"s.txt": lambda: b"\xef\xbb\xbfI love AI"}, says="attention_weights,0,I,I,",
    ),
    "nul_on_stdin": Attack("a character that ends a C string", ("run", "-", "--brief"), OK, stdin=b"I\0 AI\n", says="I\\x00"),
    "nothing_on_stdin": Attack("no sentence at all", ("run", "-"), says="no sentence"),
    "spaces_on_stdin": Attack("lines of nothing", ("run", "-"), stdin=b" \n\t\n\xe3\x80\x80\n", says="no sentence"),
    "a_sentence_like_an_option": Attack("a sentence that starts with -", ("run", "-I love AI"), says='put "--"'),
    "a_folder_of_sentences": Attack("a folder for a file", ("run", "--file", "."), says="directory"),
    "an_unknown_token_that_steers": Attack(
        "a message that repeats a token", ("run", "-c", "c.yaml", "--", "\x1b[31m\u202eI [red]"),
        files={"c.yaml": lambda: b"vocab: [love, AI]\n"}, says="[red]",
    ),
}  # fmt: skip
