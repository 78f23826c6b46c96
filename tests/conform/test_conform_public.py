"""Public attention, as its authors wrote it, is accused of nothing."""

import sys

import pytest
from conform_table import KERNELS
from public_table import PUBLIC

import attnctl

pytest.importorskip("torch")

FEW = {"picogpt", "bert", "gpt_neox"}
"""Those that are held to something in every run: one of each way of taking Q, K and V."""


@pytest.fixture
def held(monkeypatch, tmp_path):
    """Hold one of them to the suite."""
    monkeypatch.syspath_prepend(KERNELS)
    import public

    def hold(each, **more):
        if each.claims:
            (tmp_path / "claims.yaml").write_text(each.claims)
            more["claims"] = tmp_path / "claims.yaml"
        return attnctl.conform(getattr(public, each.name), quick=True, **{**each.said, **more})

    yield hold
    sys.modules.pop("public")


def ids(each):
    return each.name


def test_every_function_is_in_the_table():
    text = (KERNELS / "public.py").read_text()
    written = {line.split("(")[0].removeprefix("def ") for line in text.splitlines() if line[:4] == "def "}
    assert written - {"repeat_kv"} == {each.name for each in PUBLIC}
    assert len(PUBLIC) >= 15


@pytest.mark.parametrize("each", [each for each in PUBLIC if each.name in FEW], ids=ids)
def test_what_a_public_function_takes_is_found_out(each, held):
    found = held(each, dtypes=["float32"], features=["large scores"])
    assert found.agrees is True, str(found)
    assert {name: found.conventions[name] for name in each.found} == each.found


@pytest.mark.slow
@pytest.mark.parametrize("each", PUBLIC, ids=ids)
def test_a_public_function_conforms(each, held):
    found = held(each)
    assert found.agrees is True, str(found)
    assert {name: found.conventions.get(name) for name in each.found} == each.found
