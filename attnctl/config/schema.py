"""From plain data to Settings, and the format as a JSON Schema."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from attnctl.config.format import (
    Config,
    FileSource,
    PositionsForm,
    RandomSource,
    RuleForm,
    WeightsForm,
)
from attnctl.config.forms import Json, validated
from attnctl.config.scalars import BadValueError
from attnctl.config.settings import (
    NONE,
    FromFile,
    Path,
    PositionSetting,
    Random,
    Settings,
    Tokenizer,
    Weights,
)
from attnctl.config.yaml import json_path
from attnctl.derivation import Rotary
from attnctl.errors import AttnError
from attnctl.rules import Alibi, Causal, Rule, Softcap, Window

NORMAL = Random()


def validate(data: Any, where: Callable[[Path], str] = json_path) -> Settings:
    """The settings that plain data describe, such as `Settings.to_dict` makes.

    Raises AttnError with every problem, each at `where(path)`.
    """
    try:
        return replace(settings_of(data), where=where)
    except BadValueError as bad:
        raise AttnError(f"{where(path)}: {text}" for path, text in bad.problems) from None


def settings_of(data: Any, folder: str = "") -> Settings:
    """The settings that plain data describe; relative files are looked for in `folder`.

    Raises BadValueError with every problem and its path.
    """
    made = validated(Config, data).given()
    positions, rules = made.pop("positions", NONE), made.pop("rules", [])
    if positions == "alibi" and "alibi" not in rules:
        rules = [*rules, "alibi"]
    made |= {"positions": positions_of(positions)} | rules_of(rules)
    if "edits" in made:
        made["edits"] = tuple(made["edits"])
    if "tokenizer" in made:
        made["tokenizer"] = Tokenizer(**made["tokenizer"].given())
    if "embeddings" in made:
        made["embeddings"] = source_of(made["embeddings"], folder, Settings().embeddings)
    if "weights" in made:
        made["weights"] = weights_of(made["weights"], folder)
    return Settings(**made)


def source_of(value: Any, folder: str, drawn: Any = NORMAL) -> Any:
    """Numbers as they stand, or where to get them; how to draw is `drawn` where the file is silent."""
    match value:
        case RandomSource(random=options):
            return replace(drawn, **options.given())
        case FileSource(file=file, name=name):
            return FromFile(os.path.join(folder, file), name)  # noqa: PTH118  pathlib would rewrite ./x
        case _:
            return value


def weights_of(form: WeightsForm, folder: str) -> Weights:
    """The weights, tensor by tensor."""
    tensors = form.given()
    heads, random, file = tensors.pop("heads", []), tensors.pop("random", None), tensors.pop("file", None)
    return Weights(
        {name: source_of(value, folder) for name, value in tensors.items()},
        tuple({name: source_of(value, folder) for name, value in head.given().items()} for head in heads),
        Random(**random.given()) if random else NORMAL,
        os.path.join(folder, file) if file else None,  # noqa: PTH118  pathlib would rewrite ./x
    )


def positions_of(value: Any) -> PositionSetting:
    """How tokens know where they stand; ALiBi is a rule and so none of this."""
    match value:
        case PositionsForm(rope=None):
            return value.learned
        case PositionsForm(rope=options):
            return Rotary(**options.given())
        case "rope":
            return Rotary()
        case "alibi":
            return NONE
        case _:
            return value


def rules_of(written: list[Any]) -> Json:
    """The rules that need no table, and the tables."""
    rules: list[Rule] = []
    tables: Json = {}
    for rule in written:
        match rule:
            case "causal":
                rules.append(Causal())
            case "alibi":
                rules.append(Alibi())
            case RuleForm(window=(left, right)):
                rules.append(Window(left, right))
            case RuleForm(softcap=float(cap)):
                rules.append(Softcap(cap))
            case _:
                tables |= rule.given()
    return {"rules": tuple(rules), **tables}


def json_schema() -> Json:
    """The format of a config as a JSON Schema, for an editor's completion and checks."""
    schema = Config.model_json_schema(schema_generator=Editors)
    for name, default in Settings().to_dict().items():
        schema["properties"][name]["default"] = default
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema, "title": "attnctl config"}


class Editors(GenerateJsonSchema):
    """Without the titles and null defaults that pydantic would invent."""

    def default_schema(self, schema: Any) -> Json:
        """A key that may be left out, without saying that it is then null."""
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No titles: the name of a key is its title."""
        return False
