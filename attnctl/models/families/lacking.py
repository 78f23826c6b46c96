"""What types of models need that no family has: said where one is refused."""

from __future__ import annotations

NEEDS = {
    "something other than attention": "mamba mamba2 falcon_mamba rwkv xlstm",
    "layers that carry a state instead of attending": (
        "bamba falcon_h1 granitemoehybrid jamba lfm2 lfm2_moe minimax nemotron_h recurrent_gemma zamba2"
    ),
    "layers of a gated delta rule": "kimi_linear olmo_hybrid",
    "keys that an indexer chooses for each query": "deepseek_v32 deepseek_v4 glm_moe_dsa",
    "vectors of distances": "deberta deberta-v2 xlnet wav2vec2-conformer",
    "windows beside tokens that all see": "longformer big_bird longt5",
    "rotary positions of the rows and columns of an image": "dinov3_vit",
    "the difference of two attentions": "diffllama",
    "a table of distances for each layer": "umt5",
}

LACKING = {kind: need for need, kinds in NEEDS.items() for kind in kinds.split()}
"""By model_type."""
