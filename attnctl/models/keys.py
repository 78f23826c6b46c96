"""Keys of a config.json: what they are called, what each may say, and what follows from several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from attnctl.base.dataclass import dataclass
from attnctl.base.words import quote

Config = Mapping[str, Any]
"""A config.json, or the part of one that is about a stack of layers."""

LARGEST = 2**31
LARGEST_NUMBER = 1e30
MOST_TIMES = 10_000


class KeyKind(NamedTuple):
    expected: str
    fits: Callable[[Any], bool]


def is_count(value: Any, least: int = 1) -> bool:
    """True if it is a whole number from `least` on that a model can have of anything."""
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return least <= value < LARGEST


def is_number(value: Any) -> bool:
    """True if it is a number that float32 holds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < LARGEST_NUMBER


COUNT = KeyKind("a whole number from 1", is_count)
INDEX = KeyKind("a whole number from 0", lambda value: is_count(value, 0))


def is_side(value: Any) -> bool:
    """True for the side of a square, as one number or as its height and its width."""
    if isinstance(value, list):
        return len(value) == 2 and is_count(value[0]) and value[0] == value[1]
    return is_count(value)


SIDE = KeyKind("a whole number from 1, or the same one twice", is_side)
EVEN = KeyKind("an even number from 2", lambda value: is_count(value, 2) and value % 2 == 0)
NUMBER = KeyKind("a number above 0", lambda value: is_number(value) and value > 0)
AMOUNT = KeyKind("a number from 0", lambda value: is_number(value) and value >= 0)
EPSILON = KeyKind("a number from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1)
FLAG = KeyKind("true or false", lambda value: isinstance(value, bool))
TEXT = KeyKind("a text", lambda value: isinstance(value, str))
TABLE = KeyKind("an object", lambda value: isinstance(value, Mapping))
UNTYPED = KeyKind(
    "an object with rope_type, not type", lambda value: TABLE.fits(value) and "type" not in value
)


def is_by_type(value: Any) -> bool:
    """True if it is an object with an object, or null, for each type of layer."""
    if not TABLE.fits(value):
        return False
    if not all(name.endswith("_attention") for name in value):
        return False
    return all(part is None or TABLE.fits(part) for part in value.values())


BY_TYPE = KeyKind("an object by type of layer", is_by_type)


def read_list(expected: str, kind: KeyKind) -> KeyKind:
    return KeyKind(expected, lambda value: isinstance(value, list) and all(map(kind.fits, value)))


TEXTS = read_list("a list of texts", TEXT)
INDICES = read_list("a list of whole numbers", INDEX)
NUMBERS = read_list("a list of numbers above 0", NUMBER)
COUNT_LIST = read_list("a list of whole numbers from 1", COUNT)
COUNTS = KeyKind(f"{COUNT.expected}, or a list", lambda value: COUNT.fits(value) or COUNT_LIST.fits(value))
SHARE = KeyKind("a number from 0 to below 1", lambda value: EPSILON.fits(value) and value < 1)
SHARES = read_list("a list of numbers from 0 to below 1", SHARE)


def is_types_times(value: Any) -> bool:
    """True for [[["global", "local"], 12]]: types of layers that take turns, and how often."""
    if not isinstance(value, list):
        return False
    if not all(isinstance(part, list) and len(part) == 2 for part in value):
        return False
    return all(TEXTS.fits(names) and is_count(times) and times < MOST_TIMES for names, times in value)


TYPES_TIMES = KeyKind("a list of types of layers, and how many times", is_types_times)


def is_plain_alibi(value: Any) -> bool:
    if not TABLE.fits(value):
        return False
    for name, part in value.items():
        if name not in OF_MPT and not name.startswith("_"):
            return False
        known = OF_MPT.get(name)
        if known and part not in known:
            return False

    scale = value.get("softmax_scale")
    return scale is None or NUMBER.fits(scale)


PLAIN_ALIBI = KeyKind(
    "an object with softmax_scale, ALiBi as it is by default, and nothing else", is_plain_alibi
)
OF_MPT: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("softmax_scale", "attn_pdrop", "attn_impl", "transformers_version", "model_type"), ()),
    **dict.fromkeys(("dtype", "return_dict", "architectures", "chunk_size_feed_forward", "id2label"), ()),
    **dict.fromkeys(("label2id", "is_encoder_decoder", "problem_type", "output_attentions"), ()),
    "output_hidden_states": (),
    "attn_type": ("multihead_attention",),
    **dict.fromkeys(("attn_uses_sequence_id", "prefix_lm", "qk_ln"), (False,)),
    "alibi": (True,),
    "alibi_bias_max": (8,),
    "clip_qkv": (None,),
}
"""What the object of MPT may say; () is anything."""


@dataclass(frozen=True)
class Key:
    """A setting that config.json gives under the first of these names that it has.

    null is as good as nothing where nothing stands for nothing; where it is `nullable`, null says
    that there is none, although nothing stands for something.
    """

    names: tuple[str, ...]
    kind: KeyKind
    default: Any = None
    nullable: bool = False

    def given(self, config: Config) -> dict[str, Any]:
        """What config.json says under each of the names that it has."""
        values = {}
        for name in self.names:
            value = config.get(name)
            if value is not None:
                values[name] = value
        return values

    def value(self, config: Config) -> Any:
        values = self.given(config)
        if values:
            return next(iter(values.values()))
        is_null = any(name in config for name in self.names)
        return None if self.nullable and is_null else self.default

    def problems(self, config: Config) -> Iterator[str]:
        """Values that it cannot have, and names that say different things."""
        expected = self.kind.expected
        if self.default and not self.nullable:
            for name in self.names:
                if name in config and config[name] is None:
                    yield f"{name}: null, expected {expected}"

        values = self.given(config)
        for name, value in values.items():
            first, first_value = next(iter(values.items()))
            if not self.kind.fits(value):
                yield f"{name}: {quote(str(value))}, expected {expected}"
            elif value != first_value:
                first_text = quote(str(first_value))
                yield f"{name}: {quote(str(value))}, but {first} is {first_text}; leave one out"


@dataclass(frozen=True)
class Derived:
    rule: Callable[..., Any]
    keys: tuple[Key, ...]

    def value(self, config: Config) -> Any:
        return self.rule(*(key.value(config) for key in self.keys))


Setting = Any
"""A `Key`, what is `Derived` from some, or a value."""


def setting_value(setting: Setting, config: Config) -> Any:
    return setting.value(config) if isinstance(setting, (Key, Derived)) else setting


def keys_of_setting(setting: Setting) -> tuple[Key, ...]:
    if isinstance(setting, Derived):
        return setting.keys
    return (setting,) if isinstance(setting, Key) else ()


def from_keys(rule: Callable[..., Any], *keys: Key) -> Derived:
    return Derived(rule, keys)


def by_layer(rule: Callable[..., bool], *keys: Key) -> Derived:
    """Apply a rule to the number of each layer and to these keys."""
    return Derived(lambda *values: lambda layer: rule(layer, *values), keys)


def count(*names: str, default: int | None = None, kind: KeyKind = COUNT, nullable: bool = False) -> Key:
    return Key(names, kind, default, nullable)


def real(*names: str, default: float | None = None, nullable: bool = False) -> Key:
    return Key(names, NUMBER, default, nullable)


def epsilon(name: str, default: float) -> Key:
    return Key((name,), EPSILON, default)


def flag(name: str, *, default: bool | None = False) -> Key:
    return Key((name,), FLAG, default)


def word(*names: str, default: str | None = None) -> Key:
    return Key(names, TEXT, default)
