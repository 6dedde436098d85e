"""Writes heldout.jsonl: captions that training never draws, each with its attributes and a scene that fulfils it."""
import argparse
import json

import torch

import clips
import words


def held_out_slots(count, seed):
    """Slot rows of `count` different held-out captions, placeable at 9x16x16 (the smallest frame)."""
    found, part = {}, 0
    while len(found) < count:
        generator = torch.Generator().manual_seed(seed * 1000 + part)
        scene = clips.place(clips.draw_slots(1500, generator), generator, 9, 128, 128)
        good = words.held_out(scene.slots) & (scene.violation == 0)
        found.update({tuple(row): None for row in scene.slots[good].tolist()})
        part += 1
    return [list(row) for row in found][:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    with open(options.out, "w") as file:
        for slots in held_out_slots(options.count, options.seed):
            file.write(json.dumps({"caption": words.caption(slots), "slots": slots, **words.attributes(slots)}) + "\n")


if __name__ == "__main__":
    main()
