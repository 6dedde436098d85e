"""What preset tulle does to attention, in torch: residuals, pooled tails, a branch of guidance that follows the other.

For finding settings on a GPU, where hundreds of clips a minute can be drawn. It computes more than the runtime does (masked
scores are computed and dropped) and works in bf16, so only its figures of quality mean anything, and only beside each other.
"""
import dataclasses
import math

import torch
import torch.nn.functional as F

BLOCK = 64


@dataclasses.dataclass
class Settings:
    starts: list  # steps at which the conditional branch computes all blocks; step 0 is dense
    blocks: list  # kept blocks a row between them, one number for each start
    follow: list  # steps at which the unconditional branch computes all blocks; then it follows
    renew: int = 4  # steps after which the difference of the branches is made anew; 0: never
    renew_at: list = dataclasses.field(default_factory=list)  # or the steps themselves
    fade: float = 0.05  # what the difference loses a step
    order: str = "hilbert"
    sub_block: int = 16

    def blocks_at(self, step):
        return self.blocks[sum(s <= step for s in self.starts) - 1]

    def follow_part(self, step):
        """What the difference in use at a step was made by: (start, renewal), None before the first start."""
        begun = [s for s in self.follow if s <= step]
        if not begun:
            return None
        if self.renew_at:
            return begun[-1], sum(begun[-1] < s <= step for s in self.renew_at)
        return begun[-1], (step - begun[-1]) // self.renew if self.renew else 0

    def density(self, steps, blocks):
        """Of the whole run, tails counted; `blocks` is the number of blocks a row."""
        total, last = 2.0, None
        for step in range(1, steps):
            kept = self.blocks_at(step) / blocks
            masked = kept + (1 - kept) / BLOCK
            total += 1 if step in self.starts else masked
            part = self.follow_part(step)
            total += 1 if last is None or part[0] != last[0] else masked if part != last else 0
            last = part
        return total / (2 * steps)


def block_scores(q, k, sub_block):
    """DFSAttn's pooled softmax: mass of means of sub-blocks, summed over blocks. [b, h, n, d] -> [b, h, blocks, blocks]"""
    def pooled(x):
        return x.unflatten(2, (-1, sub_block)).mean(3)

    mass = torch.softmax((pooled(q) @ pooled(k).mT).float() * q.shape[-1] ** -0.5, -1)
    side = BLOCK // sub_block
    return mass.unflatten(-1, (-1, side)).sum(-1).unflatten(2, (-1, side)).sum(3)


def top_blocks(scores, count):
    return scores.argsort(-1, descending=True).argsort(-1) < count


def masked_attention(q, k, v, mask, chunk=16):
    """Attention over kept blocks, each dropped block counting as its mean, 64 times."""
    k_mean, v_mean = (x.unflatten(2, (-1, BLOCK)).mean(3) for x in (k, v))
    scale, out = q.shape[-1] ** -0.5, torch.empty_like(q)
    for first in range(0, q.shape[0], chunk):
        part = slice(first, first + chunk)
        kept = mask[part].repeat_interleave(BLOCK, 2)
        scores = (q[part] @ k[part].mT).float() * scale
        scores = scores.masked_fill(~kept.repeat_interleave(BLOCK, 3), -math.inf)
        means = (q[part] @ k_mean[part].mT).float() * scale + math.log(BLOCK)
        means = means.masked_fill(kept, -math.inf)
        top = torch.maximum(scores.amax(-1, True), means.amax(-1, True))
        scores, means = (scores - top).exp(), (means - top).exp()
        weighted = scores.to(v.dtype) @ v[part] + means.to(v.dtype) @ v_mean[part]
        out[part] = (weighted.float() / (scores.sum(-1, True) + means.sum(-1, True))).to(q.dtype)
    return out


class Attention:
    """One run of a batch: call begin_step, then attend for every layer, with the conditional samples first."""

    def __init__(self, settings, layers, order):
        self.settings, self.order, self.back = settings, order, torch.argsort(order)
        self.step, self.state = 0, [{} for _ in range(layers)]

    def begin_step(self, step):
        self.step = step

    def attend(self, layer, q, k, v):
        """[2 b, n, heads, d] -> the same."""
        q, k, v = (x.transpose(1, 2)[:, :, self.order] for x in (q, k, v))
        if self.step == 0:
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            half = q.shape[0] // 2
            state = self.state[layer]
            lead = self.conditional(state, q[:half], k[:half], v[:half])
            out = torch.cat([lead, self.unconditional(state, lead, q[half:], k[half:], v[half:])])
        return out[:, :, self.back].transpose(1, 2)

    def conditional(self, state, q, k, v):
        s = self.settings
        if self.step not in s.starts:
            return masked_attention(q, k, v, state["mask"]) + state["residual"]
        out = F.scaled_dot_product_attention(q, k, v)
        state["mask"] = top_blocks(block_scores(q, k, s.sub_block), s.blocks_at(self.step))
        state["residual"] = out - masked_attention(q, k, v, state["mask"])
        return out

    def unconditional(self, state, lead, q, k, v):
        part, last = self.settings.follow_part(self.step), state.get("part")
        state["part"] = part
        if part == last and part is not None:
            return lead + (1 - self.settings.fade) ** (self.step - state["made"]) * state["difference"]
        if last is None or part[0] != last[0]:
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            out = masked_attention(q, k, v, state["mask"]) + state["residual"]
        state["difference"], state["made"] = out - lead, self.step
        return out


class Dense:
    def begin_step(self, step):
        pass

    def attend(self, layer, q, k, v):
        return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
