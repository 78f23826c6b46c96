"""attnctl.capture around a model, with functions imported before it and after."""

import attnctl
import layers
import torch.nn.functional as F
from torch.nn.functional import scaled_dot_product_attention

original = scaled_dot_product_attention
with attnctl.capture(module="layers.*.attn") as calls:
    layers.Model()(0)
    print(len(calls), calls[0]["Q"].shape, attnctl.check(calls[2]).agrees)
    scaled_dot_product_attention(layers.q, layers.q, layers.q)
    layers.copy(layers.q, layers.q, layers.q)
print(len(calls), [call.header["call"]["number"] for call in calls], len(attnctl.stats(calls[1]).heads))
assert F.scaled_dot_product_attention is layers.copy is scaled_dot_product_attention is original
with attnctl.capture("kept.npz", functions=["layers:swapped"], calls=[1]) as calls:
    for _ in range(3):
        layers.swapped(layers.q, layers.q, layers.q)
assert layers.swapped.__module__ == "layers" and not hasattr(layers.swapped, "watches")
print([call.header["call"]["function"] for call in calls], attnctl.load("kept.npz").header["call"]["at"])
with attnctl.capture() as calls:
    pass
print(list(calls))
