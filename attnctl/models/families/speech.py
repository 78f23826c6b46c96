"""Encoders of sounds, from the rows that come into their first layer on: wav2vec 2.0 and its kin."""

from __future__ import annotations

from attnctl.models.families.encoders import VIT
from attnctl.models.family import When, derive_stack, inside
from attnctl.models.keys import epsilon, flag

NORMED_BEFORE = flag("do_stable_layer_norm")

WAV2VEC2 = derive_stack(
    VIT,
    patches=None,
    layer="encoder.layers.{i}.",
    outer={"final_norm": "encoder.layer_norm"},
    inner={
        **inside("attention.", q="q_proj", k="k_proj", v="v_proj", o="out_proj"),
        **inside("feed_forward.", up="intermediate_dense", down="output_dense"),
        "attention_sum_norm": "layer_norm",
        "mlp_sum_norm": "final_layer_norm",
    },
    settings={
        "eps": epsilon("layer_norm_eps", 1e-5),
        "bias": True,
        "final_norm": NORMED_BEFORE,
    },
    without=("attention_norm", "mlp_norm"),
    when=(
        When(
            NORMED_BEFORE,
            True,
            inner={"attention_norm": "layer_norm", "mlp_norm": "final_layer_norm"},
            without=("attention_sum_norm", "mlp_sum_norm"),
        ),
    ),
    only={"add_adapter": False, "adapter_attn_dim": None},
    inert=(
        # what makes a sound into rows, and rows into text or what is learned of them
        *("vocab_size", "conv_dim", "conv_stride", "conv_kernel", "conv_bias", "conv_pos_batch_norm"),
        *("feat_extract_norm", "feat_extract_activation", "feat_proj_layer_norm"),
        *("num_conv_pos_embeddings", "num_conv_pos_embedding_groups", "conv_pos_kernel_size"),
        *("num_codevectors_per_group", "num_codevector_groups", "codevector_dim", "proj_codevector_dim"),
        *("contrastive_logits_temperature", "num_negatives", "diversity_loss_weight"),
        *("ctc_loss_reduction", "ctc_zero_infinity", "tdnn_dim", "tdnn_kernel", "tdnn_dilation"),
        *("xvector_output_dim", "adapter_kernel_size", "adapter_stride", "num_adapter_layers"),
        *(
            "num_feat_extract_layers",
            "num_ctc_classes",
            "num_clusters",
            "replace_prob",
            "freeze_feat_extract_train",
        ),
        *("output_hidden_size", "feat_extract_dropout", "do_normalize"),
    ),
)
"""Norms stand behind each part, or before it where `do_stable_layer_norm` says so."""

DATA2VEC_AUDIO = derive_stack(WAV2VEC2, settings={"final_norm": False}, when=())

SOUNDS = {
    "data2vec-audio": DATA2VEC_AUDIO,
    **dict.fromkeys(("wav2vec2", "hubert", "unispeech", "unispeech-sat"), WAV2VEC2),
}
