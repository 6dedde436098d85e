"""How well the rule-based checker does: its rates on clips of the generator, as drawn, degraded, and against altered captions.

Clips get random captions; a clip whose placement breaks a promise of its caption is not used. Degraded: Gaussian blur,
Gaussian noise, both, JPEG frame by frame (a pixel is in [0, 1]). Altered: one object of the caption gets another colour
(one that the clip does not have), shape or motion, or the caption asks for an object more or fewer. Prints the table of
docs/checker.md; rows of untouched and degraded clips should pass, rows of altered captions should not.
"""
import argparse
import io
import json
import random
import sys

import numpy
import torch
import torch.nn.functional as F

import clips
import scoring
import sheet
import words

GRIDS = ("9x16x16", "9x20x28", "13x20x24", "13x24x40")
SHARED = {"9x16x16": 0.5, "13x20x24": 0.3}  # share of a grid's clips that the degraded and altered rows use
CHUNK = 10  # clips drawn at once


def drawn(count, name, seed):
    """(uint8 clips [count, frames, h, w, 3], their captions' objects) of random captions, promises kept."""
    size = scoring.pixels_of(scoring.grid_of(name))
    generator = torch.Generator().manual_seed(seed)
    parts, facts = [], []
    while len(facts) < count:
        scene = clips.place(clips.draw_slots(CHUNK, generator), generator, *size)
        scene = scene.pick(scene.violation == 0)
        parts.append(sheet.to_bytes(clips.render(scene, *size)[0]))
        facts += [words.attributes(row)["objects"] for row in scene.slots.tolist()]
    return numpy.concatenate(parts)[:count], facts[:count]


def blurred(data, sigma):
    """Gaussian blur within each frame of one uint8 clip [frames, h, w, 3]; edges repeat. Float result in [0, 1]."""
    reach = int(4 * sigma + 0.5)
    x = torch.arange(-reach, reach + 1, dtype=torch.float32)
    kernel = torch.exp(-0.5 * (x / sigma) ** 2)
    kernel = kernel / kernel.sum()
    frames = torch.from_numpy(data).permute(0, 3, 1, 2).float().flatten(0, 1)[:, None] / 255
    frames = F.conv2d(F.pad(frames, (reach, reach, 0, 0), "replicate"), kernel.view(1, 1, 1, -1))
    frames = F.conv2d(F.pad(frames, (0, 0, reach, reach), "replicate"), kernel.view(1, 1, -1, 1))
    return frames[:, 0].unflatten(0, (-1, 3)).permute(0, 2, 3, 1)


def degraded(data, seed, blur=0.0, noise=0.0):
    """uint8 clips [n, ...] blurred by `blur` pixels, then with Gaussian noise of deviation `noise`."""
    generator = torch.Generator().manual_seed(seed)
    out = []
    for clip in data:
        value = blurred(clip, blur) if blur else torch.from_numpy(clip).float() / 255
        out.append(sheet.to_bytes(value + noise * torch.randn(value.shape, generator=generator)))
    return numpy.stack(out)


def jpeg(data, quality):
    """uint8 clips whose every frame went through JPEG."""
    from PIL import Image
    out = numpy.empty_like(data)
    for index in numpy.ndindex(data.shape[:2]):
        file = io.BytesIO()
        Image.fromarray(data[index]).save(file, "JPEG", quality=quality)
        out[index] = numpy.asarray(Image.open(file))
    return out


def other_word(category, used, rng):
    return rng.choice([word for word in words.CATEGORIES[category] if word not in used])


def one_changed(category):
    """Alteration: one object's word of the category becomes another; a colour becomes one that no object has."""
    def alter(objects, rng):
        index = rng.randrange(len(objects))
        used = {o["colour"] for o in objects} if category == "colour" else {objects[index][category]}
        changed = dict(objects[index], **{category: other_word(category, used, rng)})
        return objects[:index] + [changed] + objects[index + 1:]
    return alter


def one_more(objects, rng):
    new = {"colour": other_word("colour", {o["colour"] for o in objects}, rng),
           "shape": other_word("shape", (), rng), "motion": other_word("motion", (), rng)}
    return objects + [new]


def one_fewer(objects, rng):
    """Nothing for a caption of one object: a caption asks for one at least."""
    index = rng.randrange(len(objects))
    return objects[:index] + objects[index + 1:]


ALTERED = {"another colour asked for": one_changed("colour"), "another shape asked for": one_changed("shape"),
           "another motion asked for": one_changed("motion"), "one object more asked for": one_more,
           "one object fewer asked for": one_fewer}
DEGRADED = {
    "blurred (sigma 1 pixel)": lambda data: degraded(data, 1, blur=1.0),
    "noisy (sigma 0.03)": lambda data: degraded(data, 2, noise=0.03),
    "blurred (sigma 1), noisy (0.03)": lambda data: degraded(data, 3, blur=1.0, noise=0.03),
    "blurred (sigma 1.6), noisy (0.05)": lambda data: degraded(data, 4, blur=1.6, noise=0.05),
    "JPEG of quality 60, frame by frame": lambda data: jpeg(data, 60)}


def rates_of(checker, parts):
    """Rates over [(clips, objects of each)], one part a grid, weighted by clips."""
    scores = [scoring.score(checker, data, [json.dumps({"objects": o}) for o in facts]) for data, facts in parts]
    total = sum(s["clips"] for s in scores)
    return {"clips": total, **{r: sum(s[r] * s["clips"] for s in scores) / total for r in scoring.RATES}}


def altered(parts, alter):
    """Parts with altered captions; clips whose caption would become empty are left out."""
    out = []
    for data, facts in parts:
        rng = random.Random(0)
        changed = [alter(objects, rng) for objects in facts]
        kept = [i for i, objects in enumerate(changed) if objects]
        if kept:
            out.append((data[kept], [changed[i] for i in kept]))
    return out


def row(name, rates):
    shares = " | ".join(f"{100 * rates[r]:.4g} %" for r in scoring.RATES)
    print(f"| {name} | {rates['clips']} | {shares} |", flush=True)


def title(name):
    frames, height, width = scoring.pixels_of(scoring.grid_of(name))
    return f"{frames} frames of {height} x {width}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scoring.add_checker(parser)
    parser.add_argument("--count", type=int, default=200, help="clips a grid; the other rows use half and 0.3 of them")
    parser.add_argument("--grids", nargs="+", default=GRIDS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| clips | n | pass | count | colours | shapes | motions |\n|---|---|---|---|---|---|---|")
    shared = []
    for name in options.grids:
        data, facts = drawn(options.count, name, options.seed)
        row(title(name), rates_of(options.checker, [(data, facts)]))
        keep = round(options.count * SHARED.get(name, 0))
        if keep:
            shared.append((data[:keep].copy(), facts[:keep]))
    if not shared:
        sys.exit(f"the other rows need one of the grids {', '.join(SHARED)}")
    for name, change in DEGRADED.items():
        row(name, rates_of(options.checker, [(change(data), facts) for data, facts in shared]))
    for name, alter in ALTERED.items():
        row(name, rates_of(options.checker, altered(shared, alter)))


if __name__ == "__main__":
    main()
