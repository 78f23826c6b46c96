"""Attention in torch in the forms that people give it: a Function, a module, in place."""

import torch


class Attention(torch.autograd.Function):
    """Its backward pass is written out; apply takes nothing by name."""

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False, sm_scale=None):
        ctx.scale = q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
        s = q @ k.mT * ctx.scale
        if is_causal:
            hidden = torch.ones(s.shape[-2:], dtype=torch.bool).triu(1)
            s = s.masked_fill(hidden, float("-inf"))
        p = s.softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v

    @staticmethod
    def backward(ctx, d_output):
        q, k, v, p = ctx.saved_tensors
        d_p = d_output @ v.mT
        d_s = p * (d_p - (p * d_p).sum(-1, keepdim=True)) * ctx.scale
        return d_s @ k, d_s.mT @ q, p.mT @ d_output, None, None


class Layer(torch.nn.Module):
    def forward(self, q, k, v, scale=None):
        return Attention.apply(q, k, v, False, scale)


attention, layer = Attention.apply, Layer()


def scaled_in_place(q, k, v):
    q *= q.shape[-1] ** -0.5
    return (q @ k.mT).softmax(-1) @ v


def with_sinks(q, k, v, sinks):
    """The sink must be given, and None is none."""
    s = q @ k.mT * q.shape[-1] ** -0.5
    sinks = sinks[:, None, None].expand(*s.shape[:-1], 1)
    return torch.cat([s, sinks], -1).softmax(-1)[..., :-1] @ v
