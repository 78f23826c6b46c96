import torch

torch.manual_seed(81)
layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
words = torch.randn(3, 5, 8)
lengths = torch.tensor([2, 5, 3])
is_word = torch.arange(5) < lengths[:, None]  # wrong: mask-inverted
with torch.no_grad():
    print(layer(words, words, words, key_padding_mask=is_word)[0].mean(1))
