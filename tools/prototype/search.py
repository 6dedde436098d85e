"""Compares settings of preset tulle with dense videos: PSNR, its worst quarter, and the checker's attributes.

    search.py --row "1,3,6,10,18 blocks=1" --row "1,2,3,5,8,12,19 blocks=3 follow=1,3,6"

A row is the steps at which the conditional branch computes all blocks, then key=value: blocks (one number or one for each start),
follow, renew, renew_at, fade, order, sub_block. Needs torch and the built check_clips; a GPU, or patience and --grid 3x8x8.
"""
import argparse
import json
import os
import sys
import time

import torch

from attention import BLOCK, Attention, Dense, Settings

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools", "train_tiny"))

import model as wan  # noqa: E402
import sample  # noqa: E402
import scoring  # noqa: E402
import sheet  # noqa: E402
import words  # noqa: E402
from codec import Codec  # noqa: E402
from mass import hilbert_order  # noqa: E402


def numbers(text):
    return [int(x) for x in text.split(",")]


def settings_of(text):
    first, *rest = text.split()
    values = {"starts": numbers(first), "blocks": [2], "follow": [1]}
    for item in rest:
        key, value = item.split("=")
        values[key] = (numbers(value) if key in ("blocks", "follow", "renew_at") else
                       value if key == "order" else float(value) if key == "fade" else int(value))
    if len(values["blocks"]) == 1:
        values["blocks"] *= len(values["starts"])
    return Settings(**values)


def orders_of(grid, files):
    """{name: raster index of every memory position}; others than Hilbert's from files name=path, one index a line."""
    orders = {"hilbert": hilbert_order(*grid)}
    for item in files:
        name, path = item.split("=")
        with open(path) as file:
            orders[name] = torch.tensor([int(line) for line in file])
    return orders


class Bench:
    def __init__(self, options):
        self.options, self.grid = options, scoring.grid_of(options.grid)
        self.steps, self.shift, self.guidance = sample.sampler_of(options.model)
        self.model, text = wan.load(options.model, options.device, sample.working_type(options.device))
        self.codec = Codec.load(os.path.join(options.model, "codec.safetensors"), options.device)
        with open(options.captions) as file:
            self.lines = [line.strip() for line in file if line.strip()][options.skip:options.skip + options.count]
        slots = torch.tensor([words.encode(json.loads(line)["caption"]) for line in self.lines], device=options.device)
        with torch.no_grad():
            self.tokens = text(slots)
        self.noise = sample.noise_of(range(options.first_seed, options.first_seed + len(self.lines)), self.grid).to(options.device)
        self.now = Dense()
        for layer, block in enumerate(self.model.blocks):
            block.attn1.attend = lambda q, k, v, layer=layer: self.now.attend(layer, q, k, v)
        self.dense = self.draw(Dense)

    def draw(self, make):
        """Clips [n, frames, h, w, 3] in [0, 1]; `make` gives the attention of each batch."""
        parts = []
        for first in range(0, len(self.lines), self.options.batch):
            part = slice(first, first + self.options.batch)
            self.now = make()
            with torch.no_grad():
                latents = sample.latents_of(self.model, self.tokens[part], self.noise[part], self.steps, self.shift,
                                            self.guidance, lambda step: self.now.begin_step(step))
            parts.append(self.codec.decode(latents).clamp(0, 1).cpu())
        return torch.cat(parts)

    def attributes(self, clips):
        if not self.options.checker:
            return float("nan")
        rates = scoring.score(self.options.checker, sheet.to_bytes(clips), self.lines)
        return sum(rates[name] for name in scoring.RATES[1:]) / len(scoring.RATES[1:])

    def row(self, text, orders):
        begin, settings = time.time(), settings_of(text)
        clips = self.draw(lambda: Attention(settings, len(self.model.blocks), orders[settings.order].to(self.options.device)))
        psnr = -10 * torch.log10((clips - self.dense).square().mean((1, 2, 3, 4)).clamp(min=1e-9))
        worst = psnr.sort().values[:max(1, len(psnr) // 4)]
        tokens = self.grid[0] * self.grid[1] * self.grid[2]
        print(f"{text:60s} density {settings.density(self.steps, tokens // BLOCK):.4f}  PSNR {psnr.mean():.2f}  worst quarter "
              f"{worst.mean():.2f}  attributes {self.attributes(clips):.3f}  {time.time() - begin:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", required=True)
    parser.add_argument("--model", default=os.path.join(ROOT, "models", "tiny"))
    parser.add_argument("--captions", default=os.path.join(ROOT, "models", "tiny", "heldout.jsonl"))
    parser.add_argument("--skip", type=int, default=200, help="captions left out at the start: those of studies and profiles")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--first-seed", type=int, default=9000)
    parser.add_argument("--grid", default="9x16x16")
    parser.add_argument("--order", action="append", default=[], help="name=file of a token order")
    parser.add_argument("--checker", type=scoring.program, help="the built check_clips; without it no attributes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    bench = Bench(options)
    print(f"dense: attributes {bench.attributes(bench.dense):.3f}", flush=True)
    orders = orders_of(bench.grid, options.order)
    for text in options.row:
        bench.row(text, orders)


if __name__ == "__main__":
    main()
