"""Attention as public programs have it: each of these is in the manner of the one it is named after.

Nothing is changed for conform: masks, layouts, types, fixed sizes and what is always on are theirs.
Each is a function of what their forward pass has after its projections.
"""

import math

import numpy as np
import torch

BLOCK_SIZE = 1024
TRIL = torch.tril(torch.ones(BLOCK_SIZE, BLOCK_SIZE)).view(1, 1, BLOCK_SIZE, BLOCK_SIZE)


def repeat_kv(x, n_rep, dim):
    return x if n_rep == 1 else x.repeat_interleave(n_rep, dim=dim)


# --- causal self-attention ---


def nanogpt(qkv, n_head):
    """After c_attn: (B, T, 3 C), a triangle of the largest size cut to T."""
    B, T, C = qkv.size()[0], qkv.size()[1], qkv.size()[2] // 3
    q, k, v = qkv.split(C, dim=2)
    k = k.view(B, T, n_head, C // n_head).transpose(1, 2)
    q = q.view(B, T, n_head, C // n_head).transpose(1, 2)
    v = v.view(B, T, n_head, C // n_head).transpose(1, 2)
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(TRIL[:, :, :T, :T] == 0, float("-inf"))
    att = torch.softmax(att, dim=-1)
    y = att @ v
    return y.transpose(1, 2).contiguous().view(B, T, C)


def mingpt(q, k, v):
    """Heads apart when it is called, side by side when it returns."""
    B, nh, T, hs = q.size()
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(TRIL[:, :, :T, :T] == 0, float("-inf"))
    att = torch.softmax(att, dim=-1)
    return (att @ v).transpose(1, 2).contiguous().view(B, T, nh * hs)


def llm_c(inp, B, T, C, NH):
    """attention_forward, a query of a head at a time; inp holds Q, K and V of each token in a row."""
    hs, scale = C // NH, 1.0 / math.sqrt(C / NH)
    out = np.zeros((B, T, C), inp.dtype)
    for b in range(B):
        for t in range(T):
            for h in range(NH):
                query = inp[b, t, h * hs : (h + 1) * hs]
                keys = inp[b, : t + 1, C + h * hs : C + (h + 1) * hs]
                preatt = keys @ query * scale
                expv = np.exp(preatt - preatt.max())
                att = expv / expv.sum()
                out[b, t, h * hs : (h + 1) * hs] = (
                    att @ inp[b, : t + 1, 2 * C + h * hs : 2 * C + (h + 1) * hs]
                )
    return out


def picogpt(q, k, v, mask):
    """One head, [n, d]; the mask is a matrix of 0 and −1e10 that is always given, and added."""
    x = q @ k.T / np.sqrt(q.shape[-1]) + mask
    exp_x = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return exp_x / np.sum(exp_x, axis=-1, keepdims=True) @ v


def litgpt(q, k, v, mask=None):
    """Causal unless a mask is given; softmax in float32; (B, T, nh, hs) comes back."""
    scale = 1.0 / math.sqrt(q.size(-1))
    scores = (q * scale) @ k.mT
    if mask is None:
        mask = torch.ones(q.size(2), q.size(2), dtype=q.dtype, device=q.device).triu(diagonal=1)
        mask = mask.masked_fill_(mask.bool(), torch.finfo(q.dtype).min)
    scores = scores + mask
    scores = torch.softmax(scores, dim=-1, dtype=torch.float).to(dtype=q.dtype)
    return (scores @ v).transpose(1, 2)


def gpt_neox(qkv, num_heads):
    """(b, n, heads · 3 · d): Q, K and V of a head stand beside each other."""
    b, n, width = qkv.shape
    d = width // (3 * num_heads)
    q, k, v = qkv.view(b, n, num_heads, 3 * d).transpose(1, 2).chunk(3, dim=-1)
    scores = torch.baddbmm(
        torch.zeros(b * num_heads, n, n, dtype=q.dtype),
        q.reshape(-1, n, d),
        k.reshape(-1, n, d).transpose(1, 2),
        beta=1.0,
        alpha=1.0 / math.sqrt(d),
    ).view(b, num_heads, n, n)
    scores = torch.where(TRIL[:, :, :n, :n].bool(), scores, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1).to(v.dtype)
    return (weights @ v).permute(0, 2, 1, 3).contiguous().view(b, n, num_heads * d)


def mistral(xq, xk, xv):
    """A sliding window of 4 and causal, (seqlen, bsz) first tokens; grouped heads."""
    seqlen = xq.shape[1]
    xk, xv = (repeat_kv(x, xq.shape[2] // x.shape[2], 2) for x in (xk, xv))
    mask = torch.full((seqlen, seqlen), 1.0, dtype=xq.dtype)
    mask = torch.log(torch.triu(torch.tril(mask), diagonal=-3))
    xq, xk, xv = (x.transpose(1, 2) for x in (xq, xk, xv))
    scores = xq @ xk.transpose(2, 3) * xq.shape[-1] ** -0.5 + mask[None, None]
    scores = torch.softmax(scores.float(), dim=-1).type_as(xq)
    return (scores @ xv).transpose(1, 2).contiguous()


def mpt_alibi(query, key, value):
    """ALiBi as a row of numbers that grows to the last key, and causal from the bottom right."""
    _, h, n, d = query.shape
    m = key.shape[2]
    power = 2 ** math.ceil(math.log2(h))
    slopes = 2.0 ** -(torch.arange(1, power + 1, dtype=torch.float32) * 8 / power)
    if power != h:
        slopes = torch.concat([slopes[1::2], slopes[::2]])[:h]
    bias = slopes.view(1, h, 1, 1) * torch.arange(1 - m, 1).view(1, 1, 1, m)
    scores = query @ key.transpose(-1, -2) / math.sqrt(d) + bias.to(query.dtype)
    future = torch.ones(n, m, dtype=torch.bool).triu(m - n + 1)
    scores = scores.masked_fill(future, torch.finfo(query.dtype).min)
    return torch.softmax(scores, dim=-1) @ value


def llama3_rotary(xq, xk, xv):
    """Rotary positions as complex numbers, of neighbouring columns; causal."""
    b, n, _, d = xq.shape
    freqs = 1.0 / (10000.0 ** (torch.arange(0, d, 2)[: d // 2].double() / d))
    cis = torch.polar(torch.ones(n, d // 2).double(), torch.outer(torch.arange(n).double(), freqs))
    cis = cis[None, :, None, :]

    def turn(x):
        pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * cis).flatten(3).type_as(x)

    xq, xk = turn(xq), turn(xk)
    xk, xv = (repeat_kv(x, xq.shape[2] // x.shape[2], 2) for x in (xk, xv))
    xq, xk, xv = (x.transpose(1, 2) for x in (xq, xk, xv))
    scores = torch.matmul(xq, xk.transpose(2, 3)) / math.sqrt(d)
    scores = scores + torch.full((n, n), float("-inf"), dtype=scores.dtype).triu(1)
    output = torch.matmul(torch.softmax(scores.float(), dim=-1).type_as(xq), xv)
    return output.transpose(1, 2).contiguous().view(b, n, -1)


# --- masks that are added ---


def llama3(xq, xk, xv, mask):
    """(b, n, heads, d) in, (b, n, heads · d) out; the mask is added, None where there is one token."""
    bsz, seqlen, heads, d = xq.shape
    keys, values = (repeat_kv(x, heads // x.shape[2], 2) for x in (xk, xv))
    xq, keys, values = (x.transpose(1, 2) for x in (xq, keys, values))
    scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(d)
    if mask is not None:
        scores = scores + mask
    scores = torch.softmax(scores.float(), dim=-1).type_as(xq)
    return torch.matmul(scores, values).transpose(1, 2).contiguous().view(bsz, seqlen, -1)


def hf_eager(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """eager_attention_forward: the module says how many heads share a kv head; softmax in float32."""
    key_states = repeat_kv(key, module.num_key_value_groups, 1)
    value_states = repeat_kv(value, module.num_key_value_groups, 1)
    attn_weights = torch.matmul(query, key_states.transpose(2, 3)) * scaling
    if attention_mask is not None:
        attn_weights = attn_weights + attention_mask
    attn_weights = torch.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query.dtype)
    attn_weights = torch.dropout(attn_weights, dropout, module.training)
    attn_output = torch.matmul(attn_weights, value_states).transpose(1, 2).contiguous()
    return attn_output, attn_weights


def gemma2(query, key, value, attention_mask=None, softcap=50.0):
    """Soft-capped scores by default, a scale that is no power of d; (b, heads, n, d)."""
    attn_weights = torch.matmul(query, key.transpose(2, 3)) * 0.25
    if softcap is not None:
        attn_weights = torch.tanh(attn_weights / softcap) * softcap
    if attention_mask is not None:
        attn_weights = attn_weights + attention_mask[:, :, :, : key.shape[-2]]
    attn_weights = torch.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(attn_weights, value)


def bert(query, key, value, attention_mask=None, num_attention_heads=12):
    """Heads split and merged inside; an extended mask of (b, 1, 1, m) is added."""

    def transpose_for_scores(x):
        return x.view(*x.size()[:-1], num_attention_heads, -1).permute(0, 2, 1, 3)

    q, k, v = map(transpose_for_scores, (query, key, value))
    attention_scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1))
    if attention_mask is not None:
        attention_scores = attention_scores + attention_mask
    context = torch.matmul(torch.softmax(attention_scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
    return context.view(*context.size()[:-2], -1)


def t5(q, k, v, bias):
    """No scale; a table of positions is always added."""
    scores = torch.matmul(q, k.transpose(3, 2))
    scores += bias
    weights = torch.softmax(scores.float(), dim=-1).type_as(scores)
    return torch.matmul(weights, v)


def fairseq(query, key, value, num_heads, attn_mask=None):
    """(tgt_len, bsz, embed_dim), heads folded into the batch; returns the mean of the weights, too."""
    tgt_len, bsz, embed_dim = query.size()
    head_dim = embed_dim // num_heads
    q = query * head_dim**-0.5
    q = q.contiguous().view(tgt_len, bsz * num_heads, head_dim).transpose(0, 1)
    k = key.contiguous().view(-1, bsz * num_heads, head_dim).transpose(0, 1)
    v = value.contiguous().view(-1, bsz * num_heads, head_dim).transpose(0, 1)
    attn_weights = torch.bmm(q, k.transpose(1, 2))
    if attn_mask is not None:
        attn_weights += attn_mask.unsqueeze(0)
    probs = torch.softmax(attn_weights, dim=-1, dtype=torch.float32).type_as(attn_weights)
    attn = torch.bmm(probs, v).transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
    return attn, probs.view(bsz, num_heads, tgt_len, -1).mean(dim=1)


# --- masks of truth values ---


def x_transformers(q, k, v, mask=None):
    """Attend, causal: the corner is at the bottom right, the mask says which keys there are, (b, j)."""
    sim = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    mask_value = -torch.finfo(sim.dtype).max
    i, j = sim.shape[-2:]
    if mask is not None:
        sim = sim.masked_fill(~mask[:, None, None, :], mask_value)
    causal_mask = torch.ones((i, j), dtype=torch.bool).triu(j - i + 1)
    sim = sim.masked_fill(causal_mask, mask_value)
    attn = torch.softmax(sim, dim=-1, dtype=torch.float32).type(sim.dtype)
    return torch.einsum("bhij,bhjd->bhid", attn, v)


def annotated(query, key, value, mask=None, dropout=None):
    """The Annotated Transformer's; where the mask is 0 nothing is seen."""
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


def sdpa_math(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """The equivalent of scaled_dot_product_attention in PyTorch's documentation."""
    L, S = query.size(-2), key.size(-2)
    scale_factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    attn_bias = torch.zeros(L, S, dtype=query.dtype)
    if is_causal:
        temp_mask = torch.ones(L, S, dtype=torch.bool).tril(diagonal=0)
        attn_bias.masked_fill_(temp_mask.logical_not(), float("-inf"))
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_bias = attn_bias.masked_fill(attn_mask.logical_not(), float("-inf"))
        else:
            attn_bias = attn_mask + attn_bias
    attn_weight = query @ key.transpose(-2, -1) * scale_factor
    attn_weight += attn_bias
    return torch.softmax(attn_weight, dim=-1) @ value


def torch_mha(query, key, value, num_heads, attn_mask=None):
    """nn.MultiheadAttention, batch first: one mask for all, true where a query may NOT attend."""
    bsz, tgt_len, embed_dim = query.shape
    head_dim = embed_dim // num_heads
    q, k, v = (x.transpose(0, 1).reshape(-1, bsz * num_heads, head_dim).transpose(0, 1)
               for x in (query, key, value))  # fmt: skip
    if attn_mask is not None:
        if attn_mask.shape != (tgt_len, k.size(1)):
            raise RuntimeError(f"The shape of the 2D attn_mask is {attn_mask.shape}")
        if attn_mask.dtype == torch.bool:
            new = torch.zeros_like(attn_mask, dtype=q.dtype)
            attn_mask = new.masked_fill_(attn_mask, float("-inf"))
        scores = torch.baddbmm(attn_mask.to(q.dtype), q / math.sqrt(head_dim), k.transpose(-2, -1))
    else:
        scores = torch.bmm(q / math.sqrt(head_dim), k.transpose(-2, -1))
    out = torch.bmm(torch.softmax(scores, dim=-1), v)
    return out.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim).transpose(0, 1)


def decode_reference(q, k, v, *, mask=None, softmax_scale):
    """(b, n, heads, d) in float32 whatever comes in; a mask for each member; (out, lse)."""
    k, v = (repeat_kv(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * softmax_scale
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -float("inf"))
    lse = torch.logsumexp(scores, dim=-1)
    probs = torch.softmax(scores, dim=-1)
    probs = torch.where(torch.isfinite(lse).unsqueeze(-1), probs, torch.zeros_like(probs))
    return torch.einsum("bhqk,bkhd->bqhd", probs, v.float()).to(q.dtype), lse


def swin(qkv, num_heads, mask):
    """Windows that are always masked, with numbers that are 0 or −100: (b, 1, n, n)."""
    B_, N, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    qkv = qkv.reshape(B_, N, 3, num_heads, C // num_heads).permute(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    attn = q * (C // num_heads) ** -0.5 @ k.transpose(-2, -1)
    attn = (attn + mask).softmax(dim=-1)
    return (attn @ v).transpose(1, 2).reshape(B_, N, C)


# --- in one array, by head ---


def timm_vit(qkv, num_heads=8):
    """(B, N, 3 C), all heads' Q before all heads' K."""
    B, N, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = qkv.reshape(B, N, 3, num_heads, C // num_heads).permute(2, 0, 3, 1, 4).unbind(0)
    q = q * (C // num_heads) ** -0.5
    attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
    return (attn @ v).transpose(1, 2).reshape(B, N, C)


def vit_pytorch(qkv, heads=8):
    """to_qkv(x).chunk(3, dim=-1), heads split from the columns."""
    b, n, _ = qkv.shape
    q, k, v = (t.reshape(b, n, heads, -1).transpose(1, 2) for t in qkv.chunk(3, dim=-1))
    dots = torch.matmul(q, k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return torch.matmul(dots.softmax(dim=-1), v).transpose(1, 2).reshape(b, n, -1)


def flash_qkvpacked(qkv, softmax_scale=None, causal=False):
    """(batch, n, 3, heads, d), as flash_attn_qkvpacked_func takes it."""
    q, k, v = qkv.unbind(dim=2)
    scale = softmax_scale or q.shape[-1] ** -0.5
    scores = torch.einsum("bthd,bshd->bhts", q, k * scale)
    if causal:
        n = q.shape[1]
        scores = scores + torch.triu(torch.full((n, n), -10000.0), 1).to(scores.dtype)
    return torch.einsum("bhts,bshd->bthd", torch.softmax(scores, dim=-1, dtype=v.dtype), v)


# --- fixed sizes ---


def triton_tutorial(q, k, v, causal, sm_scale):
    """Head sizes of a few kinds, lengths of whole blocks; a running maximum in base 2."""
    BLOCK_M, BLOCK_N = 64, 32
    head_dim, n = q.shape[-1], q.shape[2]
    assert head_dim == k.shape[-1] == v.shape[-1]
    assert head_dim in {16, 32, 64, 128, 256}
    assert n % BLOCK_M == 0
    assert q.shape == k.shape
    out, qk_scale = torch.empty_like(q), sm_scale * 1.44269504
    for start_m in range(0, n, BLOCK_M):
        block = q[:, :, start_m : start_m + BLOCK_M].float()
        m_i = torch.full((*q.shape[:2], BLOCK_M, 1), -float("inf"))
        l_i, acc = torch.zeros_like(m_i), torch.zeros_like(block)
        for start_n in range(0, start_m + BLOCK_M if causal else n, BLOCK_N):
            qk = block @ k[:, :, start_n : start_n + BLOCK_N].float().transpose(-1, -2) * qk_scale
            if causal:
                rows = start_m + torch.arange(BLOCK_M)[:, None]
                qk = qk + torch.where(rows >= start_n + torch.arange(BLOCK_N), 0, -1.0e6)
            m_ij = torch.maximum(m_i, qk.amax(-1, keepdim=True))
            p, alpha = torch.exp2(qk - m_ij), torch.exp2(m_i - m_ij)
            l_i = l_i * alpha + p.sum(-1, keepdim=True)
            acc = acc * alpha + p.to(q.dtype).float() @ v[:, :, start_n : start_n + BLOCK_N].float()
            m_i = m_ij
        out[:, :, start_m : start_m + BLOCK_M] = (acc / l_i).to(q.dtype)
    return out


def flash_blocks(Q, K, V):
    """Algorithm 1 of FlashAttention in NumPy, Br = Bc = 16: (n, d), lengths of whole blocks."""
    N, d = Q.shape
    assert N % 16 == 0
    assert K.shape[0] % 16 == 0
    out, total, m = np.zeros((N, V.shape[1])), np.zeros((N, 1)), np.full((N, 1), -np.inf)
    for j in range(0, K.shape[0], 16):
        Kj, Vj = K[j : j + 16], V[j : j + 16]
        for i in range(0, N, 16):
            rows = slice(i, i + 16)
            S = Q[rows] @ Kj.T / np.sqrt(d)
            mij = S.max(axis=1, keepdims=True)
            P = np.exp(S - mij)
            new = np.maximum(m[rows], mij)
            old, now = np.exp(m[rows] - new), np.exp(mij - new)
            sums = old * total[rows] + now * P.sum(axis=1, keepdims=True)
            out[rows] = (total[rows] * old * out[rows] + now * (P @ Vj)) / sums
            total[rows], m[rows] = sums, new
    return out.astype(Q.dtype)


def gpt2_small(q, k, v):
    """Twelve heads side by side, a number that the function knows itself."""
    n_head = 12
    split = [x.reshape(*x.shape[:2], n_head, -1).transpose(1, 2) for x in (q, k, v)]
    w = split[0] @ split[1].transpose(-1, -2) / math.sqrt(split[0].shape[-1])
    n = w.size(-1)
    b = TRIL[:, :, :n, :n].to(w.dtype)
    w = w * b - 1e10 * (1 - b)
    return (torch.softmax(w, dim=-1) @ split[2]).transpose(1, 2).reshape(q.shape)
