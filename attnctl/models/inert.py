"""Keys of a config.json that change no attention and no hidden state, whatever the family.

A family that reads one of them does so all the same.
"""

from __future__ import annotations

import re

NAMES = (
    # the file itself, and how it is loaded
    r"_.*|architectures|auto_map|model_type|transformers_version|name_or_path|tokenizer_class|language",
    r"(?:torch_)?dtype|torchscript|use_bfloat16|tie_\w+|gradient_checkpointing|transformers\.js_config",
    r"attn_implementation|experts_implementation|is_llama_config|unsloth_\w+",
    # what a call returns, and the cache it keeps
    r"return_dict|output_\w+|use_cache|cache_implementation|is_encoder_decoder|chunk_size_feed_forward",
    # training
    r"\w*dropout\w*|\w*_pdrop|\w*layerdrop|init_std|initializer_\w+|\w*aux_loss\w*|router_jitter_noise",
    r"seq_aux|pretraining_tp|mask_(?:time|feature)_\w+|apply_spec_augment",
    # tasks, and what follows the last layer
    r"id2label|label2id|num_labels|problem_type|finetuning_task|task_specific_params|classifier_\w+",
    r"summary_\w+|pooler_\w+|decoder_bias|sparse_pred\w*|projection_dim|logit_scale\w*|logits_scaling",
    r"scale_decoder_outputs|final_logit_softcapping|use_weighted_layer_sum|median_filter_width",
    # generation
    r"\w*token_(?:ids?|index)|prefix|(?:max|min)_length|max_new_tokens|do_sample|early_stopping|num_beams",
    r"num_beam_groups|temperature|top_[kp]|typical_p|\w+_penalty|\w*no_repeat_ngram_size|bad_words_ids",
    r"num_return_sequences|remove_invalid_values|(?:begin_)?suppress_tokens|forced_decoder_ids",
    # what makes an image or a sound into what comes into layer 0
    r"image_size|patch_size|num_channels|encoder_stride|num_mel_bins|max_source_positions",
    # how it is computed
    r"\w*softmax_in_fp32|\w+_fusion|slow_but_exact|deterministic_flash_attn|reference_compile",
    r"repad_logits_with_grad|skip_bias_add\w*",
    # lengths of training, which no table has
    r"n_ctx|seq_length|model_max_length|max_sequence_length",
)
INERT = re.compile("|".join(NAMES))
