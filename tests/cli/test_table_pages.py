"""Pages of tables: what `stats` and `model` write as HTML."""

from __future__ import annotations

import io
import json
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.pages.tables import file_name, write_stats
from attnctl.verbs.stats import StatsReport
from attnctl.verbs.stats.tally import MEASURES, measure_heads

CHECKPOINTS = Path(__file__).parent.parent / "models" / "checkpoints"
QWEN = str(CHECKPOINTS / "qwen2")


class Page(HTMLParser):
    """The elements of a page, its tables as rows of cells, each with its title or its text."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.tables, self.open = text, [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append({"caption": "", "rows": []})
        if tag == "tr":
            self.tables[-1]["rows"].append([])
        if tag in {"td", "th"}:
            self.tables[-1]["rows"][-1].append(["", dict(attrs)])
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open and self.open[-1] == "caption":
            self.tables[-1]["caption"] += data
        if self.open and self.open[-1] in {"td", "th"}:
            self.tables[-1]["rows"][-1][-1][0] += data

    def of(self, name):
        return [attrs for tag, attrs in self.tags if tag == name]


def page(*found):
    stream = io.BytesIO()
    write_stats(found, stream)
    return Page(stream.getvalue().decode())


def stats(*sentences, name="{}.json", **settings):
    traces = [attnctl.run(sentence, heads=2, **settings) for sentence in sentences]
    return StatsReport(tuple(measure_heads(trace, name.format(at)) for at, trace in enumerate(traces)))


@pytest.fixture
def pages(call):
    """A page of each verb that writes one of tables, read from absolute paths."""
    call("run", "I love AI", "AI", "--heads", "2", "-o", "d.jsonl")
    assert call("stats", str(Path("d.jsonl").resolve()), "-o", "stats.html") == (0, "", "")
    assert call("model", QWEN, "-o", "model.html") == (0, "", "")
    return [Page(Path(name).read_text()) for name in ("stats.html", "model.html")]


def test_the_page_says_what_it_is(pages):
    assert "<h1>What each head does</h1>" in pages[0].text


def test_the_numbers_are_those_of_the_json():
    found = stats("I love AI", "AI loves AI")
    data = found.to_dict()
    tables = page(found).tables
    assert [table["caption"] for table in tables] == ["0.json", "1.json", "all together"]
    for table, group in zip(tables, [*data["dumps"], data["aggregate"]], strict=True):
        for row, head in zip(table["rows"][1:], group["heads"], strict=True):
            assert row[0][0] == str(head["head"])
            said = [head[name] for name in MEASURES]
            assert [cell for cell, _ in row[1 : 1 + len(said)]] == [f"{each:.2f}" for each in said]
            assert row[-1][0].endswith(f" at {head['nearest']['divergence']:.2f}")
            assert row[-2][0].startswith(f"{head['largest']['value']:.2f} ")
            assert row[-2][0].endswith(f" {'→'.join(head['largest']['tokens'])}")


def test_a_measure_that_means_nothing_is_a_dash_and_said():
    weights = {"Q": np.eye(2), "K": np.eye(3)[:, :2], "V": np.eye(3)}
    found = page(StatsReport((measure_heads(attnctl.attend(weights), "x"),)))
    dashes = [cell == "–" for cell, _ in found.tables[0]["rows"][1]]
    names = [cell for cell, _ in found.tables[0]["rows"][0]]
    assert [name for name, dash in zip(names, dashes, strict=True) if dash] == [
        "dist",
        "prev",
        "self",
        "same",
    ]
    assert "dist, prev and self mean nothing" in found.text
    assert "Jensen" not in found.text, "one head has none beside it"


def test_a_rollout_is_a_table_too(call):
    call("run", "I love AI", "-o", "a.json")
    call("stats", "a.json", "--rollout", "-o", "x.html", "-o", "x.json")
    table = Page(Path("x.html").read_text()).tables[-1]
    rolled = json.loads(Path("x.json").read_text())["rollout"]
    assert [cell for cell, _ in table["rows"][0]] == ["", *rolled["tokens"]]
    shares = [[cell for cell, _ in row[1:]] for row in table["rows"][1:]]
    assert shares == [[f"{share:.2f}" for share in row] for row in rolled["data"]]


HOSTILE = (
    "<script>alert(1)</script>",
    "</td></table>",
    '"><img src=x onerror=alert(1)>',
    "\x1b[31m\u202e",
    "&lt;",
)


@pytest.mark.parametrize("token", HOSTILE)
def test_a_hostile_token_stays_text(token):
    token = token.replace(" ", "\N{NO-BREAK SPACE}")
    plain = page(stats("I love AI"))
    found = page(stats(f"{token} {token} {token}", name=f"{token}{{}}"))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]
    assert not {name for _, attrs in found.tags for name in attrs if name.startswith("on")}
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", found.text)


def test_nothing_is_run_and_nothing_is_loaded(pages):
    for found in pages:
        style = found.text.partition("<style>")[2].partition("</style>")[0]
        policy = next(attrs["content"] for attrs in found.of("meta") if "http-equiv" in attrs)
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert (rules["default-src"], rules["script-src"]) == ("'none'", "'none'")
        assert rules["style-src"] == f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'"
        assert not {"script", "link", "iframe", "a", "form"} & {tag for tag, _ in found.tags}
        assert not any("style" in attrs or "href" in attrs for _, attrs in found.tags)
        assert all(attrs["src"].startswith("data:image/svg+xml;base64,") for attrs in found.of("img"))


def test_tables_and_pictures_say_what_they_are(pages):
    for found in pages:
        assert found.tables
        assert all(table["caption"] for table in found.tables)
        assert {attrs.get("scope") for attrs in found.of("th")} == {"row", "col"}
        assert all(row[0][1].get("scope") == "row" for table in found.tables for row in table["rows"][1:])
        assert all(attrs["alt"] for attrs in found.of("img"))
        assert all(attrs["aria-label"] for attrs in found.of("section") if "tabindex" in attrs)
        assert found.text.count("<h1>") == found.text.count("<title>") == 1


def test_no_page_names_a_folder_of_this_machine(pages):
    for found in pages:
        pictures = [b64decode(attrs["src"].partition(",")[2]).decode() for attrs in found.of("img")]
        for text in (found.text, *pictures):
            assert str(Path.cwd()) not in text
            assert str(CHECKPOINTS) not in text
    assert "d.jsonl[0]" in pages[0].text
    assert "<h1>qwen2</h1>" in pages[1].text


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/me/runs/a.json", "a.json"),
        ("../me/a.json[1]", "a.json[1]"),
        (r"C:\Users\me\a.npz", "a.npz"),
        ("runs/a.json", "runs/a.json"),
        ("layer 3", "layer 3"),
        ("-", "-"),
    ],
)
def test_names_of_dumps(path, name):
    assert file_name(path) == name


def test_files_of_one_name_stay_apart():
    found = stats("I", "love", name="/home/me/{}/a.json")
    assert [table["caption"] for table in page(found).tables[:2]] == ["a.json#1", "a.json#2"]


@pytest.mark.parametrize("family", ["qwen2", "whisper", "gemma3", "deepseek-v3", "t5"])
def test_a_page_of_a_model_has_what_stdout_says(call, family):
    folder = str(CHECKPOINTS / family)
    printed = call("model", folder).out
    call("model", folder, "-o", "x.html")
    found = Page(Path("x.html").read_text())
    text = " ".join(
        re.sub("<[^>]+>", " ", found.text.partition("<body>")[2]).replace("&#x27;", "'").split()
    )
    cells = {cell for table in found.tables for row in table["rows"] for cell, _ in row}
    for line in filter(None, printed.splitlines()):
        if "  " in line:
            assert set(re.split(" {2,}", line)) <= cells
        else:
            assert line in text
    assert len(found.tables) == len(json.loads(call("model", folder, "--json").out)["parts"])


@pytest.mark.parametrize(
    ("family", "layer"),
    [
        ("qwen2", "layers.0."),
        ("deepseek-v3", "layers.0."),
        ("gpt-oss", "layers.0."),
        ("bert", "layer.0."),
        ("gpt2", "h.0."),
    ],
)
def test_a_page_of_a_model_has_a_picture_of_a_layer(call, family, layer):
    """Its parts come to all the parameters that the file has under the name of the layer."""
    data = (CHECKPOINTS / family / "model.safetensors").read_bytes()
    tensors = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    shapes = {name: about["shape"] for name, about in tensors.items() if f".{layer}" in f".{name}"}
    call("model", str(CHECKPOINTS / family), "-o", "x.html")
    text = Path("x.html").read_text()
    picture = re.search('<svg class="layer".*?</svg>', text, re.DOTALL)[0]
    sizes = [int(each.replace(",", "")) for each in re.findall(r">([\d,]+) \((?:below )?\d+%\)<", picture)]
    longest = max(int(each) for each in re.findall(r'<rect [^>]*width="(\d+)"', picture))
    assert sum(sizes) == sum(int(np.prod(shape)) for shape in shapes.values())
    assert f"Layer 0: {sum(sizes):,} parameters" in text
    assert longest == 300


def test_without_texts_the_battery_is_written(call):
    assert call("stats", "--model", QWEN, "-o", "x.html", "-o", "x.json") == (0, "", "")
    found = Page(Path("x.html").read_text())
    (table,) = found.tables
    assert "entropy" not in found.text, "no legend without its columns"
    heads = json.loads(Path("x.json").read_text())["battery"]["heads"]
    cells = [cell for row in table["rows"][1:] for cell, _ in row[1:]]
    assert cells == [" ".join(head["names"]) or "·" for head in heads]
    printed = call("stats", "--model", QWEN)
    assert printed.out.startswith(table["caption"])
    assert call("stats", "--model", QWEN, "-o", "x.html", "-o", "-") == printed
    refused = call("stats", "--model", QWEN, "-o", "x.svg")
    assert (refused.code, refused.err) == (2, "attnctl: nothing to draw: no text; give some\n")


def test_more_dumps_than_a_page_holds_are_refused():
    one = stats("I").dumps[0]
    with pytest.raises(attnctl.AttnError, match="201 dumps: a page holds 200"):
        page(StatsReport((one,) * 201))
