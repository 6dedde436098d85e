"""Muon for the blocks' matrices, AdamW for everything else, an exponential moving average of all.

Muon (K. Jordan et al., 2024): momentum, then the nearest semi-orthogonal matrix by a Newton-Schulz iteration; the step is
scaled by 0.2 sqrt(max(rows, columns)) so that its rms equals AdamW's (Moonshot, 2025).
"""
import torch

STEPS = ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
         (2.8366, -3.0525, 1.2012))


def orthogonal(x):
    """semi-orthogonal factor of a stack of matrices [n, rows, columns]."""
    y = x.bfloat16() if x.is_cuda else x.float()  # bf16 products are slow on most CPUs
    tall = y.shape[1] > y.shape[2]
    y = y.mT if tall else y
    y = y / (y.norm(dim=(1, 2), keepdim=True) * 1.01 + 1e-7)
    for a, b, c in STEPS:
        square = y @ y.mT
        y = a * y + (b * square + c * square @ square) @ y
    return y.mT if tall else y


class Muon:
    """Updates lists of equally shaped matrices as stacks."""

    def __init__(self, parameters, lr, momentum=0.95, decay=0.01):
        self.lr, self.momentum, self.decay = lr, momentum, decay
        shapes = {}
        for parameter in parameters:
            shapes.setdefault(tuple(parameter.shape), []).append(parameter)
        self.groups = list(shapes.values())
        self.buffers = [torch.zeros(len(g), *g[0].shape, device=g[0].device) for g in self.groups]

    @torch.no_grad()
    def step(self, factor):
        lr = self.lr * factor
        for group, buffer in zip(self.groups, self.buffers):
            gradient = torch.stack([p.grad for p in group]).float()
            buffer.lerp_(gradient, 1 - self.momentum)
            update = orthogonal(gradient.lerp(buffer, self.momentum)).float()
            torch._foreach_mul_(group, 1 - lr * self.decay)
            torch._foreach_add_(group, list(update.unbind(0)), alpha=-lr * 0.2 * max(group[0].shape) ** 0.5)


class Average:
    """Moving average of parameters; the horizon grows with the step until it reaches `decay`."""

    def __init__(self, parameters, decay):
        self.source, self.decay, self.count = list(parameters), decay, 0
        self.values = [p.detach().clone() for p in self.source]

    @torch.no_grad()
    def update(self):
        self.count += 1
        keep = min(self.decay, (1 + self.count) / (10 + self.count))
        torch._foreach_lerp_(self.values, self.source, 1 - keep)


def build(model, text, muon_lr, adam_lr, text_lr):
    """(Muon, AdamW) over a Wan and its TextTable."""
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    known = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in known]
    groups = [{"params": rest, "lr": adam_lr, "base": adam_lr},
              {"params": list(text.parameters()), "lr": text_lr, "base": text_lr}]
    fused = rest[0].is_cuda
    return Muon(matrices, muon_lr), torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=fused)
