import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    attn_implementation=sys.argv[1],
)
model = LlamaForCausalLM(config).eval()
ids = torch.randint(0, 64, (1, 7))
with torch.no_grad():
    model(ids)
    model.generate(ids, max_new_tokens=2, do_sample=False)
