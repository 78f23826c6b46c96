"""Every function in `kernels/public.py`: what conform has to be told of it."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Public:
    """A right function; `said` are the options of attnctl.conform that say what it is."""

    name: str
    said: dict[str, Any] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    """What nobody says of it and conform must find out."""
    claims: str = ""
    """A file of claims."""


WIDE = ("float64", "float32")
"""Types of programs that fill with −1e9, which float16 has not, or whose biases are large."""

TORCH = {"framework": "torch"}
CAUSAL = {"always": {"causal": True}}
ADDED = {"names": {"mask": "float_mask"}}

PUBLIC = (
    Public("nanogpt", {**TORCH, **CAUSAL}, {"Q, K and V in one array": "bn3hd"}),
    Public("mingpt", {**TORCH, **CAUSAL, "layout": "bhnd:bnd"}),
    Public("llm_c", {**CAUSAL, "names": {"inp": "QKV"}}, {"Q, K and V in one array": "bn3hd"}),
    Public("picogpt", ADDED, {"layout": "nd"}),
    Public("litgpt", {**TORCH, **CAUSAL, **ADDED, "layout": "bhnd:bnhd"},
           {"always causal, given a mask": "the mask alone"}),
    Public("gpt_neox", {**TORCH, **CAUSAL}, {"Q, K and V in one array": "bnh3d"}),
    Public("mistral", {**TORCH, "always": {"causal": True, "window": 3}}, {"layout": "bnhd"}),
    # Its slopes are kept in float32, which 17 heads show.
    Public("mpt_alibi", {**TORCH, "dtypes": ("float32",), "always": {"causal": True, "positions": "alibi"}},
           {"causal corner": "bottom-right"}),
    Public("llama3_rotary", {**TORCH, "layout": "bnhd:bnd",
                             "always": {"causal": True, "positions": {"rope": {"interleaved": True}}}}),
    Public("llama3", {**TORCH, **ADDED, "layout": "bnhd:bnd"}),
    Public("hf_eager", {**TORCH, "like": "transformers"}),
    Public("gemma2", {**TORCH, "always": {"scale": 0.25, "softcap": 50.0}}, {"mask": "added"}),
    Public("bert", TORCH, {"layout": "bnd", "mask": "added"}),
    Public("t5", {**TORCH, "always": {"scale": 1.0}}),
    Public("fairseq", {**TORCH, "names": {"attn_mask": "float_mask"}},
           {"layout": "nbd", "mask shape": "nm"}),
    Public("x_transformers", {**TORCH, **CAUSAL}, {"mask shape": "bm", "causal corner": "bottom-right"}),
    Public("annotated", {**TORCH, "dtypes": WIDE}, {"rows that see nothing": "mean"}),
    Public("sdpa_math", TORCH, {"causal corner": "top-left"}),
    Public("torch_mha", TORCH, {"layout": "bnd", "mask shape": "nm"},
           "conventions: {true in a mask: hidden}"),
    Public("decode_reference", TORCH, {"layout": "bnhd", "mask shape": "bnm"}),
    Public("swin", {**TORCH, **ADDED}, {"Q, K and V in one array": "bn3hd"}),
    Public("timm_vit", TORCH, {"Q, K and V in one array": "bn3hd"}),
    Public("vit_pytorch", TORCH, {"Q, K and V in one array": "bn3hd"}),
    Public("flash_qkvpacked", TORCH, {"layout": "bnhd", "Q, K and V in one array": "bn3hd"}),
    Public("triton_tutorial", TORCH, {"lengths": "multiples of 64", "head sizes": "16, 32, 64, 128, 256"}),
    Public("flash_blocks", {}, {"layout": "nd", "lengths": "multiples of 16"}),
    Public("gpt2_small", {**TORCH, **CAUSAL, "dtypes": WIDE}, {"layout": "bnd", "heads": "12"}),
)  # fmt: skip
