"""Draws clips from an exported model: Euler steps of the flow, shifted sigmas, classifier-free guidance.

With shifted(t) = shift t / (1 + (shift - 1) t): sigma_i = shifted(u_i) for i < steps, where u_i are equal steps from 1 to
shifted(1/1000), both ends included; sigma_steps = 0. This is `tulle generate`'s schedule and that of diffusers'
FlowMatchEulerDiscreteScheduler.set_timesteps(steps): the end of the training range is shifted, then every step is.
x <- x + (sigma_{i+1} - sigma_i) v, v = v_empty + guidance * (v_prompt - v_empty), timestep = 1000 sigma.
Noise is drawn on the CPU from the clip's own seed.
"""
import argparse
import json
import os
import time

import torch

import model as wan
import sheet
import words
from codec import Codec

TRAIN_STEPS = 1000
SCHEDULE = ("sigma_i = shifted(u_i), u_i in equal steps from 1 to shifted(1/1000), then 0; shifted(t) = shift t / "
            "(1 + (shift - 1) t), as FlowMatchEulerDiscreteScheduler")


def sampler_of(folder):
    """(steps, shift, guidance) of the folder's default sampler."""
    with open(os.path.join(folder, "sampler.json")) as file:
        settings = json.load(file)
    if settings["sampler"] != "euler":
        raise SystemExit(f"{folder}/sampler.json asks for {settings['sampler']}; this program has euler alone")
    return settings["steps"], settings["shift"], settings["guidance"]


def working_type(device):
    return torch.bfloat16 if str(device).startswith("cuda") else torch.float32


def shifted(t, shift):
    return shift * t / (1 + (shift - 1) * t)


def sigmas(steps, shift):
    """The steps + 1 noise levels from 1 to 0; rounded to f32 where diffusers rounds, computed in f64 elsewhere."""
    least = torch.tensor(shifted(1 / TRAIN_STEPS, shift)).double().item()
    t = torch.linspace(1, least, steps, dtype=torch.float64)
    return shifted(t, shift).float().tolist() + [0.0]


def noise_of(seeds, grid):
    """f32 noise [n, 16, frames, 2 rows, 2 columns]; the clip with seed s is the same in any batch."""
    frames, rows, columns = grid
    shape = (wan.CONFIG["in_channels"], frames, 2 * rows, 2 * columns)
    return torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(s)) for s in seeds])


@torch.no_grad()
def latents_of(model, tokens, noise, steps, shift, guidance, watch=None):
    """Integrate noise to latents under text tokens [n, 20, dim]; `watch(step)` is called before every model call."""
    x = noise
    levels = sigmas(steps, shift)
    both = torch.cat([tokens, torch.zeros_like(tokens)]).to(model.proj_out.weight.dtype)
    for step, (now, following) in enumerate(zip(levels, levels[1:])):
        if watch:
            watch(step)
        timestep = torch.full((len(both),), now * 1000, device=x.device)
        v = model(torch.cat([x, x]).to(both.dtype), timestep, both)
        prompted, empty = v.chunk(2)
        x = x + (following - now) * (empty + guidance * (prompted - empty))
    return x


def sample(model, text, codec, captions, grid, seeds, steps=30, shift=3.0, guidance=2.0, chunk=25):
    """uint8 clips [n, frames, h, w, 3] of captions."""
    seeds, parts = list(seeds), []
    device = model.proj_out.weight.device
    for first in range(0, len(captions), chunk):
        part = captions[first:first + chunk]
        slots = torch.tensor([words.encode(c) for c in part], device=device)
        noise = noise_of(seeds[first:first + chunk], grid).to(device)
        with torch.no_grad():
            latents = latents_of(model, text(slots), noise, steps, shift, guidance)
        parts.append(torch.from_numpy(sheet.to_bytes(codec.decode(latents))))
    return torch.cat(parts).numpy()


def settings_of(steps, shift, guidance, dtype):
    """What a record of sampled clips says about how they were made."""
    precision = {torch.bfloat16: "bf16", torch.float32: "f32"}[dtype]
    return {"sampler": {"kind": "euler", "steps": steps, "shift": shift, "guidance": guidance}, "schedule": SCHEDULE,
            "precision": precision}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="exported folder")
    parser.add_argument("--codec", help="codec.safetensors; the model folder's by default")
    parser.add_argument("--captions", required=True, help="text file (one a line) or heldout.jsonl")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--grid", default="9x16x16")
    parser.add_argument("--first-seed", type=int, default=0, help="clip i uses seed first + i")
    parser.add_argument("--steps", type=int, help="this and the next two: the model's sampler.json by default")
    parser.add_argument("--shift", type=float)
    parser.add_argument("--guidance", type=float)
    parser.add_argument("--chunk", type=int, default=25)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], help="bfloat16 on a GPU, float32 on a CPU")
    parser.add_argument("--out", required=True, help="path without ending: .npy, .txt, .png and .json are written")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype) if options.dtype else working_type(options.device)
    model, text = wan.load(options.model, options.device, dtype)
    codec = Codec.load(options.codec or os.path.join(options.model, "codec.safetensors"), options.device)
    captions = sheet.read_captions(options.captions)[:options.count]
    grid = tuple(int(v) for v in options.grid.split("x"))
    steps, shift, guidance = (own if given is None else given for own, given in zip(
        sampler_of(options.model), (options.steps, options.shift, options.guidance)))
    begin = time.time()
    clips = sample(model, text, codec, captions, grid, range(options.first_seed, options.first_seed + len(captions)),
                   steps, shift, guidance, options.chunk)
    sheet.write_clips(options.out, clips, captions)
    settings = settings_of(steps, shift, guidance, dtype)
    with open(options.out + ".json", "w") as file:
        json.dump({"first_seed": options.first_seed, **settings}, file, indent=1)
        file.write("\n")
    print(json.dumps({"clips": len(clips), "seconds": round(time.time() - begin, 2), "grid": options.grid}))


if __name__ == "__main__":
    main()
