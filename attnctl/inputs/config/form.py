"""From plain data to Settings, and the form of a config as a JSON Schema. No text is read here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from attnctl.base.errors import AttnError
from attnctl.base.setting import Form, definitions
from attnctl.base.values import BadValueError, Json, Path, Problem, flow, json_path
from attnctl.base.words import dims, plural
from attnctl.inputs.config.fields import FIELDS, ROPE_OPTIONS, RULE_SETTINGS, TOKENIZER, lay_over
from attnctl.inputs.config.settings import FromFile, Settings, Weights
from attnctl.inputs.config.tensors import WEIGHTS
from attnctl.math.kind import QK_NORM_OPTIONS
from attnctl.math.names import MEMORY, TABLE, X
from attnctl.math.rules import RULES

ELSEWHERE = {
    **{setting.name: f"rules: [{flow(setting.in_config)}]" for setting in RULE_SETTINGS},
    **{name: f"weights: {{{name}: …}}" for name in WEIGHTS.keys if name not in FIELDS},
    **{name: f"positions: {{rope: {{{name}: …}}}}" for name in ROPE_OPTIONS.keys},
    **{name: f"tokenizer: {{{name}: …}}" for name in TOKENIZER.keys},
    **{name: f"qk_norm: {{{name}: …}}" for name in QK_NORM_OPTIONS.keys},
}
"""What to write for keys that stand at the top and belong below another one."""


def elsewhere(key: str, value: Any) -> str | None:
    if key not in ELSEWHERE:
        return None
    is_rule = isinstance(value, str) and value in RULES  # mask: causal
    return f"rules: [{value}]" if is_rule else ELSEWHERE[key]


def weight_misfits(given: Json) -> Iterator[Problem]:
    """Weights of X without a row for each dimension of the embeddings; a plan compares every shape."""
    width = given.get("d_model") or columns_of(given.get("embeddings"))
    if not width:
        return

    for path, rows in given.get("weights", Weights()).written():
        name = str(path[-1])
        reads_x = name == "W" or TABLE[name].of in {X, MEMORY}
        if reads_x and isinstance(rows, list) and len(rows) != width:
            shape = dims((len(rows), len(rows[0])))
            yield path, f"{shape}, expected {plural(width, 'row')} (d_model)"


def columns_of(embeddings: Any) -> int | None:
    """d_model of embeddings that are written out, by token or row by row."""
    rows = list(embeddings.values()) if isinstance(embeddings, Mapping) else embeddings
    return len(rows[0]) if isinstance(rows, list) and rows else None


CONFIG = Form(
    "attnctl config",
    "A run of attnctl: what to attend to, with which weights. Every key may be left out.",
    FIELDS.values(),
    lambda given: lay_over(Settings(), given),
    elsewhere=elsewhere,
    misfits=weight_misfits,
)


def validate(data: Any, where: Callable[[Path], str] = json_path) -> Settings:
    """The settings that plain data describe. Raises AttnError with every problem, each at `where(path)`."""
    try:
        return replace(settings_of(data), where=where)
    except BadValueError as bad:
        raise AttnError(f"{where(path)}: {text}" for path, text in bad.problems) from None


def settings_of(data: Any, folder: str = "") -> Settings:
    """The settings of plain data, with files in `folder`. Raises BadValueError with every problem."""
    # pathlib would rewrite ./x
    return with_files(CONFIG(data), lambda file: os.path.join(folder, file))  # noqa: PTH118


def with_files(settings: Settings, path_of: Callable[[str], str]) -> Settings:
    """The settings, `path_of(file)` in place of each file that they name."""

    def moved(tensor: Any) -> Any:
        return replace(tensor, path=path_of(tensor.path)) if isinstance(tensor, FromFile) else tensor

    def all_moved(tensors: Mapping[str, Any]) -> Json:
        return {name: moved(tensor) for name, tensor in tensors.items()}

    weights = settings.weights
    weights = replace(
        weights,
        tensors=all_moved(weights.tensors),
        heads=tuple(map(all_moved, weights.heads)),
        file=path_of(weights.file) if weights.file else None,
    )
    return replace(settings, embeddings=moved(settings.embeddings), weights=weights)


def json_schema() -> Json:
    schema = CONFIG.definition
    for name, default in Settings().to_dict().items():
        schema["properties"][name]["default"] = default

    forms = dict(definitions(CONFIG))
    others = {name: form for name, form in sorted(forms.items()) if name != CONFIG.name}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": others, **schema}
