"""Dense references: parts of networks from their published formulas, and decoding loops that recompute everything.

What the classes and `generate` are held against: one sequence at a time, all logits.
"""

import torch

# Parts of networks


def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def silu(x):
    return x / (1 + torch.exp(-x))


def linear(state, name, x):
    out = x @ state[f"{name}.weight"].T
    return out + state[f"{name}.bias"] if f"{name}.bias" in state else out


def gated_mlp(state, name, x):
    gated = silu(linear(state, f"{name}.gate_proj", x)) * linear(state, f"{name}.up_proj", x)
    return linear(state, f"{name}.down_proj", gated)


# Decoding loops


def dense_logits(model, canvas):
    """[L, V] logits of every position, the mask token's at minus infinity, through the class's own forward."""
    logits = model.net(input_ids=torch.tensor([canvas])).logits[0].detach().clone()
    if model.shift:
        logits = torch.cat([logits[:1], logits[:-1]])
    logits[:, model.mask_id] = float("-inf")
    return logits


def top(scores, count):
    """Places of the `count` largest, ties to the left."""
    return sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:count]


def llada_reference(
    model, prompt, new, steps, block, scale=0.0, forbidden=(), late=(), score=lambda logits, tokens: None
):
    """LLaDA's loop: even shares of each block's masks, the most probable argmax first, nothing right of the block."""
    mask = model.mask_id
    canvas, order = [*prompt, *[mask] * new], {}
    visible = [token != mask for token in canvas]
    blocks, clock = new // block, 0
    for number in range(blocks):
        end = len(prompt) + (number + 1) * block
        masks = sum(token == mask for token in canvas[:end])
        per_block = steps // blocks
        for step in range(per_block):
            count = masks // per_block + (step < masks % per_block)
            logits = dense_logits(model, canvas)
            if scale:
                blind = [mask if seen else token for token, seen in zip(canvas, visible, strict=True)]
                unconditional = dense_logits(model, blind)
                logits = unconditional + (scale + 1) * (logits - unconditional)
                logits[:, mask] = float("-inf")
            for token in forbidden:
                logits[:, token] = float("-inf")
            tokens = logits.argmax(-1)
            probability = logits.double().softmax(-1).gather(-1, tokens[:, None])[:, 0]
            chosen = score(logits, tokens)
            confidence = (probability if chosen is None else chosen).tolist()
            places = [place for place in range(end) if canvas[place] == mask]
            scores = [-1e9 if int(tokens[place]) in late else confidence[place] for place in places]
            for place in top(scores, count):
                canvas[places[place]] = int(tokens[places[place]])
                order[places[place]] = clock
            clock += 1
    return canvas, [order[place] for place in sorted(order)]


def dream_reference(model, prompt, new, steps, algorithm, eps=1e-3, draw=None, top_k=None):
    """Dream's loop: timesteps from 1 to eps, int(masked * (1 - s/t)) commits, all that remain at the last.

    draw(count): uniform draws for as many open positions as there were masks at the start (`origin` only).
    """
    mask = model.mask_id
    canvas = [*prompt, *[mask] * new]
    slots = [place for place, token in enumerate(canvas) if token == mask]
    times = torch.linspace(1, eps, steps + 1)
    for step in range(steps):
        t, s = times[step], times[step + 1]
        open_slots = [place for place in slots if canvas[place] == mask]
        logits = dense_logits(model, canvas)[open_slots]
        if top_k is not None:
            logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], torch.finfo(torch.float32).min)
        probabilities = logits.softmax(-1)
        confidence, tokens = probabilities.max(-1)
        if algorithm == "origin":
            share = 1 - s / t if step < steps - 1 else 1
            uniform = dict(zip(slots, draw(len(slots)), strict=True))
            for place, token in zip(open_slots, tokens.tolist(), strict=True):
                if uniform[place] < share:
                    canvas[place] = token
            continue
        if algorithm == "topk_margin":
            ordered = probabilities.sort(-1, descending=True).values
            confidence = ordered[:, 0] - ordered[:, 1]
        if algorithm == "entropy":
            confidence = (probabilities * (probabilities + 1e-10).log()).sum(-1)
        masked = torch.tensor(float(len(open_slots)))
        count = int(masked * (1 - s / t)) if step < steps - 1 else int(masked)
        for place in top(confidence.tolist(), count):
            canvas[open_slots[place]] = int(tokens[place])
    return canvas
