"""The gate of the shipped model: what share of its clips shows what their captions ask for.

The first captions of heldout.jsonl are sampled on every grid with the model's own sampler.json, the noise seed being the
caption's index, nothing chosen among the clips; `check_clips` judges them and the generator's clips of the same captions.
Writes gate.json. The gate passes when, on both grids of GRIDS and with at least CAPTIONS clips each, the share of clips
that pass and the share of every attribute reach the THRESHOLDS. Exit codes: 0 passed, 1 not passed (or an error), 2 usage.

    gate.py                                     sample, check, write models/tiny/gate.json (a GPU: minutes)
    gate.py --count 1 --grids 3x6x6 --out x.json  a trial on a CPU
    gate.py --clips a.npy=9x16x16 b.npy=13x20x24  score clips that sample.py wrote elsewhere

Clips given with --clips keep their settings in the .json that sample.py wrote beside them; without it the record says so.
"""
import argparse
import json
import os
import sys
import time

import numpy
import torch

import clips
import model as wan
import sample
import scoring
import sheet
import words
from codec import Codec

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
GRIDS = ("9x16x16", "13x20x24")
CAPTIONS = 100
THRESHOLDS = {"pass_rate": 0.70, "attribute": 0.88}
UNKNOWN = "not stated with the clips"
REAL_SEED = 0
REAL_CHUNK = 10  # clips drawn at once; bounds the memory of the placement


def sampled(options, captions):
    """({grid: uint8 clips}, settings of the record)."""
    numbers = sample.sampler_of(options.model)
    dtype = sample.working_type(options.device)
    model, text = wan.load(options.model, options.device, dtype)
    codec = Codec.load(os.path.join(options.model, "codec.safetensors"), options.device)
    made = {}
    for name in options.grids:
        begin = time.time()
        made[name] = sample.sample(model, text, codec, captions, scoring.grid_of(name), range(len(captions)), *numbers)
        print(f"{name}: {len(captions)} clips in {time.time() - begin:.1f} s", flush=True)
    return made, sample.settings_of(*numbers, dtype)


def beside(path):
    """Settings in the .json beside a .npy of clips, or None."""
    path = os.path.splitext(path)[0] + ".json"
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def given(pairs, count):
    """({grid: uint8 clips}, settings) of --clips; refuses files of another shape or made with other settings."""
    made, all_settings = {}, []
    for path, name in pairs:
        data = numpy.load(path, mmap_mode="r")
        shape = (count, *scoring.pixels_of(scoring.grid_of(name)), 3)
        if data.shape[1:] != shape[1:] or len(data) < count or data.dtype != numpy.uint8:
            raise SystemExit(f"{path} is {data.dtype} {data.shape}; {name} with --count {count} needs uint8 {shape}")
        made[name] = data[:count]
        all_settings.append(beside(path))
    if any(s != all_settings[0] for s in all_settings):
        raise SystemExit("the clips were made with different settings; one record cannot name them all")
    nothing = dict.fromkeys(("first_seed", "sampler", "schedule", "precision"), UNKNOWN)
    return made, all_settings[0] or nothing


def real_clips(captions, grid):
    """The generator's own uint8 clips of the captions."""
    slots = torch.tensor([words.encode(caption) for caption in captions])
    parts = [sheet.to_bytes(clips.clips_of_slots(part, REAL_SEED + i, *scoring.pixels_of(grid))[0])
             for i, part in enumerate(slots.split(REAL_CHUNK))]
    return numpy.concatenate(parts)


def passes(grids):
    """Whether the rates of all grids reach the thresholds; a smaller trial than the gate never passes it."""
    if not set(GRIDS) <= set(grids) or min(rates["clips"] for rates in grids.values()) < CAPTIONS:
        return False
    attributes = [rates[name] for rates in grids.values() for name in scoring.RATES[1:]]
    whole = [rates["pass_rate"] for rates in grids.values()]
    return min(whole) >= THRESHOLDS["pass_rate"] and min(attributes) >= THRESHOLDS["attribute"]


def as_the_gate_asks(settings, folder):
    """Whether clips were drawn with the folder's sampler, today's schedule, and the captions' indices as seeds."""
    wanted = sample.settings_of(*sample.sampler_of(folder), torch.float32)
    return settings.get("first_seed", 0) == 0 and all(settings[key] == wanted[key] for key in ("sampler", "schedule"))


def record(options, lines):
    captions = [json.loads(line)["caption"] for line in lines]
    made, settings = given(options.clips, len(lines)) if options.clips else sampled(options, captions)
    valid = as_the_gate_asks(settings, options.model)
    first = settings.pop("first_seed", 0)
    seeds = "seed = index" if first == 0 else f"first seed {first}"
    real = {name: scoring.score(options.checker, real_clips(captions, scoring.grid_of(name)), lines) for name in made}
    grids = {name: scoring.score(options.checker, data, lines) for name, data in made.items()}
    return {"captions": f"the first {len(lines)} of heldout.jsonl, {seeds}, unfiltered", **settings, "thresholds": THRESHOLDS,
            "real_clips_pass_rate": {name: rates["pass_rate"] for name, rates in real.items()},
            "grids": grids, "passes_gate": valid and passes(grids)}


def clip_pair(text):
    path, mark, name = text.rpartition("=")
    if not mark:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form CLIPS.npy=9x16x16")
    scoring.grid_of(name)
    return path, name


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=os.path.join(ROOT, "models", "tiny"), help="exported folder")
    scoring.add_checker(parser)
    parser.add_argument("--count", type=int, default=CAPTIONS)
    parser.add_argument("--grids", nargs="+", default=GRIDS, help="frames x rows x columns of tokens")
    parser.add_argument("--clips", nargs="+", type=clip_pair, metavar="A.npy=9x16x16", help="score these, sample none")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", help="gate.json; the model folder's by default")
    options = parser.parse_args()
    whole = options.count >= CAPTIONS and set(options.grids) == set(GRIDS)
    if not options.out and not (whole or options.clips):
        parser.error("a trial (other --count or --grids) is no gate: name its file with --out")
    options.out = options.out or os.path.join(options.model, "gate.json")
    return options


def main():
    options = parse()
    with open(os.path.join(options.model, "heldout.jsonl")) as file:
        lines = [line.strip() for line in file if line.strip()][:options.count]
    result = record(options, lines)
    text = json.dumps(result, indent=1)
    with open(options.out, "w") as file:
        file.write(text + "\n")
    print(text)
    sys.exit(0 if result["passes_gate"] else 1)


if __name__ == "__main__":
    main()
