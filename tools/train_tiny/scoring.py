"""Runs the rule-based checker (`check_clips`) on clips and gives its rates."""
import argparse
import json
import os
import subprocess
import tempfile

import numpy

RATES = ("pass_rate", "count", "colours", "shapes", "motions")


def add_checker(parser):
    """The option --checker of a program that runs the checker."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    parser.add_argument("--checker", type=program, help="the built check_clips",
                        default=os.path.normpath(os.path.join(root, "build", "dev", "bench", "check_clips")))


def program(path):
    if not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"there is no program {path}: build the target check_clips and name it here")
    return path


def pixels_of(grid):
    """(frames, height, width) in pixels of a grid in tokens; a token covers 8 x 8 pixels of one frame."""
    frames, rows, columns = grid
    return frames, 8 * rows, 8 * columns


def grid_of(name):
    """(frames, rows, columns) of a name such as 9x16x16. Raises ValueError on anything else."""
    parts = name.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"the grid '{name}' is not of the form 9x16x16 (frames, rows, columns of tokens)")
    return tuple(int(part) for part in parts)


def score_file(checker, clips_path, lines):
    """Rates of a .npy file of clips; `lines` holds one caption (text, or JSON with "objects") a clip.

    Gives the checker's JSON without the single verdicts: clips, passed, and the shares of RATES. Raises
    CalledProcessError when the checker refuses; it has said why on stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        captions, out = os.path.join(folder, "captions.txt"), os.path.join(folder, "rates.json")
        with open(captions, "w") as file:
            file.write("\n".join(lines) + "\n")
        subprocess.run([checker, clips_path, captions, "--json", out], check=True, stdout=subprocess.DEVNULL)
        with open(out) as file:
            rates = json.load(file)
    del rates["each"]
    return rates


def score(checker, clips, lines):
    """Rates of uint8 clips [n, frames, h, w, 3]; see `score_file`."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "clips.npy")
        numpy.save(path, clips)
        return score_file(checker, path, lines)
