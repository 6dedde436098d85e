"""Files of clips: uint8 .npy arrays, captions (one a line), and contact sheets as PNG."""
import json

import numpy
from PIL import Image


def read_captions(path):
    """Captions of a text file (one a line) or of a .jsonl file with a `caption` key."""
    with open(path) as file:
        lines = [line.strip() for line in file if line.strip()]
    return [json.loads(line)["caption"] for line in lines] if path.endswith(".jsonl") else lines


def to_bytes(clips):
    """Float clips in [0, 1] (a torch tensor) as rounded uint8 on the CPU."""
    return (clips.float().clamp(0, 1) * 255 + 0.5).byte().cpu().numpy()


def contact_sheet(path, clips, columns=None, rows=12):
    """One row per clip (at most `rows`), `columns` frames spread over the clip."""
    clips = clips[:rows]
    count, frames, height, width, _ = clips.shape
    picks = numpy.linspace(0, frames - 1, columns or min(frames, 7)).round().astype(int)
    border = 2
    sheet = numpy.full((count * (height + border), len(picks) * (width + border), 3), 255, numpy.uint8)
    for row in range(count):
        for column, frame in enumerate(picks):
            y, x = row * (height + border), column * (width + border)
            sheet[y:y + height, x:x + width] = clips[row, frame]
    Image.fromarray(sheet).save(path, optimize=True)


def write_clips(stem, clips, captions):
    """stem.npy uint8 [n, frames, h, w, 3], stem.txt captions, stem.png contact sheet."""
    data = clips if isinstance(clips, numpy.ndarray) else to_bytes(clips)
    numpy.save(stem + ".npy", data)
    with open(stem + ".txt", "w") as file:
        file.write("\n".join(captions) + "\n")
    contact_sheet(stem + ".png", data)
