"""Compares model.py with diffusers' WanTransformer3DModel on the CPU in f32, on random weights or an exported folder,
and sample.py's noise levels with diffusers' FlowMatchEulerDiscreteScheduler."""
import argparse
import sys

import torch

import model
import sample


def schedule_error():
    """Largest difference of a noise level over several step counts and shifts."""
    from diffusers import FlowMatchEulerDiscreteScheduler
    worst = 0.0
    for shift in (1.0, 3.0, 5.0, 8.0):
        for steps in (1, 2, 4, 30, 50):
            scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
            scheduler.set_timesteps(steps)
            pairs = zip(scheduler.sigmas.tolist(), sample.sigmas(steps, shift), strict=True)
            worst = max(worst, *(abs(theirs - ours) for theirs, ours in pairs))
    return worst


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
    levels = schedule_error()
    print(f"relative L2 error {error:.2e}, {count} parameters, {2 * count} bytes in bf16; noise levels within {levels:.1e}")
    sys.exit(0 if error <= 1e-5 and levels <= 1e-6 else 1)


if __name__ == "__main__":
    main()
