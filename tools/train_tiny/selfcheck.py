"""Checks on the CPU the clip generator's promises, the captions' round trip and the Hilbert order that mass.py measures in;
prints the figures and exits 1 when something is broken."""
import argparse
import colorsys
import sys

import torch

import clips
import mass
import words
from words import ROW

# Skilling's curve through 4x4x4, digits x, y, frame: the conformance vector of tests/grid/order_test.cpp.
HILBERT = (
    "000 010 110 100 101 111 011 001 002 003 103 102 112 113 013 012 022 023 033 032 132 133 123 122 121 021 031 131 "
    "130 030 020 120 220 320 330 230 231 331 321 221 222 223 233 232 332 333 323 322 312 313 213 212 202 203 303 302 "
    "301 311 211 201 200 210 310 300").split()


def figures(grid, count, seed):
    """Measured shares of one grid, as a dictionary."""
    frames, rows, columns = grid
    height, width = 8 * rows, 8 * columns
    generator = torch.Generator().manual_seed(seed)
    scene = clips.place(clips.draw_slots(count, generator), generator, frames, height, width)
    objects = scene.slots[:, :15].view(count, 3, 5)
    present = objects[..., 3] >= 0
    number = present.sum(1)
    crossing = scene.slots[:, 19] >= 0
    extent = clips.table(clips.EXTENT, (objects[..., 3] - ROW["shape"]).clamp(min=0)) * scene.radius[..., None]
    grown = clips.growth(scene.zoom, frames)
    extent = extent[:, :, None] * grown[:, None, :, None]
    path = clips.paths(scene.start, scene.velocity, scene.zoom, frames, height, width)
    limit = torch.tensor([width, height])
    over = torch.maximum(extent - path, path + extent - limit).amax((-1, -2)) / scene.radius
    inside = ((over <= 0.1) | ~present).all(1)
    reach = clips.table(clips.REACH, (objects[..., 3] - ROW["shape"]).clamp(min=0))[..., None]
    reach = reach * scene.radius[..., None] * grown[:, None]
    touching, depth, apart = [], [], []
    for a, b in ((0, 1), (0, 2), (1, 2)):
        gap, distance = clips.separation(a, b, path, extent, reach)
        radius = scene.radius[..., None] * grown[:, None]
        both = present[:, a] & present[:, b]
        smaller = torch.minimum(radius[:, a], radius[:, b])
        touching.append(both & (gap.amin(1) <= 0))
        depth.append(torch.where(both, ((radius[:, a] + radius[:, b] - distance) / smaller).amax(1), -9.0))
        apart.append(torch.where(both, (gap > 0).float().mean(1), 1.0))
    touching = torch.stack(touching, 1)
    occluded = (torch.stack(depth, 1) >= clips.OVERLAP).any(1) & (torch.stack(apart, 1) >= 1 / 3).all(1)
    colour = objects[..., 1]
    same = sum(((colour[:, a] == colour[:, b]) & present[:, b]).sum() for a, b in ((0, 1), (0, 2), (1, 2)))
    return {
        "objects_1": (number == 1).float().mean().item(),
        "objects_2": (number == 2).float().mean().item(),
        "objects_3": (number == 3).float().mean().item(),
        "occlusion": (occluded & crossing).float().mean().item(),
        "occlusion_missed": (crossing & ~occluded).float().mean().item(),
        "touching_without_occlusion": (touching.any(1) & ~crossing).float().mean().item(),
        "extra_touching_pair": (touching.sum(1) > crossing).float().mean().item(),
        "inside": inside.float().mean().item(),
        "camera_still": (scene.slots[:, 17] == ROW["camera"]).float().mean().item(),
        "motion_still": (objects[..., 4][present] == ROW["motion"] + 4).float().mean().item(),
        "large": (objects[..., 0][present] == ROW["size"] + 2).float().mean().item(),
        "violated_by_half_a_pixel": (scene.violation > 0.5).float().mean().item(),
        "same_colour": float(same),
        "held_out": words.held_out(scene.slots).float().mean().item(),
    }


def check(condition, text, failures):
    if not condition:
        failures.append(text)


def check_grid(shares, failures):
    """The bounds that the generator's description promises."""
    for n in (1, 2, 3):
        check(abs(shares[f"objects_{n}"] - 1 / 3) < 0.05, f"{n} objects: {shares[f'objects_{n}']}", failures)
    check(abs(shares["occlusion"] - 0.25) < 0.04, f"occlusion {shares['occlusion']}", failures)
    check(abs(shares["camera_still"] - 0.5) < 0.05, f"camera still {shares['camera_still']}", failures)
    check(shares["inside"] > 0.995, f"inside {shares['inside']}", failures)
    check(shares["violated_by_half_a_pixel"] < 0.01, f"violated {shares}", failures)
    check(shares["same_colour"] == 0, "two objects of one colour", failures)


def check_words(count, failures):
    """Captions survive encode(caption(slots)) and the clips stay the same for one seed."""
    generator = torch.Generator().manual_seed(5)
    for row in clips.draw_slots(count, generator).tolist():
        check(words.encode(words.caption(row)) == row, words.caption(row), failures)
    first, again = (clips.training_batch(2, 3, 64, 64, torch.Generator().manual_seed(9))[0] for _ in range(2))
    check(torch.equal(first, again), "one seed gave two clips", failures)
    check(bool(((first >= 0) & (first <= 1)).all()), "values outside [0, 1]", failures)


def check_colours(failures):
    """Objects are saturated and apart in hue; backgrounds are not saturated."""
    hues = sorted(colorsys.rgb_to_hsv(*rgb)[0] * 360 for rgb in clips.COLOURS)
    gaps = [(b - a) % 360 for a, b in zip(hues, hues[1:] + hues[:1])]
    check(min(gaps) >= 25, f"hues {hues}", failures)
    check(min(colorsys.rgb_to_hsv(*rgb)[1] for rgb in clips.COLOURS) >= 0.65, "a pale object colour", failures)
    check(max(colorsys.rgb_to_hsv(*rgb)[1] for rgb in clips.BACKGROUNDS) <= 0.3, "a saturated background", failures)
    return hues


def check_hilbert(failures):
    """mass.py's order is the library's: the conformance vector on 4x4x4, and a bijection on grids that are no cube."""
    order = mass.hilbert_order(4, 4, 4).tolist()
    seen = [f"{raster % 4}{raster // 4 % 4}{raster // 16}" for raster in order]
    wrong = [place for place, (got, want) in enumerate(zip(seen, HILBERT, strict=True)) if got != want]
    check(not wrong, f"the Hilbert order of 4x4x4 differs at {len(wrong)} of 64 places, first {wrong[:1]}", failures)
    for grid in ((9, 16, 16), (13, 20, 24), (1, 1, 7)):
        tokens = grid[0] * grid[1] * grid[2]
        check(sorted(mass.hilbert_order(*grid).tolist()) == list(range(tokens)), f"Hilbert order of {grid}", failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="clips per grid")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failures = []
    for grid in ((9, 16, 16), (9, 20, 28), (13, 20, 24), (13, 24, 40)):
        shares = figures(grid, options.count, options.seed)
        check_grid(shares, failures)
        print("x".join(map(str, grid)), {name: round(value, 4) for name, value in shares.items()})
    check_words(300, failures)
    check_hilbert(failures)
    print("hues", [round(hue) for hue in check_colours(failures)])
    for failure in failures:
        print("BROKEN:", failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
