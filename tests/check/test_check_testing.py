"""`assert_attention` and `check_module`, and arrays that are not NumPy's."""

import numpy as np
import planted as own
import pytest

import attnctl
from attnctl import AttnError
from attnctl.testing import assert_attention


def test_what_is_right_passes_and_gives_its_report():
    assert assert_attention(own.attend(own.CAUSAL), heads=2, causal=True).agrees


def test_what_is_wrong_fails_with_the_report_as_text():
    with pytest.raises(AssertionError) as failed:
        assert_attention(own.attend(own.CAUSAL, "no-scale"), heads=2, causal=True)
    report = attnctl.check(own.attend(own.CAUSAL, "no-scale"), heads=2, causal=True)
    assert str(failed.value) == str(report)
    assert str(report).startswith("scaled_scores is the first wrong step")
    assert "(no-scale)" in str(report)


def test_what_cannot_be_told_fails_too():
    arrays = own.attend(own.CAUSAL)
    kept = {name: arrays[name] for name in ("scaled_scores", "attention_weights")}
    with pytest.raises(AssertionError, match="cannot tell"):
        assert_attention(kept, causal=True)


class OnlyArray:
    """Something with `__array__` alone."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class OnlyDlpack:
    """Something with DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [OnlyArray, OnlyDlpack, np.ndarray.tolist])
def test_arrays_of_any_library_will_do(wrap):
    arrays = own.attend(own.CAUSAL)
    assert_attention({name: wrap(arrays[name]) for name in ("Q", "K", "scores")})


def test_what_is_no_array_is_refused():
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise TypeError("on another planet")

    with pytest.raises(AttnError, match="Q: on another planet; give a NumPy array"):
        attnctl.check({"Q": Broken()})


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_tensors_of_torch_will_do(dtype):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 6, 8, dtype=getattr(torch, dtype), requires_grad=True) for _ in range(3))
    z = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_attention({"q": q, "k": k, "v": v, "z": z}, causal=True)
    assert_attention({"q": q[None], "k": k[None], "v": v[None], "attn_output": z[None]}, causal=True)
    assert_attention({"q": q, "k": k, "v": v, "out": z}, causal=True)
    with pytest.raises(AssertionError, match="mask-"):
        assert_attention(
            {"q": q, "k": k, "v": v, "z": torch.nn.functional.scaled_dot_product_attention(q, k, v)},
            causal=True,
        )


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_module_of_torch_is_checked(batch_first):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(16, 4, batch_first=batch_first)
    x = torch.randn(2, 5, 16)
    hidden = torch.ones(5 if batch_first else 2, 5 if batch_first else 2, dtype=torch.bool).triu(1)
    report = attnctl.check_module(module, x, x, x, keywords={"attn_mask": hidden})
    assert report.agrees, str(report)
    assert {"attention_weights", "output"} - set(report.trace) == {"attention_weights"}  # averaged
    module.in_proj_bias.data[:16] += 1
    wrong = torch.nn.MultiheadAttention.forward
    try:
        torch.nn.MultiheadAttention.forward = lambda *a, **k: (wrong(*a, **k)[0] * 1.5, None)
        assert attnctl.check_module(module, x, x, x).first == "output"
    finally:
        torch.nn.MultiheadAttention.forward = wrong


def test_the_projections_of_a_module_are_recorded():
    torch = pytest.importorskip("torch")

    class Attention(torch.nn.Module):
        """What people write."""

        def __init__(self, heads, factor):
            super().__init__()
            self.num_heads, self.factor = heads, factor
            self.q_proj, self.k_proj, self.v_proj, self.o_proj = (torch.nn.Linear(16, 16) for _ in range(4))

        def forward(self, x):
            q, k, v = (
                p(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                for p in (self.q_proj, self.k_proj, self.v_proj)
            )
            weights = (q @ k.transpose(-1, -2) * self.factor).softmax(-1)
            return self.o_proj((weights @ v).transpose(1, 2).flatten(2))

    torch.manual_seed(0)
    x = torch.randn(2, 5, 16)
    report = attnctl.check_module(Attention(4, 0.5), x)
    assert report.agrees, str(report)
    judged = [name for name, step in report.steps.items() if step.verdict.value == "agrees"]
    assert judged == ["Q", "K", "V", "output"]
    report = attnctl.check_module(Attention(4, 0.25), x)
    assert (report.agrees, report.first) == (False, "output")


LEAKS = [(None, []), (2, ["hidden keys moved"]), (0, ["other members moved"]), (1, ["other heads moved"])]


@pytest.mark.parametrize(("axis", "broken"), LEAKS)
def test_a_leak_of_a_module_is_found_without_a_tolerance(axis, broken):
    """Each number is right within rounding, and a row follows what it cannot see all the same."""
    torch = pytest.importorskip("torch")

    class Attention(torch.nn.Module):
        """Of two heads, causal."""

        num_heads = 2

        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(16, 48)

        def forward(self, x):
            q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
            z = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            z = z if axis is None else z + 1e-9 * v.mean(dim=axis, keepdim=True)
            return z.transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    module, x = Attention(), torch.randn(2, 5, 16)
    assert attnctl.check_module(module, x, causal=True).agrees
    report = attnctl.check_module(module, x, causal=True, invariants=True)
    assert report.agrees is not bool(broken)
    assert [str(law).partition(",")[0].removeprefix("With ") for law in report.broken] == broken
    assert ("agrees" in str(report).splitlines()[0]) is report.agrees


@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_own_layer_keeps_the_laws(batch_first):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module, x = torch.nn.MultiheadAttention(16, 4, batch_first=batch_first), torch.randn(5, 5, 16)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for keywords in ({}, {"attn_mask": hidden}):
        assert attnctl.check_module(module, x, x, x, keywords=keywords, invariants=True).agrees
    if batch_first:
        module.register_forward_hook(
            lambda module, read, out: (out[0] + 1e-9 * read[2].mean(1, True), out[1])
        )
        report = attnctl.check_module(module, x, x, x, keywords={"attn_mask": hidden}, invariants=True)
        assert "With hidden keys moved" in str(report).splitlines()[0]


@pytest.mark.sample(2)
@pytest.mark.parametrize("batch_first", [True, False])
def test_the_gradients_of_a_module_are_checked(batch_first):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(16, 4, batch_first=batch_first)
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    for inputs, by in (((x, x, x), "d_X"), ((x, memory, memory), "d_memory")):
        report = attnctl.check_module(module, *inputs, backward=True)
        assert report.agrees, str(report)
        judged = {name for name, step in report.steps.items() if step.verdict.value == "agrees"}
        assert judged >= {by, "d_W_Q", "d_W_K", "d_W_V", "d_W_O", "d_b_V", "d_b_O", "output"}
    assert all(each.grad is None for each in (x, *module.parameters()))

    class Doubled(torch.autograd.Function):
        """Twice the gradient that it should give."""

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, d):
            return 2 * d

    class Wrong(torch.nn.MultiheadAttention):
        def forward(self, query, key, value, **more):
            return super().forward(query, Doubled.apply(key), value, **more)

    wrong = attnctl.check_module(Wrong(16, 4, batch_first=batch_first), x, memory, memory, backward=True)
    assert wrong.first == "d_memory"


def test_gradients_that_were_asked_for_have_to_be_there():
    arrays = own.attend(own.CAUSAL)
    with pytest.raises(AssertionError, match="no gradient was compared"):
        assert_attention(arrays, heads=2, causal=True, backward=True)
    trace = attnctl.run("I love AI", backward=True)
    assert assert_attention(trace, backward=True).agrees


@pytest.mark.slow
def test_modules_of_hugging_face_are_checked():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from transformers.models.bert.modeling_bert import BertAttention
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    torch.manual_seed(0)
    x = torch.randn(2, 5, 16)
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "attn_implementation": "eager"}
    bert = BertAttention(transformers.BertConfig(intermediate_size=32, **sizes)).eval()
    report = attnctl.check_module(bert, x, heads=4)
    judged = [name for name, step in report.steps.items() if step.verdict.value == "agrees"]
    assert (report.agrees, judged[-1]) == (True, "output"), str(report)  # before it is added to X

    config = transformers.LlamaConfig(num_key_value_heads=2, **sizes)
    llama = LlamaAttention(config, 0).eval()
    hidden = torch.full((5, 5), torch.finfo(torch.float32).min).triu(1)[None, None]
    turn = LlamaRotaryEmbedding(config)(x, torch.arange(5)[None])
    keywords = {"position_embeddings": turn, "attention_mask": hidden}
    report = attnctl.check_module(llama, x, keywords=keywords, positions="rope")
    assert report.agrees, str(report)
    report = attnctl.check_module(llama, x, keywords=keywords)
    assert report.unasked == "--positions rope", str(report)
