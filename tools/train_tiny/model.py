"""Wan 2.1's video transformer in plain torch, with the tensor names and config keys of diffusers' WanTransformer3DModel.

Differences are of form only: the patch embedding is a matrix product, attention goes through `Attention.attend`, which
mass.py replaces to watch queries and keys. `parity.py` compares the forward pass with diffusers.
"""
import json
import math
import os

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

CONFIG = {
    "_class_name": "WanTransformer3DModel", "added_kv_proj_dim": None, "attention_head_dim": 64,
    "cross_attn_norm": True, "eps": 1e-6, "ffn_dim": 816, "freq_dim": 256, "image_dim": None, "in_channels": 16,
    "num_attention_heads": 6, "num_layers": 8, "out_channels": 16, "patch_size": [1, 2, 2],
    "pos_embed_seq_len": None, "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 1024, "text_dim": 128,
}
SHARD_BYTES = 15 * 1024 * 1024


def rope_table(frames, rows, columns, head_dim, device, theta=1e4):
    """cos, sin [tokens, head_dim / 2] of a raster-ordered grid; a third each for time, row, column (time the largest)."""
    side = 2 * (head_dim // 6)
    parts = []
    for axis, (size, dim) in enumerate([(frames, head_dim - 2 * side), (rows, side), (columns, side)]):
        rates = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angles = torch.outer(torch.arange(size, dtype=torch.float64), rates)
        shape = [1, 1, 1, dim // 2]
        shape[axis] = size
        parts.append(angles.view(shape).expand(frames, rows, columns, dim // 2))
    angles = torch.cat(parts, -1).reshape(frames * rows * columns, head_dim // 2)
    return angles.cos().float().to(device), angles.sin().float().to(device)


def rotate(x, cos, sin):
    """Rotary embedding of [b, n, heads, d] on neighbouring pairs; computed in f32."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).type_as(x)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight.float()).type_as(x)


def layer_norm(x, eps, weight=None, bias=None):
    """Layer norm computed in f32; the result stays f32."""
    return F.layer_norm(x.float(), x.shape[-1:], weight, bias, eps)


class Attention(nn.Module):
    def __init__(self, dim, heads, eps):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(dim, dim)])
        self.norm_q, self.norm_k = RMSNorm(dim, eps), RMSNorm(dim, eps)

    def attend(self, q, k, v):
        """softmax(q k^T / sqrt(d)) v on [b, n, heads, d]."""
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return out.transpose(1, 2)

    def attend_text(self, q, k, v):
        """The same for the 20 text keys, written out: fused kernels pad so few keys to a whole tile."""
        scores = torch.einsum("bnhd,bmhd->bhnm", q, k).float() / q.shape[-1] ** 0.5
        return torch.einsum("bhnm,bmhd->bnhd", scores.softmax(-1).type_as(v), v)

    def forward(self, x, context, rope=None):
        q = self.norm_q(self.to_q(x)).unflatten(-1, (self.heads, -1))
        k = self.norm_k(self.to_k(context)).unflatten(-1, (self.heads, -1))
        v = self.to_v(context).unflatten(-1, (self.heads, -1))
        if rope is None:
            return self.to_out[0](self.attend_text(q, k, v).flatten(2))
        return self.to_out[0](self.attend(rotate(q, *rope), rotate(k, *rope), v).flatten(2))


class Projection(nn.Module):
    """First layer of the feed-forward net, named as diffusers names it (`net.0.proj`)."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.proj = nn.Linear(dim, hidden)

    def forward(self, x):
        return F.gelu(self.proj(x), approximate="tanh")


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.ModuleList([Projection(dim, hidden), nn.Identity(), nn.Linear(hidden, dim)])

    def forward(self, x):
        return self.net[2](self.net[0](x))


class AffineNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        return layer_norm(x, self.eps, self.weight.float(), self.bias.float())


class Block(nn.Module):
    def __init__(self, dim, heads, hidden, eps):
        super().__init__()
        self.eps = eps
        self.attn1, self.attn2 = Attention(dim, heads, eps), Attention(dim, heads, eps)
        self.norm2 = AffineNorm(dim, eps)
        self.ffn = FeedForward(dim, hidden)
        self.scale_shift_table = nn.Parameter(torch.randn(1, 6, dim) / dim**0.5)

    def forward(self, x, context, modulation, cos, sin):
        """x [b, n, dim], context [b, text, dim], modulation f32 [b, 6, dim]."""
        shift1, scale1, gate1, shift2, scale2, gate2 = (self.scale_shift_table.float() + modulation).chunk(6, 1)
        y = (layer_norm(x, self.eps) * (1 + scale1) + shift1).type_as(x)
        x = (x.float() + self.attn1(y, y, (cos, sin)).float() * gate1).type_as(x)
        x = x + self.attn2(self.norm2(x).type_as(x), context)
        y = (layer_norm(x, self.eps) * (1 + scale2) + shift2).type_as(x)
        return (x.float() + self.ffn(y).float() * gate2).type_as(x)


class Pair(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, dim_in, dim, activation):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(dim_in, dim), nn.Linear(dim, dim)
        self.activation = activation

    def forward(self, x):
        return self.linear_2(self.activation(self.linear_1(x)))


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


class Conditioner(nn.Module):
    def __init__(self, dim, freq_dim, text_dim):
        super().__init__()
        self.freq_dim = freq_dim
        self.time_embedder = Pair(freq_dim, dim, F.silu)
        self.time_proj = nn.Linear(dim, 6 * dim)
        self.text_embedder = Pair(text_dim, dim, gelu_tanh)

    def forward(self, timestep, text):
        half = self.freq_dim // 2
        rates = torch.exp(-math.log(10000.0) * torch.arange(half, device=timestep.device).float() / half)
        angles = timestep.float()[:, None] * rates
        embedding = torch.cat([angles.cos(), angles.sin()], -1)
        time = self.time_embedder(embedding.type_as(self.time_embedder.linear_1.weight))
        modulation = self.time_proj(F.silu(time)).float().unflatten(-1, (6, -1))
        return time.float(), modulation, self.text_embedder(text)


class PatchEmbedding(nn.Module):
    """The (1, 2, 2) patch convolution, done as a matrix product; weight [dim, channels, 1, 2, 2]."""

    def __init__(self, channels, dim, patch):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, channels, *patch))
        self.bias = nn.Parameter(torch.zeros(dim))
        nn.init.normal_(self.weight, std=(channels * math.prod(patch)) ** -0.5)

    def forward(self, x):
        b, c, f, h, w = x.shape
        patches = x.view(b, c, f, h // 2, 2, w // 2, 2).permute(0, 2, 3, 5, 1, 4, 6).reshape(b, -1, c * 4)
        return F.linear(patches, self.weight.flatten(1), self.bias)


class Wan(nn.Module):
    def __init__(self, config=CONFIG):
        super().__init__()
        self.config = config
        dim = config["num_attention_heads"] * config["attention_head_dim"]
        assert config["patch_size"] == [1, 2, 2] and config["cross_attn_norm"]
        self.patch_embedding = PatchEmbedding(config["in_channels"], dim, config["patch_size"])
        self.condition_embedder = Conditioner(dim, config["freq_dim"], config["text_dim"])
        self.blocks = nn.ModuleList([Block(dim, config["num_attention_heads"], config["ffn_dim"], config["eps"])
                                     for _ in range(config["num_layers"])])
        self.proj_out = nn.Linear(dim, config["out_channels"] * 4)
        self.scale_shift_table = nn.Parameter(torch.randn(1, 2, dim) / dim**0.5)
        nn.init.zeros_(self.proj_out.weight)
        nn.init.zeros_(self.proj_out.bias)
        self.ropes = {}

    def rope(self, grid, device):
        key = (*grid, str(device))
        if key not in self.ropes:
            self.ropes[key] = rope_table(*grid, self.config["attention_head_dim"], device)
        return self.ropes[key]

    def forward(self, x, timestep, text):
        """Velocity f32 [b, 16, f, h, w] of latents x at timestep = 1000 sigma [b], text tokens [b, 20, text_dim]."""
        b, _, f, h, w = x.shape
        cos, sin = self.rope((f, h // 2, w // 2), x.device)
        time, modulation, context = self.condition_embedder(timestep, text)
        tokens = self.patch_embedding(x)
        for block in self.blocks:
            tokens = block(tokens, context, modulation, cos, sin)
        shift, scale = (self.scale_shift_table.float() + time[:, None]).chunk(2, 1)
        out = self.proj_out((layer_norm(tokens, self.config["eps"]) * (1 + scale) + shift).type_as(tokens))
        out = out.view(b, f, h // 2, w // 2, 2, 2, -1).permute(0, 6, 1, 2, 4, 3, 5)
        return out.reshape(b, -1, f, h, w).float()


class TextTable(nn.Module):
    """Text tokens [b, 20, dim] = word_embedding[word] + slot_embedding[slot], zeros where a slot is empty."""

    def __init__(self, words, slots, dim):
        super().__init__()
        self.word_embedding, self.slot_embedding = nn.Embedding(words, dim), nn.Embedding(slots, dim)

    def forward(self, slots):
        filled = (slots >= 0)[..., None]
        return (self.word_embedding(slots.clamp(min=0)) + self.slot_embedding.weight) * filled


def export(folder, tensors, text, config=CONFIG):
    """Write bf16 shards with index, config.json and text.safetensors (f32 of bf16-rounded values) into a folder."""
    os.makedirs(folder, exist_ok=True)
    shards, size = [{}], 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().to("cpu", torch.bfloat16).contiguous()
        if size + tensor.nbytes > SHARD_BYTES - 65536:
            shards, size = shards + [{}], 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    places, total = {}, sum(t.nbytes for shard in shards for t in shard.values())
    for index, shard in enumerate(shards):
        file = f"diffusion_pytorch_model-{index + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, os.path.join(folder, file), metadata={"format": "pt"})
        places.update({name: file for name in shard})
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    for file, content in (("diffusion_pytorch_model.safetensors.index.json", index), ("config.json", config)):
        with open(os.path.join(folder, file), "w") as out:
            json.dump(content, out, indent=2)
            out.write("\n")
    save_file({name: t.detach().to("cpu", torch.bfloat16).float().contiguous() for name, t in text.items()},
              os.path.join(folder, "text.safetensors"))
    return total


def load(folder, device="cpu", dtype=torch.float32):
    """(Wan, TextTable) from an exported folder; the model in `dtype`, the text table in f32."""
    with open(os.path.join(folder, "diffusion_pytorch_model.safetensors.index.json")) as file:
        places = json.load(file)["weight_map"]
    with open(os.path.join(folder, "config.json")) as file:
        model = Wan(json.load(file))
    tensors = {}
    for name in sorted(set(places.values())):
        tensors.update(load_file(os.path.join(folder, name)))
    model.load_state_dict(tensors)
    saved = load_file(os.path.join(folder, "text.safetensors"))
    text = TextTable(*saved["word_embedding.weight"].shape[:1], *saved["slot_embedding.weight"].shape)
    text.load_state_dict(saved)
    return model.to(device, dtype).eval(), text.to(device).eval()
