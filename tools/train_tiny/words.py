"""The prompt language of the shipped model: vocabulary, captions, and the encoder from text to slots.

A caption fills up to 20 slots. Slots 0..14 are three objects x (size, colour, texture, shape, motion); 15 background
colour, 16 background texture, 17 camera, 18 light, 19 relation. A slot holds one vocabulary row or -1 (empty). The rules
are written out in models/tiny/README.md; `encode` is their reference implementation.
"""
import argparse
import json
import re

import torch

OBJECT_CATEGORIES = ["size", "colour", "texture", "shape", "motion"]
CATEGORIES = {
    "size": ["small", "medium", "large"],
    "colour": ["red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink"],
    "texture": ["plain", "striped", "dotted", "checked"],
    "shape": ["circle", "square", "triangle", "cross"],
    "motion": ["left", "right", "up", "down", "still"],
    "background_colour": ["grey", "beige", "slate", "olive", "brown", "lavender"],
    "background_texture": ["waves", "stripes", "checks", "clouds"],
    "camera": ["still", "left", "right", "up", "down", "in", "out"],
    "light": ["steady", "brightening", "dimming"],
    "relation": ["crossing"],
}
SCENE_SLOTS = {"background_colour": 15, "background_texture": 16, "camera": 17, "light": 18, "relation": 19}
STOP_WORDS = ["a", "an", "the", "and", "over", "with", "moving", "light", "background", "pans", "zooms", "on", "of"]
CONTEXT_WORDS = {"camera": "camera"}  # after this word the next value word is read from that category
SLOTS = 20
OBJECTS = 3


def row_table():
    """First vocabulary row of each category, in the fixed order of CATEGORIES."""
    first, table = 0, {}
    for name, words in CATEGORIES.items():
        table[name] = first
        first += len(words)
    return table


ROW = row_table()
WORDS = sum(len(words) for words in CATEGORIES.values())


def vocabulary():
    """The content of vocabulary.json: one entry per embedding row, plus the word lists the encoder needs."""
    entries = []
    for name, words in CATEGORIES.items():
        for index, word in enumerate(words):
            entries.append({"row": ROW[name] + index, "word": word, "category": name})
    slots = [f"object{k}.{c}" for k in range(OBJECTS) for c in OBJECT_CATEGORIES] + list(SCENE_SLOTS)
    return {
        "format": 1,
        "slots": slots,
        "objects": OBJECTS,
        "object_categories": OBJECT_CATEGORIES,
        "scene_slots": SCENE_SLOTS,
        "words": entries,
        "stop_words": STOP_WORDS,
        "context_words": CONTEXT_WORDS,
    }


def main_words():
    """word -> (category, row) outside any context; camera words are reachable only after a context word."""
    hidden = set(CONTEXT_WORDS.values())
    table = {}
    for name, words in CATEGORIES.items():
        if name in hidden:
            continue
        for index, word in enumerate(words):
            assert word not in table, word
            table[word] = (name, ROW[name] + index)
    return table


def encode(prompt):
    """The 20 slot rows of a prompt (-1 for empty). Raises ValueError with one sentence on a word it cannot place."""
    table = main_words()
    slots = [-1] * SLOTS
    current, context = 0, None
    for word in re.findall("[a-z]+", prompt.lower()):
        if context is not None and word in CATEGORIES[context]:
            category, row = context, ROW[context] + CATEGORIES[context].index(word)
            context = None
        elif word in CONTEXT_WORDS:
            context = CONTEXT_WORDS[word]
            continue
        elif word in STOP_WORDS:
            continue
        elif word in table:
            category, row = table[word]
        else:
            raise ValueError(f"the prompt word '{word}' is not in the vocabulary")
        if category in SCENE_SLOTS:
            index = SCENE_SLOTS[category]
            if slots[index] >= 0:
                raise ValueError(f"the prompt word '{word}' gives {category} a second time")
            slots[index] = row
            continue
        offset = OBJECT_CATEGORIES.index(category)
        if current < OBJECTS and slots[5 * current + offset] >= 0:
            current += 1
        if current >= OBJECTS:
            raise ValueError(f"the prompt word '{word}' begins a fourth object; three are the most")
        slots[5 * current + offset] = row
        if category == "motion":
            current += 1
    return slots


def word_of(row):
    """(category, word) of a vocabulary row."""
    for name, words in CATEGORIES.items():
        if ROW[name] <= row < ROW[name] + len(words):
            return name, words[row - ROW[name]]
    raise ValueError(f"no vocabulary row {row}")


def camera_phrase(word):
    if word in ("in", "out"):
        return f"camera zooms {word}"
    return "camera still" if word == "still" else f"camera pans {word}"


def caption(slots):
    """The caption text of one complete list of 20 slot rows; `encode` gives the slots back."""
    words = [None if row < 0 else word_of(row)[1] for row in slots]
    phrases = []
    for k in range(OBJECTS):
        size, colour, texture, shape, motion = words[5 * k:5 * k + 5]
        if shape is None:
            continue
        moving = "still" if motion == "still" else f"moving {motion}"
        phrases.append(f"a {size} {colour} {texture} {shape} {moving}")
    text = " and ".join(part for part in (", ".join(phrases[:-1]), phrases[-1]) if part)
    relation = " crossing" if words[19] else ""
    return f"{text}{relation} over {words[15]} {words[16]}, {camera_phrase(words[17])}, light {words[18]}"


def attributes(slots):
    """The structured form of a caption, as models/tiny/heldout.jsonl holds it."""
    words = [None if row < 0 else word_of(row)[1] for row in slots]
    objects = [dict(zip(OBJECT_CATEGORIES, words[5 * k:5 * k + 5])) for k in range(OBJECTS) if words[5 * k + 3]]
    scene = {name: words[index] for name, index in SCENE_SLOTS.items()}
    scene["relation"] = scene["relation"] or "apart"
    return {"objects": objects, **scene}


def held_out(slots):
    """Bool [b]: captions that training never sees. One in 64, by a 64-bit hash of slots [b, 20] (integer, any device)."""
    mixed = torch.zeros_like(slots[:, 0])
    for column in range(SLOTS):  # xor, multiply, shift per slot: 64-bit arithmetic that wraps alike everywhere
        mixed = (mixed ^ (slots[:, column] + 2)) * 0x2545F4914F6CDD1D
        mixed = mixed ^ ((mixed >> 32) & 0xFFFFFFFF)
    return (mixed & 63) == 0


def main():
    parser = argparse.ArgumentParser(description="Write vocabulary.json, or encode a prompt into its slots.")
    parser.add_argument("--out", help="write the vocabulary to this file")
    parser.add_argument("--prompt", help="print the slots of this prompt")
    options = parser.parse_args()
    if options.out:
        with open(options.out, "w") as file:
            json.dump(vocabulary(), file, indent=1)
            file.write("\n")
    if options.prompt is not None:
        print(encode(options.prompt))


if __name__ == "__main__":
    main()
