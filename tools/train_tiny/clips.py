"""Procedural captioned clips: 1 to 3 flat shapes over a muted moving texture, drawn in batches on any torch device.

Three steps, all vectorised and seeded: `draw_slots` chooses words, `place` turns them into a Scene (positions and speeds
that keep the promises of the caption), `render` draws float RGB [b, frames, h, w, 3] in [0, 1].
Lengths are pixels, times are frames, x grows to the right and y downwards; the frame's corner is (0, 0).
"""
import argparse
import math
from dataclasses import dataclass

import torch

import words

COLOURS = [  # RGB; hues 0, 30, 57, 125, 183, 229, 275, 326 degrees
    (0.90, 0.10, 0.10), (1.00, 0.50, 0.00), (0.98, 0.93, 0.10), (0.10, 0.75, 0.15),
    (0.05, 0.85, 0.90), (0.10, 0.25, 0.95), (0.54, 0.10, 0.85), (1.00, 0.30, 0.70)]
BACKGROUNDS = [  # RGB of the middle shade; saturation at most 0.3
    (0.56, 0.56, 0.56), (0.78, 0.72, 0.60), (0.44, 0.50, 0.58), (0.50, 0.52, 0.40), (0.50, 0.42, 0.36),
    (0.68, 0.64, 0.78)]
SHADES = (0.78, 1.14)  # factors of the two shades of a background
DARK = 0.6  # factor of an object's second shade
RADII = (11.0, 16.0, 22.0)
RADIUS_JITTER = 0.06
SPEED = (2.4, 4.0)
DRIFT = 0.10
ZOOM = (0.06, 0.12)
PAN = (2.0, 3.6)
GAIN = (0.75, 0.85)
OCCLUSION_SHARE = 0.25
OVERLAP = 0.40  # of the smaller radius
GAP = 2.0  # pixels between objects that do not touch
# Half extents (x, y) and circumscribed radius about the box centre, in units of the radius; rows: circle, square,
# triangle, cross.
EXTENT = [(1.0, 1.0), (0.88, 0.88), (1.04, 0.90), (1.05, 1.05)]
REACH = [1.0, 1.245, 1.376, 1.107]
DIRECTION = [(-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0), (0.0, 0.0)]
ROW = words.ROW


@dataclass
class Scene:
    """All that `render` needs. Tensors of b clips (and 3 objects); slots int64 [b, 20], -1 where empty."""
    slots: torch.Tensor
    start: torch.Tensor     # [b, 3, 2] box centre at frame 0
    velocity: torch.Tensor  # [b, 3, 2] pixels a frame
    radius: torch.Tensor    # [b, 3] at frame 0
    zoom: torch.Tensor      # [b] log of the scale reached at the last frame
    pan: torch.Tensor       # [b, 2] pixels a frame that the background moves
    noise: torch.Tensor     # [b, 32] uniform numbers: texture phases, angles, wavelengths, gain
    violation: torch.Tensor  # [b] 0 where every promise holds

    def pick(self, index):
        return Scene(**{name: value[index] for name, value in vars(self).items()})


def scale_of(height, width):
    """Lengths at 128 x 128 grow by this factor."""
    return (height * width / (128.0 * 128.0)) ** 0.25


def uniform(generator, shape, low=0.0, high=1.0):
    return low + (high - low) * torch.rand(shape, generator=generator, device=generator.device)


def choice(generator, shape, count):
    return torch.randint(count, shape, generator=generator, device=generator.device)


def draw_slots(batch, generator):
    """Random complete captions as slot rows [batch, 20]: counts equal, colours distinct, half of the cameras still."""
    device = generator.device
    count = choice(generator, (batch,), 3) + 1
    crossing = (uniform(generator, (batch,)) < OCCLUSION_SHARE * 1.5) & (count > 1)
    columns = []
    colours = torch.argsort(uniform(generator, (batch, 8)), dim=1)
    for k in range(3):
        values = {"size": choice(generator, (batch,), 3), "colour": colours[:, k],
                  "texture": choice(generator, (batch,), 4), "shape": choice(generator, (batch,), 4),
                  "motion": choice(generator, (batch,), 5)}
        present = count > k
        columns += [torch.where(present, values[c] + ROW[c], -1) for c in words.OBJECT_CATEGORIES]
    columns.append(choice(generator, (batch,), 6) + ROW["background_colour"])
    columns.append(choice(generator, (batch,), 4) + ROW["background_texture"])
    moving = choice(generator, (batch,), 6) + 1
    columns.append(torch.where(uniform(generator, (batch,)) < 0.5, 0, moving) + ROW["camera"])
    columns.append(choice(generator, (batch,), 3) + ROW["light"])
    columns.append(torch.where(crossing, ROW["relation"], -1))
    return torch.stack(columns, 1).to(device)


def table(rows, index):
    return torch.tensor(rows, device=index.device, dtype=torch.float32)[index]


def camera_of(slots, generator, frames, scale):
    """(log zoom at the last frame [b], background motion [b, 2]); panning left shows the world moving right."""
    word = slots[:, 17] - ROW["camera"]
    amount = torch.log1p(uniform(generator, word.shape, *ZOOM))
    zoom = amount * ((word == 5).float() - (word == 6).float())
    heading = table([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (0, 0), (0, 0)], word)
    drift_angle = uniform(generator, word.shape, 0, 2 * math.pi)
    drift = torch.stack([drift_angle.cos(), drift_angle.sin()], 1) * uniform(generator, (len(word), 1), 0.25, 0.7)
    return zoom, (heading * uniform(generator, (len(word), 1), *PAN) + drift) * scale


def growth(zoom, frames):
    """Scale factor at every frame: [..., frames]."""
    steps = torch.linspace(0, 1, frames, device=zoom.device) if frames > 1 else torch.zeros(1, device=zoom.device)
    return torch.exp(zoom[..., None] * steps)


def paths(start, velocity, zoom, frames, height, width):
    """Box centres at every frame [..., 3, frames, 2]: the zoom moves the start, the motion stays in frame pixels."""
    centre = torch.tensor([width / 2, height / 2], device=start.device)
    grown = growth(zoom, frames)[..., None, :, None]
    time = torch.arange(frames, device=start.device, dtype=torch.float32)[:, None]
    return centre + (start - centre)[..., None, :] * grown + velocity[..., None, :] * time


def separation(a, b, path, extent, reach):
    """Distance in pixels between objects a and b at every frame, by boxes or circles, whichever shows more room."""
    delta = (path[..., a, :, :] - path[..., b, :, :])
    boxes = (delta.abs() - extent[..., a, :, :] - extent[..., b, :, :]).amax(-1)
    circles = delta.norm(dim=-1) - reach[..., a, :] - reach[..., b, :]
    return torch.maximum(boxes, circles), delta.norm(dim=-1)


def violations(path, radius, extent, reach, present, pair, crossing, height, width):
    """Sum of broken promises of every candidate, in pixels: 0 when all hold. path is [b, k, 3, frames, 2]."""
    frames = path.shape[-2]
    limit = torch.tensor([width, height], device=path.device)
    outside = (extent - path + 0.5).clamp(min=0) + (path + extent + 0.5 - limit).clamp(min=0)
    total = (outside.amax((-1, -2)) * present[:, None]).sum(-1)
    for index, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)]):
        both = (present[:, a] & present[:, b])[:, None]
        gap, distance = separation(a, b, path, extent, reach)
        apart = (GAP - gap.amin(-1)).clamp(min=0)
        smaller = torch.minimum(radius[..., a, :], radius[..., b, :])
        overlap = ((radius[..., a, :] + radius[..., b, :] - distance) / smaller).amax(-1)
        free = (gap >= GAP).sum(-1)
        meets = 20 * (OVERLAP + 0.02 - overlap).clamp(min=0) + 5.0 * (math.ceil(frames / 3) - free).clamp(min=0)
        chosen = crossing[:, None] & (pair == index)
        total = total + torch.where(chosen, meets, apart) * both
    return total


def place(slots, generator, frames, height, width, tries=192, redraw=True):
    """Choose positions, speeds and radii that keep the captions' promises; the best of `tries` candidates per clip.

    With `redraw`, the later three quarters of the candidates also redraw sizes and motions, and the slots that come back
    may differ there. Without it the slots stay as given. `violation` is 0 where a candidate kept every promise.
    """
    batch, device, scale = len(slots), slots.device, scale_of(height, width)
    objects = slots[:, :15].view(batch, 3, 5)
    present = objects[..., 3] >= 0
    count = present.sum(1)
    crossing = slots[:, 19] >= 0
    zoom, pan = camera_of(slots, generator, frames, scale)
    size = (objects[..., 0] - ROW["size"]).clamp(min=0)[:, None].expand(batch, tries, 3).clone()
    motion = (objects[..., 4] - ROW["motion"]).clamp(min=0)[:, None].expand(batch, tries, 3).clone()
    shape = (objects[..., 3] - ROW["shape"]).clamp(min=0)[:, None].expand(batch, tries, 3)
    if redraw:
        kept = tries // 4
        size[:, kept:] = choice(generator, (batch, tries - kept, 3), 3)
        motion[:, kept:] = choice(generator, (batch, tries - kept, 3), 5)
    jitter = uniform(generator, (batch, tries, 3), 1 - RADIUS_JITTER, 1 + RADIUS_JITTER)
    radius = table(RADII, size) * jitter * scale
    heading = table(DIRECTION, motion)
    across = heading.flip(-1) * uniform(generator, (batch, tries, 3, 1), -DRIFT, DRIFT)
    velocity = (heading + across) * uniform(generator, (batch, tries, 3, 1), *SPEED) * scale
    extent = table(EXTENT, shape) * radius[..., None]
    travel = velocity * (frames - 1)
    low = extent + 0.6 + (-travel).clamp(min=0)
    high = torch.tensor([width, height], device=device) - extent - 0.6 - travel.clamp(min=0)
    start = low + uniform(generator, (batch, tries, 3, 2)) * (high - low)
    pair = choice(generator, (batch, tries), 3)
    pair = torch.where(count[:, None] == 2, torch.zeros_like(pair), pair)
    start = meet(start, velocity, radius, pair, crossing, generator, frames)
    grown = growth(zoom, frames)[:, None, None, :]
    path = paths(start, velocity, zoom[:, None].expand(batch, tries), frames, height, width)
    reach = table(REACH, shape)[..., None] * radius[..., None] * grown
    bad = violations(path, radius[..., None] * grown, extent[..., None, :] * grown[..., None], reach, present, pair,
                     crossing, height, width)
    best = (bad + 1e-4 * torch.arange(tries, device=device) / tries).argmin(1)
    rows = torch.arange(batch, device=device)
    slots = slots.clone()
    for offset, values, name in ((0, size, "size"), (4, motion, "motion")):
        slots[:, offset:15:5] = torch.where(present, values[rows, best] + ROW[name], -1)
    return Scene(slots, start[rows, best], velocity[rows, best], radius[rows, best], zoom, pan,
                 uniform(generator, (batch, 32)), bad[rows, best])


def meet(start, velocity, radius, pair, crossing, generator, frames):
    """Move the second object of a crossing pair so that it meets the first one at a random time."""
    batch, tries = pair.shape
    first = table([0, 0, 1], pair).long()[..., None, None].expand(batch, tries, 1, 2)
    second = table([1, 2, 2], pair).long()[..., None, None].expand(batch, tries, 1, 2)
    time = uniform(generator, (batch, tries, 1, 1), 0, frames - 1)
    angle = uniform(generator, (batch, tries, 1), 0, 2 * math.pi)
    r1 = radius.gather(2, first[..., 0])
    r2 = radius.gather(2, second[..., 0])
    reach = (r1 + r2 - 0.45 * torch.minimum(r1, r2)) * uniform(generator, (batch, tries, 1))
    offset = torch.stack([angle.cos(), angle.sin()], -1) * reach[..., None]
    meeting = start.gather(2, first) + velocity.gather(2, first) * time + offset
    moved = start.scatter(2, second, meeting - velocity.gather(2, second) * time)
    return torch.where(crossing[:, None, None, None], moved, start)


def soft(value, sharpness):
    """A square wave from a sine, its edge about one pixel wide when sharpness is wavelength / (2 pi)."""
    return (0.5 + value * sharpness).clamp(0, 1)


def background(scene, frames, height, width):
    """The texture of every clip in [0, 1]: [b, frames, h, w]. It is fixed to a world that pans, zooms and drifts."""
    device, scale, u = scene.slots.device, scale_of(height, width), scene.noise
    view = lambda v: v[:, None, None, None]
    grown = growth(scene.zoom, frames)[:, :, None, None]
    time = torch.arange(frames, device=device, dtype=torch.float32)[None, :, None, None]
    xs = torch.arange(width, device=device)[None, None, None, :] + 0.5 - width / 2
    ys = torch.arange(height, device=device)[None, None, :, None] + 0.5 - height / 2
    x = (xs / grown - view(scene.pan[:, 0]) * time) / scale + view(u[:, 0]) * 200
    y = (ys / grown - view(scene.pan[:, 1]) * time) / scale + view(u[:, 1]) * 200
    turn = 2 * math.pi
    k = view(turn / (22 + 14 * u[:, 2]))
    waves = 0.5 + 0.5 * torch.sin(k * (y + 5.0 * torch.sin(x * view(turn / (34 + 20 * u[:, 3])))))
    angle = view(math.pi * u[:, 4])
    stripes = soft(torch.sin(k * x * angle.cos() + k * y * angle.sin()), 1.6)
    checks = soft(torch.sin(k * x) * torch.sin(k * y), 2.4)
    clouds = 0.5
    for i in range(4):
        direction = view(turn * u[:, 5 + i])
        wave = view(turn / (30 + 14 * i + 20 * u[:, 9 + i]))
        clouds = clouds + 0.2 * torch.sin(wave * x * direction.cos() + view(turn * u[:, 13 + i]) +
                                          wave * y * direction.sin())
    word = view(scene.slots[:, 16] - ROW["background_texture"])
    return torch.where(word == 0, waves, torch.where(word == 1, stripes, torch.where(word == 2, checks,
                                                                                     clouds.clamp(0, 1))))


def shape_distance(word, dx, dy, r):
    """Signed distance in pixels (negative inside) of axis-aligned shapes; word, r are [b, f, 1, 1]."""
    ax, ay = dx.abs(), dy.abs()
    circle = torch.sqrt(dx * dx + dy * dy) - r
    square = torch.maximum(ax, ay) - 0.88 * r
    triangle = torch.maximum(dy - 0.9 * r, 0.866 * ax - 0.5 * dy - 0.45 * r)
    arm = 1.05 * r
    cross = torch.minimum(torch.maximum(ax - arm, ay - arm / 3), torch.maximum(ax - arm / 3, ay - arm))
    return torch.where(word == 0, circle, torch.where(word == 1, square, torch.where(word == 2, triangle, cross)))


def object_texture(word, dx, dy, r, u):
    """1 where an object shows its dark shade: plain, striped, dotted, checked; fixed to the object."""
    period = 0.64 * r
    k = 2 * math.pi / period
    along = torch.where(u < 0.5, torch.sin(k * dx), torch.sin(k * dy))
    striped = soft(along, period / 6.2832)
    px = ((dx / period) % 1.0 - 0.5) * period
    py = ((dy / period) % 1.0 - 0.5) * period
    dotted = (0.5 + 0.3 * period - torch.sqrt(px * px + py * py)).clamp(0, 1)
    k = k * 0.72
    checked = soft(torch.sin(k * dx) * torch.sin(k * dy), period / 4.5)
    return torch.where(word == 1, striped, torch.where(word == 2, dotted, (word == 3) * checked))


def render(scene, frames, height, width):
    """Draw a Scene: (clips [b, frames, h, w, 3] in [0, 1], object coverage [b, frames, h, w] in [0, 1])."""
    slots, device = scene.slots, scene.slots.device
    texture = background(scene, frames, height, width)
    shade = SHADES[0] + (SHADES[1] - SHADES[0]) * texture
    colour = table(BACKGROUNDS, slots[:, 15] - ROW["background_colour"])
    channels = [colour[:, c, None, None, None] * shade for c in range(3)]
    path = paths(scene.start, scene.velocity, scene.zoom, frames, height, width)
    grown = growth(scene.zoom, frames)
    xs = torch.arange(width, device=device) + 0.5
    ys = torch.arange(height, device=device) + 0.5
    view = lambda v: v[:, None, None, None]
    cover = torch.zeros_like(texture)
    for k in reversed(range(3)):  # the first object of a caption is drawn last, in front
        words_k = slots[:, 5 * k:5 * k + 5]
        r = (scene.radius[:, k, None] * grown)[:, :, None, None]
        dx = xs - path[:, k, :, 0][:, :, None, None]
        dy = ys[:, None] - path[:, k, :, 1][:, :, None, None]
        alpha = (0.5 - shape_distance(view(words_k[:, 3] - ROW["shape"]), dx, dy, r)).clamp(0, 1)
        alpha = alpha * view(words_k[:, 3] >= 0)
        dark = object_texture(view(words_k[:, 2] - ROW["texture"]), dx, dy, r, view(scene.noise[:, 20 + k]))
        paint = 1 - (1 - DARK) * dark
        rgb = table(COLOURS, (words_k[:, 1] - ROW["colour"]).clamp(min=0))
        channels = [old + alpha * (view(rgb[:, c]) * paint - old) for c, old in enumerate(channels)]
        cover = torch.maximum(cover, alpha)
    gain = light_gain(scene, frames)[:, :, None, None]
    clips = torch.stack([(c * gain).clamp(0, 1) for c in channels], dim=-1)
    return clips, cover


def light_gain(scene, frames):
    """Brightness factor of every frame [b, frames] within 0.75 and 1."""
    word = (scene.slots[:, 18] - ROW["light"])[:, None]
    low = GAIN[0] + (GAIN[1] - GAIN[0]) * scene.noise[:, 30, None]
    ramp = torch.linspace(0, 1, frames, device=word.device)[None] if frames > 1 else torch.ones(1, 1, device=word.device)
    rising = low + (1 - low) * ramp
    return torch.where(word == 0, torch.ones_like(rising), torch.where(word == 1, rising, rising.flip(1)))


def training_batch(batch, frames, height, width, generator):
    """(clips, coverage, slots, keep) for training: captions of the held-out part are replaced, or get keep = 0."""
    spare = batch + 4 + batch // 8
    scene = place(draw_slots(spare, generator), generator, frames, height, width)
    hidden = words.held_out(scene.slots)
    order = torch.argsort(hidden.int() * spare + torch.arange(spare, device=hidden.device))[:batch]
    scene = scene.pick(order)
    clips, cover = render(scene, frames, height, width)
    return clips, cover, scene.slots, (~words.held_out(scene.slots)).float()


def clips_of_slots(slots, seed, frames, height, width, device="cpu", tries=768):
    """Real clips of given captions (slot rows [b, 20]); the seed chooses everything that a caption leaves open."""
    generator = torch.Generator(device).manual_seed(seed)
    scene = place(slots.to(device), generator, frames, height, width, tries=tries, redraw=False)
    return render(scene, frames, height, width)[0], scene


def main():
    parser = argparse.ArgumentParser(description="Draw clips with captions and write them as .npy, captions and a sheet.")
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--grid", default="9x16x16", help="frames x height x width in tokens of 8 x 8 pixels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--captions", help="draw these captions (a text file or heldout.jsonl) instead of random ones")
    parser.add_argument("--out", required=True, help="path without ending")
    options = parser.parse_args()
    import sheet
    frames, rows, columns = (int(v) for v in options.grid.split("x"))
    if options.captions:
        texts = sheet.read_captions(options.captions)[:options.count]
        slots = torch.tensor([words.encode(text) for text in texts])
        clips, _ = clips_of_slots(slots, options.seed, frames, 8 * rows, 8 * columns)
    else:
        generator = torch.Generator().manual_seed(options.seed)
        scene = place(draw_slots(options.count, generator), generator, frames, 8 * rows, 8 * columns)
        clips, _ = render(scene, frames, 8 * rows, 8 * columns)
        texts = [words.caption(row) for row in scene.slots.tolist()]
    sheet.write_clips(options.out, clips, texts)


if __name__ == "__main__":
    main()
