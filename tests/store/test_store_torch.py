"""torch's own files: a tensor, or dicts and lists of them; read by torch, and nothing in them is run."""

import sys

import fake_torch
import numpy as np
import pytest
from fake_torch import FAKE, Tensor

from attnctl.base.errors import AttnError
from attnctl.store.source import read_one

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", FAKE)


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", ["archive", "n" * 120])
def test_nested_dicts_and_lists_are_names_with_dots(tmp_path, name):
    held = {
        "layer": {"Q": Tensor(ROWS), "K": Tensor(ROWS, "bfloat16")},
        "seen": [Tensor([True, False]), (Tensor([1]),)],
        "epoch": 3,
        "by": "hand",
    }
    fake_torch.save(held, tmp_path / "x.pt", name)
    trace = read_one(tmp_path / "x.pt", rename={"layer.Q": "Q"})
    assert dict(trace.items()).keys() == {"Q", "layer.K", "seen.0", "seen.1.0"}
    assert [trace[each].dtype for each in ("Q", "layer.K", "seen.0")] == [np.float32, np.float32, bool]
    assert (trace["Q"] == ROWS).all()


@pytest.mark.usefixtures("torch")
def test_one_tensor_has_the_name_of_its_file(tmp_path):
    fake_torch.save(Tensor(ROWS), tmp_path / "Q.pt")
    assert list(read_one(tmp_path / "Q.pt")) == ["Q"]


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("held", "why"),
    [
        ({"code": 1}, "it holds more than tensors, and nothing of that is run here"),
        ({"epoch": 3}, "no arrays in it"),
        ({"Q": Tensor(ROWS + 1j)}, "'Q': type complex64: only numbers, true and false are read"),
        ({"a": {"b": Tensor(ROWS)}, "a.b": Tensor(ROWS)}, "two tensors would be called 'a.b'"),
    ],
)
def test_what_is_refused(tmp_path, held, why):
    fake_torch.save(held, tmp_path / "x.pt")
    with pytest.raises(AttnError) as caught:
        read_one(tmp_path / "x.pt")
    assert str(caught.value).startswith(f"{tmp_path / 'x.pt'}: ")
    assert why in str(caught.value)


@pytest.mark.usefixtures("torch")
def test_what_is_damaged_is_refused(tmp_path):
    fake_torch.save({"Q": Tensor(ROWS)}, tmp_path / "x.pt")
    whole = (tmp_path / "x.pt").read_bytes()
    for damaged in (whole[:200], fake_torch.OLD + b"no more"):
        (tmp_path / "x.pt").write_bytes(damaged)
        with pytest.raises(
            AttnError, match=r"not a sound \.pt|torch cannot read it: File is not a zip file"
        ):
            read_one(tmp_path / "x.pt")


@pytest.mark.usefixtures("torch")
def test_sizes_are_held_to_before_anything_is_laid_out(tmp_path):
    endless = {}
    endless["again"] = endless
    fake_torch.save(endless, tmp_path / "x.pt")
    with pytest.raises(AttnError, match="nested deeper than 64 levels"):
        read_one(tmp_path / "x.pt")
    fake_torch.save({"Q": Tensor(ROWS, shape=(2**20, 2**20))}, tmp_path / "x.pt")
    with pytest.raises(AttnError, match=r"'Q': reading it needs 8\.0 TiB"):
        read_one(tmp_path / "x.pt")


def test_without_torch_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    fake_torch.save({"Q": Tensor(ROWS)}, tmp_path / "x.pt")
    with pytest.raises(AttnError, match=r"torch's own file, and torch is not installed; pip install torch"):
        read_one(tmp_path / "x.pt")


@pytest.mark.slow
def test_files_of_torch_itself(tmp_path):
    torch = pytest.importorskip("torch")
    held = {
        "model": {"Q": torch.randn(3, 4), "K": torch.randn(3, 4, dtype=torch.bfloat16)},
        "V": torch.nn.Parameter(torch.randn(3, 4).T),
        "step": 3,
        "masks": (torch.ones(2, dtype=torch.bool),),
    }
    for archive in (True, False):  # False: as before torch 1.6
        path = tmp_path / f"{archive}.pt"
        torch.save(held, path, _use_new_zipfile_serialization=archive)
        trace = read_one(path)
        assert set(trace) == {"model.Q", "model.K", "V", "masks.0"}
        assert (trace["model.K"] == held["model"]["K"].float().numpy()).all()
        assert (trace["V"] == held["V"].detach().numpy()).all()
    torch.save(torch.nn.Linear(2, 2), tmp_path / "whole.pt")
    with pytest.raises(AttnError, match="it holds more than tensors"):
        read_one(tmp_path / "whole.pt")
