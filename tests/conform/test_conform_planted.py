"""Right kernels are never accused, wrong ones are found in the feature in which they are wrong."""

from importlib import import_module

import pytest
from conform_table import KERNELS, RIGHT, WRONG

import attnctl

TYPES = ("float64", "float32", "float16", "bfloat16")
OPTIONS = {"--layout": "layout", "--like": "like"}
ENDS = {"hangs", "hangs_on_long_ones", "aborts", "exits", "talks"}
"""Those that must not run in this process."""

SILENT = {"raises"}
"""Those that refuse everything: nothing can be told of them."""

ONE_TYPE = {
    "everything",
    "like_flash",
    "like_sdpa",
    "one_by_one",
    "with_weights",
    "sliding",
    "padded",
    "no_batch",
}
"""Those whose features cost most, or that do what others do in four types."""

FEW_RIGHT = {"online", "nan_rows", "in_one_buffer"}
FEW_WRONG = {
    "wrong_scores:scale_by_d_plus_one",
    "wrong_masks:window_left_off",
    "wrong_blocks:sum_not_rescaled",
    "wrong_heads:kv_heads_tiled",
    "wrong_conduct:noise_of_three_percent",
    "wrong_conduct:zeros",
    "wrong_conduct:racing_now_and_then",
    "wrong_conduct:skips_a_row_of_its_buffer",
    "wrong_conduct:last_row_not_written",
    "wrong_conduct:adds_to_what_is_there",
}


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    monkeypatch.syspath_prepend(KERNELS)


def function(target):
    module, name = target.split(":")
    return getattr(import_module(module), name)


def split(kernels, few):
    """Few of them are tried every time, all where there is time."""
    return [
        pytest.param(each, id=each.target, marks=[] if few(each) else [pytest.mark.slow])
        for each in kernels
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize("kernel", split(RIGHT, lambda kernel: kernel.name in FEW_RIGHT))
def test_a_right_kernel_is_not_accused(kernel):
    options = dict(zip(map(OPTIONS.get, kernel.options[::2]), kernel.options[1::2], strict=True))
    types = (
        ("bfloat16",) if kernel.name in FEW_RIGHT else ("float16",) if kernel.name in ONE_TYPE else TYPES
    )
    found = attnctl.conform(function(kernel.target), quick=True, dtypes=types, **options)
    assert found.agrees, str(found)


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "kernel",
    split([each for each in WRONG if each.mistake], lambda kernel: kernel.target in FEW_WRONG),
)
def test_a_mistake_with_a_name_is_found_by_name(kernel):
    found = attnctl.conform(
        function(kernel.target), quick=True, dtypes=["float32"], features=[kernel.feature]
    )
    named = {each.failure.mistake for each in found.wrong if each.failure}
    assert found.agrees is False
    assert kernel.mistake in named, str(found)


@pytest.mark.usefixtures("_unexplained")
@pytest.mark.parametrize(
    "kernel",
    split([each for each in WRONG if not each.mistake], lambda kernel: kernel.target in FEW_WRONG),
)
def test_a_mistake_without_a_name_is_found(kernel):
    file, name = kernel.target.split(":")
    apart = name in ENDS
    target = f"{KERNELS / file}.py:{name}" if apart else function(kernel.target)
    found = attnctl.conform(
        target,
        quick=True,
        dtypes=["float32"],
        features=[kernel.feature],
        timeout=1 if "hang" in name else None,
    )
    assert found.agrees is (None if name in SILENT else False), str(found)
    assert name not in SILENT or "illegal memory access" in str(found)


def test_most_planted_mistakes_have_a_name():
    assert sum(each.mistake is not None for each in WRONG) >= 80
    assert len(WRONG) >= 110
