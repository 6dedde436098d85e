"""Pixels <-> latents: 4x4 space-to-depth, 16 leading principal components, a scale per channel. No temporal part.

Channel of the space-to-depth vector: (dy * 4 + dx) * 3 + c. z = ((v - mean) @ basis^T) / scale, back
v = (z * scale) @ basis + mean. scale_c = sqrt(std_c * std_0): the first channel gets unit deviation, the finer ones
sqrt(std_c / std_0), between raw (fine detail lost in the noise) and whitened (fine detail as loud as the layout).
"""
import argparse
import math

import torch
from safetensors.torch import load_file, save_file

import clips

CHANNELS = 16


def to_depth(video):
    """[b, f, h, w, 3] -> [b, f, h/4, w/4, 48]."""
    b, f, h, w, _ = video.shape
    parts = video.reshape(b, f, h // 4, 4, w // 4, 4, 3)
    return parts.permute(0, 1, 2, 4, 3, 5, 6).reshape(b, f, h // 4, w // 4, 48)


def from_depth(vectors):
    """[b, f, h/4, w/4, 48] -> [b, f, h, w, 3]."""
    b, f, h, w, _ = vectors.shape
    parts = vectors.reshape(b, f, h, w, 4, 4, 3)
    return parts.permute(0, 1, 2, 4, 3, 5, 6).reshape(b, f, h * 4, w * 4, 3)


class Codec:
    """The fixed linear codec; mean [48], basis [16, 48], scale [16], all f32."""

    def __init__(self, mean, basis, scale):
        self.mean, self.basis, self.scale = mean, basis, scale

    @staticmethod
    def load(path, device="cpu"):
        tensors = load_file(path)
        return Codec(*(tensors[name].to(device) for name in ("mean", "basis", "scale")))

    def save(self, path):
        save_file({"mean": self.mean, "basis": self.basis.contiguous(), "scale": self.scale}, path)

    def encode(self, video):
        """[b, f, h, w, 3] in [0, 1] -> latents [b, 16, f, h/4, w/4]."""
        z = ((to_depth(video) - self.mean) @ self.basis.T) / self.scale
        return z.permute(0, 4, 1, 2, 3).contiguous()

    def decode(self, latents):
        """Latents [b, 16, f, h/4, w/4] -> [b, f, h, w, 3], not clipped."""
        z = latents.float().permute(0, 2, 3, 4, 1)
        return from_depth((z * self.scale) @ self.basis + self.mean)


def random_clips(count, seed, frames=9, height=128, width=128):
    generator = torch.Generator().manual_seed(seed)
    scene = clips.place(clips.draw_slots(count, generator), generator, frames, height, width)
    return clips.render(scene, frames, height, width)[0]


def fit(count=192, seed=20):
    """Principal components of generated clips, in f64; each basis row's largest entry is made positive."""
    total = torch.zeros(48, dtype=torch.float64)
    square = torch.zeros(48, 48, dtype=torch.float64)
    vectors = 0
    for part in range(count // 16):
        v = to_depth(random_clips(16, seed * 1000 + part)).reshape(-1, 48).double()
        total, square, vectors = total + v.sum(0), square + v.T @ v, vectors + len(v)
    mean = total / vectors
    values, directions = torch.linalg.eigh(square / vectors - torch.outer(mean, mean))
    values, basis = values.flip(0)[:CHANNELS], directions.flip(1).T[:CHANNELS]
    largest = basis.gather(1, basis.abs().argmax(1, keepdim=True))
    deviation = values.clamp(min=1e-12).sqrt()
    scale = (deviation * deviation[0]).sqrt()
    return Codec(mean.float(), (basis * largest.sign()).float(), scale.float()), deviation


def psnr(codec, seed=99, count=32):
    """(mean PSNR, worst clip) in dB of a round trip over unseen clips, values clipped to [0, 1]."""
    video = random_clips(count, seed)
    error = (codec.decode(codec.encode(video)).clamp(0, 1) - video).square().mean((1, 2, 3, 4))
    each = [-10 * math.log10(max(value, 1e-12)) for value in error.tolist()]
    return sum(each) / count, min(each)


def main():
    parser = argparse.ArgumentParser(description="Fit the codec on generated clips, save it, print its PSNR.")
    parser.add_argument("--out", required=True, help="codec.safetensors")
    options = parser.parse_args()
    codec, deviation = fit()
    codec.save(options.out)
    print("deviation", [round(v, 4) for v in deviation.tolist()])
    print("PSNR mean %.2f dB, worst clip %.2f dB" % psnr(Codec.load(options.out)))


if __name__ == "__main__":
    main()
