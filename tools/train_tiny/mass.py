"""How concentrated the trained model's self-attention is: for every layer and head the density of 64x64 blocks that
keeps 90 % and 95 % of the softmax mass, in raster and in Hilbert order.

During a guided sampling run, at a few steps, the probabilities of every head are summed over 64-token blocks; each row of
query blocks keeps its heaviest key blocks until the share is reached. Density = kept blocks / all blocks, mean over query
blocks, captions, steps and both branches. The Hilbert order is Skilling's transform (2004) in the enclosing 2^b cube,
digits (x = column, y = row, z = frame), codes sorted.
"""
import argparse
import json

import torch
import torch.nn.functional as F

import sample
import sheet
import model as wan
import words

BLOCK = 64
SHARES = (0.90, 0.95)


def hilbert_code(point, bits):
    """Hilbert index of integer coordinates (x, y, z) in the cube of side 2^bits."""
    x = list(point)
    q = 1 << (bits - 1)
    while q > 1:  # undo the excess rotations
        for i in range(3):
            if x[i] & q:
                x[0] ^= q - 1
            else:
                swap = (x[0] ^ x[i]) & (q - 1)
                x[0] ^= swap
                x[i] ^= swap
        q >>= 1
    for i in (1, 2):  # Gray code
        x[i] ^= x[i - 1]
    t, q = 0, 1 << (bits - 1)
    while q > 1:
        if x[2] & q:
            t ^= q - 1
        q >>= 1
    code = 0
    for bit in range(bits - 1, -1, -1):
        for value in x:
            code = code << 1 | ((value ^ t) >> bit) & 1
    return code


def hilbert_order(frames, rows, columns):
    """Raster index of every memory position, int64 [tokens]."""
    bits = max(1, (max(frames, rows, columns) - 1).bit_length())
    points = [(x, y, z) for z in range(frames) for y in range(rows) for x in range(columns)]
    codes = [hilbert_code(p, bits) for p in points]
    return torch.tensor(sorted(range(len(points)), key=codes.__getitem__))


def block_mass(q, k, block=BLOCK):
    """Mass of key blocks [heads, query blocks, key blocks] of q, k [n, heads, d]; every row sums to 1."""
    n, heads, d = q.shape
    count = -(-n // block)
    rows = []
    keys = k.transpose(0, 1).float()
    for first in range(0, n, 16 * block):  # a few query blocks at a time bound the memory
        queries = q[first:first + 16 * block].transpose(0, 1).float()
        p = torch.softmax(queries @ keys.mT / d**0.5, -1)
        p = F.pad(p, (0, count * block - n)).unflatten(-1, (count, block)).sum(-1)
        missing = -p.shape[1] % block
        real = torch.full((-(-p.shape[1] // block),), float(block), device=q.device)
        real[-1] = block - missing
        p = F.pad(p, (0, 0, 0, missing)).unflatten(1, (-1, block)).sum(2)
        rows.append(p / real[:, None])
    return torch.cat(rows, 1)


def density(mass, share):
    """Kept share of blocks per head [heads]: the fewest key blocks per query block that reach `share`."""
    ordered = mass.sort(-1, descending=True).values.cumsum(-1)
    kept = (ordered < share).sum(-1) + 1
    return kept.clamp(max=mass.shape[-1]).float().mean(-1) / mass.shape[-1]


class Watch:
    """Replaces every self-attention's `attend` and adds densities at the chosen steps."""

    def __init__(self, model, grid, steps):
        self.steps, self.on = set(steps), False
        self.orders = {"raster": None, "hilbert": hilbert_order(*grid).to(model.proj_out.weight.device)}
        layers, heads = len(model.blocks), model.config["num_attention_heads"]
        self.sums = {(o, s): torch.zeros(layers, heads) for o in self.orders for s in SHARES}
        self.count = [0] * layers
        for layer, block in enumerate(model.blocks):
            self.attach(layer, block.attn1)

    def attach(self, layer, attention):
        plain = attention.attend

        def attend(q, k, v):
            if self.on:
                self.add(layer, q, k)
            return plain(q, k, v)
        attention.attend = attend

    def add(self, layer, q, k):
        for one in range(len(q)):
            for name, order in self.orders.items():
                qs, ks = (q[one], k[one]) if order is None else (q[one][order], k[one][order])
                mass = block_mass(qs, ks)
                for share in SHARES:
                    self.sums[name, share][layer] += density(mass, share).cpu()
            self.count[layer] += 1

    def step(self, index):
        self.on = index in self.steps

    def table(self):
        counts = torch.tensor(self.count)[:, None]
        return {f"{name}_{round(100 * share)}": [[round(v, 4) for v in row] for row in (total / counts).tolist()]
                for (name, share), total in self.sums.items()}


def measure(folder, captions, grid, device, steps):
    model, text = wan.load(folder, device, sample.working_type(device))
    watch = Watch(model, grid, steps)
    slots = torch.tensor([words.encode(c) for c in captions], device=device)
    noise = sample.noise_of(range(len(captions)), grid).to(device)
    sample.latents_of(model, text(slots), noise, *sample.sampler_of(folder), watch.step)
    table = watch.table()
    means = {name: round(sum(map(sum, rows)) / (len(rows) * len(rows[0])), 4) for name, rows in table.items()}
    return {"tokens": grid[0] * grid[1] * grid[2], "mean": means, "by_layer_and_head": table}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--captions", required=True)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--grids", default="13x20x24,9x16x16")
    parser.add_argument("--at", default="3,11,19,27", help="steps of 30 at which the mass is measured")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", required=True, help="attention_mass.json")
    options = parser.parse_args()
    captions = sheet.read_captions(options.captions)[:options.count]
    steps = [int(v) for v in options.at.split(",")]
    settings = sample.settings_of(*sample.sampler_of(options.model), sample.working_type(options.device))
    result = {"block": BLOCK, "captions": len(captions), "steps_measured": steps, **settings, "grids": {}}
    for name in options.grids.split(","):
        grid = tuple(int(v) for v in name.split("x"))
        result["grids"][name] = measure(options.model, captions, grid, options.device, steps)
        print(name, result["grids"][name]["mean"], flush=True)
    with open(options.out, "w") as file:
        json.dump(result, file, indent=None, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
