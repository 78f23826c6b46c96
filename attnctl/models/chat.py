"""A message as a model that answers has learned to read it: by the template beside its tokenizer.

A template is a program of Jinja. It is carried out in the process of the tokenizer, which may take so much
memory and so much time and no more, in Jinja's own sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from attnctl.base.errors import AttnError
from attnctl.base.files import open_found, refuse_os_errors
from attnctl.models.gguf import is_gguf, read_gguf
from attnctl.models.tensors import json_file, path_inside

TEMPLATE, TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
LONGEST = 2**24
"""Bytes of a file that has a template."""

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_template(folder: Path) -> dict[str, Any]:
    """The template of a model, and the special tokens that it may write. Raises AttnError for none."""
    found = of_gguf(folder) if is_gguf(folder) else of_folder(folder)
    if not isinstance(found.get("template"), str):
        raise AttnError(
            f"--chat: {folder}: no chat template ({TEMPLATE}, or in {TOKENIZER_CONFIG}); it is a model "
            "that goes on with a text: leave --chat out, or give the one that was trained to answer"
        )
    return found


def of_folder(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if (folder / TOKENIZER_CONFIG).is_file():
        config = json_file(path_inside(folder, TOKENIZER_CONFIG), LONGEST)

    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        entries = [each for each in template if isinstance(each, Mapping)]
        template = next((each.get("template") for each in entries if each.get("name") == "default"), None)
    if (folder / TEMPLATE).is_file():
        path = path_inside(folder, TEMPLATE)
        with refuse_os_errors(f"{path}: cannot be read"), open_found(path) as stream:
            template = stream.read(LONGEST).decode("utf-8", errors="replace")
    return {"template": template, "special": {name: token_text(config.get(name)) for name in SPECIAL}}


def token_text(token: Any) -> str:
    """The text of a token, which may be said with how it is found."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def of_gguf(path: Path) -> dict[str, Any]:
    metadata = read_gguf(path).metadata
    texts = metadata["tokenizer.ggml.tokens"].read() if "tokenizer.ggml.tokens" in metadata else []
    special = {}
    for name in ("bos", "eos"):
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        special[f"{name}_token"] = ""
        if isinstance(number, int) and 0 <= number < len(texts):
            special[f"{name}_token"] = texts[number]
    return {"template": metadata.get("tokenizer.chat_template"), "special": special}


def render(template: str, special: Mapping[str, str], text: str) -> str:
    """The text that the model reads of a user's message, up to where its answer begins."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", answers_extension()]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)  # noqa: DTZ005  (as others)
    try:
        return str(
            environment.from_string(template).render(
                messages=[{"role": "user", "content": text}],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **special,
            )
        )
    except TemplateError as error:
        raise AttnError(f"its chat template fails: {error}") from None


def answers_extension() -> Any:
    """The tag around what an assistant says, which marks it for training and writes nothing itself."""
    from jinja2.ext import Extension

    class Answers(Extension):  # type: ignore[misc]  # jinja2 may be missing
        tags: ClassVar[set[str]] = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Answers


def to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def refuse(message: str) -> NoReturn:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)
