"""Visibility in block diffusion models, and the questions that follow from it.

Such a model sees no token after the block in which the answer is predicted. Each prompt is moved on the grid of blocks,
as if it were padded on the left, until the row that predicts its answer begins a block: the answer then sees as many of
the tokens that follow as it ever can. A condition with an "offset" says where in its block the answer stands instead.
Records state that place ("offset") and how many masks the answer sees ("visible"). Counts of masks or fillers that no
answer can see are not asked; the largest that can be seen is asked in their place, and the manifest lists them under
"not_visible".
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from maskwise.probes.setup import Setup
from maskwise.tasks.prompts import Prompt

if TYPE_CHECKING:  # probes are listed without torch
    from maskwise.models.model import Model


def most_masks(block: int, shift: bool) -> int:
    """Masks that an answer sees at most, its own among them; a shifted model reads it from the token before."""
    return max(1, block - shift)


def visible_counts(setup: Setup, probe: str, counts: Sequence[int], other_tokens: int = 0) -> tuple[int, ...]:
    """The numbers of masks or fillers that an answer sees with `other_tokens` other tokens; most models see all.

    The largest number of a block model stands for those beyond it.
    """
    block = setup.model.block
    if block is None:
        return tuple(counts)
    most = max(0, most_masks(block, setup.model.shift) - other_tokens)
    beyond = [count for count in counts if count > most]
    if not beyond:
        return tuple(counts)
    known = setup.not_visible.setdefault(probe, [])
    known += [count for count in beyond if count not in known]
    own = f"besides {other_tokens} other tokens" if other_tokens else "its own mask included"
    setup.note(
        f"{probe}: {', '.join(map(str, beyond))} masks or fillers are not visible: an answer sees at most {most}, "
        f"{own}, of its block of {block} tokens; asked with {most} instead"
    )
    return tuple(dict.fromkeys([count for count in counts if count <= most] + [most]))


def sees_past_the_question(setup: Setup) -> bool:
    """Whether a question may stand before its context, and masks worth a share of the length be seen."""
    return not setup.model.causal and setup.model.block is None


def moved_on_grid(model: "Model", prompt: Prompt, offset: Any = None) -> Prompt:
    """The prompt moved so that the row which predicts its answer begins a block, or so that the answer stands at this
    place of its block; as it is, of a model without blocks."""
    if model.block is None:
        return prompt
    place = int(model.shift) if offset is None else int(offset)
    return replace(prompt, start=(place - prompt.row) % model.block)


def visible_masks(model: "Model", prompt: Prompt) -> int:
    """The number of masks that the prediction of the answer depends on, its own included."""
    end = model.seen_by(prompt.start + prompt.row, prompt.start + len(prompt.ids))
    return prompt.ids[: end - prompt.start].count(model.mask_id)  # type: ignore[arg-type]
