"""Chat templates: what they write, and that one that is hostile takes no more than it may."""

import json

import pytest

from attnctl.base.errors import AttnError
from attnctl.models.chat import read_template

pytest.importorskip("jinja2")
from attnctl.models.chat import render

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
    "{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def test_a_message_is_written_as_the_template_says():
    assert (
        render(CHATML, {"eos_token": "</s>"}, "Hi\n")
        == "<|im_start|>user\nHi\n</s>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("{% generation %}x{% endgeneration %}y", "xy"),
        ("{% for n in range(9) %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}", "01"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "é"}]'),
        ("{{ strftime_now('%Y')[:2] }}{{ tools is none }}", "20True"),
    ],
)
def test_templates_have_what_those_of_transformers_have(template, written):
    assert render(template, {}, "é") == written


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('only system') }}", "only system"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{% for %}", "its chat template fails"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_what_a_template_may_not_do(template, said):
    with pytest.raises(AttnError, match=said):
        render(template, {}, "x")


@pytest.mark.parametrize(
    ("files", "template"),
    [
        ({"chat_template.jinja": "a"}, "a"),
        ({"tokenizer_config.json": json.dumps({"chat_template": "b"})}, "b"),
        ({"tokenizer_config.json": json.dumps({"chat_template": "b"}), "chat_template.jinja": "a"}, "a"),
        (
            {
                "tokenizer_config.json": json.dumps(
                    {
                        "chat_template": [
                            {"name": "tool", "template": "c"},
                            {"name": "default", "template": "d"},
                        ]
                    }
                )
            },
            "d",
        ),
    ],
)
def test_where_a_template_stands(tmp_path, files, template):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert read_template(tmp_path)["template"] == template


def test_special_tokens_are_texts(tmp_path):
    said = {"chat_template": "x", "bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
    special = read_template(tmp_path)["special"]
    assert (special["bos_token"], special["eos_token"], special["pad_token"]) == ("<s>", "</s>", "")


def test_a_model_without_one_is_named(tmp_path):
    with pytest.raises(AttnError, match=r"no chat template .* leave --chat out"):
        read_template(tmp_path)


@pytest.fixture
def words(tmp_path):
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    from attnctl.models.source import Words

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "user": 1, "hi": 2, "assistant": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    def make(template):
        (tmp_path / "chat_template.jinja").write_text(template)
        return Words(tmp_path)

    return make


def test_a_message_becomes_tokens(words):
    template = "{% for m in messages %}{{ m.role }} {{ m.content }}{% endfor %} assistant"
    assert words(template).message("hi").labels == ["user", "hi", "assistant"]


@pytest.mark.slow  # for as long as one may take
def test_a_template_without_an_end_is_ended(words):
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    found = words(endless)
    with pytest.raises(AttnError, match="its chat template takes more than 10 seconds"):
        found.message("hi")
