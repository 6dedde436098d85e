"""Compares model.py with diffusers' WanTransformer3DModel on the CPU in f32, on random weights or an exported folder."""
import argparse
import sys

import torch

import model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="an exported folder; random weights without it")
    options = parser.parse_args()
    from diffusers import WanTransformer3DModel
    torch.manual_seed(0)
    ours = model.load(options.model)[0] if options.model else model.Wan().eval()
    if not options.model:
        torch.nn.init.normal_(ours.proj_out.weight, std=0.05)
    config = {k: v for k, v in model.CONFIG.items() if not k.startswith("_")}
    theirs = WanTransformer3DModel(**config).eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x, text = torch.randn(2, 16, 3, 12, 20), torch.randn(2, 20, 128)
    timestep = torch.tensor([37.5, 900.0])
    with torch.no_grad():
        mine = ours(x, timestep, text)
        other = theirs(x, timestep, text, return_dict=False)[0]
    error = ((mine - other).norm() / other.norm()).item()
    count = sum(p.numel() for p in ours.parameters())
    print(f"relative L2 error {error:.2e}, {count} parameters, {2 * count} bytes in bf16")
    sys.exit(0 if error <= 1e-5 else 1)


if __name__ == "__main__":
    main()
