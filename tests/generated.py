"""What follows from the tables and is read as text: keywords with their types, and the schema of configs.

Type checkers and editors read files. Every run of the tests writes these two where they are not up to date
(`conftest.py`); .ci/run fails where what they write is not checked in.
"""

import os
import re
from pathlib import Path

from attnctl.inputs.config.fields import KEYWORDS, OF_ARRAYS
from attnctl.inputs.config.form import json_schema
from attnctl.store.files import json_text

ROOT = Path(__file__).parent.parent
OPTIONS, SCHEMA = ROOT / "attnctl" / "options.py", ROOT / "configs" / "attnctl.schema.json"
MARKS = re.compile(
    r"(?<=# \[written by the tests: tests/generated.py\]\n).*?(?=# \[to here\]\n)", re.DOTALL
)

OBJECTS = {
    "vocab": "Sequence[str] | Mapping[str, int]",
    "tokenizer": "Tokenizer | Mapping[str, Any]",
    "embeddings": "Embeddings | Random | Array | Mapping[str, Any]",
    "positions": "str | Rotary | Mapping[str, Any] | Table",
    "weights": "Weights | Mapping[str, Any]",
    "rules": "Sequence[Rule | str | Mapping[str, Any]]",
    "qk_norm": "HeadNorm | Literal['rms', 'layer'] | Mapping[str, Any]",
    "mask": "Table",
    "bias": "Table",
}
"""Settings that may be given as objects or arrays, too, which no schema says."""

PLAIN = {"integer": "int", "number": "float", "boolean": "bool", "string": "str"}


def type_of(schema):
    """int | Literal['lengths'] of what a JSON Schema lets through, None at its end."""
    kinds = dict.fromkeys(kinds_of(schema))
    return " | ".join(sorted(kinds, key=lambda kind: kind == "None"))


def kinds_of(schema):
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return [kind for each in several for kind in kinds_of(each)]
    if "enum" in schema:
        words = [each for each in schema["enum"] if each is not None]
        return [f"Literal[{', '.join(map(repr, words))}]", *["None"] * (None in schema["enum"])]
    if schema.get("type") == "array":
        return [f"Sequence[{type_of(schema['items'])}]"]
    if "$ref" in schema or schema.get("type") == "object":
        return ["Mapping[str, Any]"]
    return ["str" if isinstance(schema["type"], list) else PLAIN[schema["type"]]]


def line(name, setting):
    kind = OBJECTS.get(name) or type_of(setting.reader.schema).removesuffix(" | None")
    return f"    {name}: {kind.replace(chr(39), chr(34))} | None\n"


def written_options():
    """The two classes of keywords."""
    options = [
        line(name, setting) for name, setting in KEYWORDS.items() if name not in {"sentence", *OF_ARRAYS}
    ]
    return f'''class Options(TypedDict, total=False):
    """Settings, each as a config has it; what is None stays as it is."""

{"".join(options)}    max_memory: int | None


class ArrayOptions(Options, total=False):
    """Options for arrays, which may be laid out in several ways."""

{"".join(line(name, each) for name, each in OF_ARRAYS.items())}

'''


def write():
    """Write what is not up to date; several test processes may do so side by side."""
    options = MARKS.sub(lambda _: written_options(), OPTIONS.read_text())
    for path, text in ((OPTIONS, options), (SCHEMA, json_text(json_schema(), indent=2) + "\n")):
        if path.read_text() != text:
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_text(text)
            fresh.replace(path)
