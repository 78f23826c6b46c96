"""nanoGPT: `CausalSelfAttention(config)` of model.py, a layer of torch with its projections.

    pip install attnctl && pytest test_nanogpt.py

Its weights are read by their names, c_attn and c_proj; what it computes is held to them step by step.
"""

from types import SimpleNamespace

import pytest

from attnctl.testing import check_module

torch = pytest.importorskip("torch")


def test_causal_self_attention():
    from model import CausalSelfAttention

    torch.manual_seed(0)
    config = SimpleNamespace(n_embd=32, n_head=4, block_size=16, dropout=0.0, bias=True)
    layer = CausalSelfAttention(config).eval()
    report = check_module(layer, torch.randn(2, 10, 32), causal=True)
    assert report.agrees, str(report)
