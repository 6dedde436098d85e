"""Trains the shipped model by flow matching on clips drawn as it goes.

x_t = (1 - s) x0 + s noise, target noise - x0, s = shift * u / (1 + (shift - 1) u) with u logit-normal. The schedule
follows the wall clock: `--seconds` from the start of the process, the learning rates reach 0 at the end.
Writes <out>/log.jsonl, <out>/early (an export at every `--export-every` seconds) and <out>/final.
"""
import argparse
import json
import os
import time

import torch
import torch.nn.functional as F

import clips
import model as wan
import optimiser
import sample
import sheet
import words
from codec import Codec

START = time.time()
GRIDS = {  # tokens: (batch, share of steps in the first third of a first run, share after it)
    (9, 16, 16): (48, 0.58, 0.36),
    (9, 20, 28): (16, 0.16, 0.14),
    (13, 20, 24): (14, 0.20, 0.34),
    (13, 24, 40): (5, 0.06, 0.16),
}


TOY_GRIDS = {(3, 6, 6): (2, 0.5, 0.5), (3, 6, 8): (2, 0.5, 0.5)}


def options_of_command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1200, help="wall clock from the start of the process")
    parser.add_argument("--steps", type=int, default=10**9, help="stop after so many steps (for trials)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--codec", required=True, help="codec.safetensors")
    parser.add_argument("--captions", help="held-out captions for previews (heldout.jsonl)")
    parser.add_argument("--out", required=True)
    parser.add_argument("--init", help="exported folder to start from")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--muon-lr", type=float, default=2e-3)
    parser.add_argument("--adam-lr", type=float, default=1e-3)
    parser.add_argument("--text-lr", type=float, default=3e-3)
    parser.add_argument("--decay-from", type=float, default=0.5, help="share of the time after which the rates fall")
    parser.add_argument("--shift", type=float, default=3.0)
    parser.add_argument("--object-weight", type=float, default=0.0,
                        help="extra loss weight of object pixels: shapes come sooner, but objects are then drawn twice")
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--compile", choices=["none", "dynamic", "static"], default="dynamic")
    parser.add_argument("--attention", choices=["auto", "flash", "cudnn"], default="auto")
    parser.add_argument("--batch-scale", type=float, default=1.0)
    parser.add_argument("--export-every", type=float, default=150)
    parser.add_argument("--toy", action="store_true", help="tiny grids, to try the program on a CPU")
    return parser.parse_args()


def choose_attention(device, wish):
    """Enable one fused attention back end; `auto` times forward and backward and takes the faster. The figures."""
    if device == "cpu":
        return {}
    from torch.nn.attention import SDPBackend, sdpa_kernel
    figures = {}
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        if wish not in ("auto", name):
            continue
        try:
            with sdpa_kernel([backend]):
                figures[name] = sum(attention_time(b, n) for b, n in ((48, 2304), (14, 6240), (5, 12480)))
        except RuntimeError as error:
            print(f"attention back end {name} does not run: {error}", flush=True)
    best = min(figures, key=figures.get)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)
    torch.backends.cuda.enable_flash_sdp(best == "flash")
    torch.backends.cuda.enable_cudnn_sdp(best == "cudnn")
    return figures


def attention_time(batch, tokens, repeats=4):
    q, k, v = (torch.randn(batch, tokens, 6, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
               for _ in range(3))
    for i in range(repeats + 1):
        out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
        out.backward(torch.ones_like(out))
        if i == 0:
            torch.cuda.synchronize()
            begin = time.time()
    torch.cuda.synchronize()
    return (time.time() - begin) / repeats


def drop_words(slots, generator):
    """Empty one caption in ten, and thin another twentieth word by word, so that short prompts work too."""
    u = clips.uniform(generator, (len(slots), 1))
    thin = (u > 0.95) & (clips.uniform(generator, slots.shape) < 0.3)
    return torch.where((u < 0.1) | thin, -1, slots)


def noise_levels(batch, shift, generator):
    """Sigma in (0, 1), one stratum per sample."""
    u = (torch.randperm(batch, generator=generator, device=generator.device) + clips.uniform(generator, (batch,)))
    level = torch.sigmoid(torch.special.ndtri((u / batch).clamp(1e-4, 1 - 1e-4)))
    return shift * level / (1 + (shift - 1) * level)


class Trainer:
    def __init__(self, options):
        self.grids = TOY_GRIDS if options.toy else GRIDS
        self.options, self.device = options, options.device
        torch.manual_seed(options.seed)
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        self.attention = choose_attention(self.device, options.attention)
        self.codec = Codec.load(options.codec, self.device)
        if options.init:
            self.model, self.text = wan.load(options.init, self.device)
            self.model.train(), self.text.train()
        else:
            self.model = wan.Wan().to(self.device)
            self.text = wan.TextTable(words.WORDS, words.SLOTS, wan.CONFIG["text_dim"]).to(self.device)
        self.muon, self.adam = optimiser.build(self.model, self.text, options.muon_lr, options.adam_lr, options.text_lr)
        self.average = optimiser.Average([*self.model.parameters(), *self.text.parameters()], options.ema)
        self.generator = torch.Generator(self.device)
        self.random = torch.Generator().manual_seed(options.seed)
        if options.compile != "none":
            torch._dynamo.config.cache_size_limit = 64
            for block in self.model.blocks:
                block.compile(dynamic=options.compile == "dynamic")

    def size_of(self, grid):
        return max(1, round(self.grids[grid][0] * self.options.batch_scale))

    def batch(self, step, grid):
        """(latents x0, weight, slots, keep) of one step; depends on the seed and the step alone."""
        frames, rows, columns = grid
        size = self.size_of(grid)
        self.generator.manual_seed(self.options.seed * 1_000_003 + step)
        video, cover, slots, keep = clips.training_batch(size, frames, 8 * rows, 8 * columns, self.generator)
        cover = F.avg_pool2d(cover, 4)[:, None]
        weight = (1 + self.options.object_weight * cover) * keep[:, None, None, None, None]
        return self.codec.encode(video), weight, slots

    def loss(self, step, grid):
        with torch.no_grad():
            x0, weight, slots = self.batch(step, grid)
            slots = drop_words(slots, self.generator)
            sigma = noise_levels(len(x0), self.options.shift, self.generator)
            noise = torch.randn(x0.shape, generator=self.generator, device=x0.device)
            s = sigma[:, None, None, None, None]
            mixed, target = (1 - s) * x0 + s * noise, noise - x0
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            velocity = self.model(mixed, sigma * 1000, self.text(slots))
        error = (velocity - target).square()
        return (error * weight).mean() / weight.mean(), error.detach().mean()

    def factor(self, step):
        progress = min(1.0, (time.time() - START) / self.options.seconds)
        tail = min(1.0, (1 - progress) / (1 - self.options.decay_from))
        return progress, tail * min(1.0, (step + 1) / 60)

    def step(self, step):
        progress, factor = self.factor(step)
        first = progress < 1 / 3 and not self.options.init
        shares = [share[1] if first else share[2] for share in self.grids.values()]
        grid = list(self.grids)[torch.multinomial(torch.tensor(shares), 1, generator=self.random).item()]
        if step < len(self.grids):
            grid = list(self.grids)[step]  # every shape is compiled at once
        loss, plain = self.loss(step, grid)
        loss.backward()
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * factor
        torch.nn.utils.clip_grad_norm_(self.adam.param_groups[0]["params"], 1.0, foreach=True)
        self.muon.step(factor)
        self.adam.step()
        self.model.zero_grad(set_to_none=True)
        self.text.zero_grad(set_to_none=True)
        self.average.update()
        return grid, plain, progress

    def averaged(self):
        """(model tensors, text tensors) of the moving average."""
        names = [n for n, _ in self.model.named_parameters()]
        model = dict(zip(names, self.average.values))
        text = dict(zip([n for n, _ in self.text.named_parameters()], self.average.values[len(names):]))
        return model, text

    def export(self, name, preview):
        folder = os.path.join(self.options.out, name)
        total = wan.export(folder, *self.averaged())
        if preview and self.options.captions:
            model, text = wan.load(folder, self.device, sample.working_type(self.device))
            captions = sheet.read_captions(self.options.captions)[:6]
            clip = sample.sample(model, text, self.codec, captions, next(iter(self.grids)), range(6))
            sheet.contact_sheet(folder + ".png", clip, rows=6)
        return total


def run(options):
    os.makedirs(options.out, exist_ok=True)
    log = open(os.path.join(options.out, "log.jsonl"), "a")
    trainer = Trainer(options)

    def note(**values):
        log.write(json.dumps({"seconds": round(time.time() - START, 2), **values}) + "\n")
        log.flush()
        print(values, flush=True)

    note(event="start", attention=trainer.attention, torch=torch.__version__, options=vars(options))
    sums, step, exported = {}, 0, options.export_every
    clips_seen = 0
    progress = 0.0
    window = time.time()
    while progress < 1 and step < options.steps:
        grid, loss, progress = trainer.step(step)
        clips_seen += trainer.size_of(grid)
        entry = sums.setdefault("x".join(map(str, grid)), [])
        entry.append(loss)
        step += 1
        if step < 5 or step == 20 or step % 100 == 0:
            losses = {key: round(torch.stack(values).mean().item(), 5) for key, values in sums.items()}
            each = {key: len(values) for key, values in sums.items()}
            note(step=step, loss=losses, steps_of=each, clips=clips_seen, window=round(time.time() - window, 3))
            sums, window = {}, time.time()
        if time.time() - START > exported and progress < 0.93:
            trainer.export("early", preview=True)
            exported = time.time() - START + options.export_every
            note(event="early export", step=step)
    total = trainer.export("final", preview=False)
    note(event="end", step=step, clips=clips_seen, bytes=total)


if __name__ == "__main__":
    run(options_of_command_line())
