"""Decoding with insertion and deletion, for models with tokens that edit a block: LLaDA2.2's Levenshtein editing.

Written from public descriptions of the loop in LLaDA2.2's modelling code (Bie et al., LLaDA2.2: Enabling Agentic
Diffusion Language Models via Levenshtein Editing, 2026; SGLang's JointThresholdInDel; FluxServe's development guide).
A block keeps its length. In each pass over it:

- masks above the threshold are filled, and at least as many as the schedule says plus those that edits have inserted;
- a generated token is replaced where another has a probability above `edit`;
- DELETE removes its position, and SPLIT becomes a mask and the previous token of that position; the block is cut or
  filled up with masks.

The block ends when a pass changes nothing, or 16 passes after its last original mask; then no edit is taken any more.
Differences from the original: where a block returns to an earlier state, the least certain change takes its next best
token (the original draws the position at random), and decoding is greedy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maskwise.decoding.loop import decoded_text
from maskwise.decoding.options import DecodingOptions
from maskwise.decoding.schedule import PASSES_AFTER
from maskwise.models.batch import Batch
from maskwise.models.generation import Generation
from maskwise.models.model import Model
from maskwise.support.errors import UserError

MOST_PASSES = 1000  # over a block, as in the original
KNOWN_OPTIONS = ("max_new_tokens", "rule", "parameters", "edit", "block", "canvas", "early_stop", "end_ids", "chat")


@dataclass(frozen=True)
class EditTokens:
    """The tokens with a meaning for a block: the mask, DELETE and SPLIT."""

    mask: int
    delete: int
    split: int

    @staticmethod
    def of(model: Model) -> "EditTokens | None":
        """None where the model has no tokens that edit."""
        config = model.core.config
        delete, split = getattr(config, "delete_token_id", None), getattr(config, "split_token_id", None)
        if model.mask_id is None or delete is None or split is None:
            return None
        return EditTokens(model.mask_id, delete, split)

    def apply(
        self, written: Sequence[int], before: Sequence[int], original: Sequence[bool], frozen: int
    ) -> tuple[list[int], list[bool]]:
        """The block after its edits, and which of its masks are original; the first `frozen` tokens stay."""
        tokens, kept = list(written[:frozen]), list(original[:frozen])
        for token, old, was in zip(written[frozen:], before[frozen:], original[frozen:], strict=True):
            if token == self.split:
                tokens += [self.mask, old]
                kept += [False, was]
            elif token != self.delete:
                tokens.append(token)
                kept.append(was)
        more = max(len(written) - len(tokens), 0)
        return [*tokens, *[self.mask] * more][: len(written)], [*kept, *[False] * more][: len(written)]


@dataclass
class EditedBlock:
    """One block that is being decoded. frozen: how many of its first tokens are the prompt's."""

    tokens: list[int]
    frozen: int
    special: EditTokens
    threshold: float
    edit: float

    def __post_init__(self) -> None:
        self.original = [token == self.special.mask for token in self.tokens]
        self.masks = sum(self.original)
        self.passes = self.after = 0  # after: passes that began without an original mask
        self.seen: set[tuple[int, ...]] = set()

    def step(self, logits: Tensor) -> bool:
        """Applies the logits [B, V] of one pass; returns whether the block needs another."""
        special, before = self.special, list(self.tokens)
        masked = torch.tensor([token == special.mask for token in before])
        originals = sum(was and token == special.mask for was, token in zip(self.original, before, strict=True))
        self.after = 0 if originals else self.after + 1
        last = self.after > PASSES_AFTER or self.passes + 1 >= MOST_PASSES
        if last:
            logits = logits.clone()
            logits[:, [special.delete, special.split]] = float("-inf")
        chance, best = logits.softmax(-1).max(-1)
        taken = self._filled(masked, chance, originals, last) | self._replaced(masked, chance, best, before)
        key = tuple(before)
        if key in self.seen and not last:
            best = _next_best(logits, chance, best, taken & (best != torch.tensor(before)))
        self.seen.add(key)
        written = torch.where(taken, best, torch.tensor(before)).tolist()
        self.tokens, self.original = special.apply(written, before, self.original, self.frozen)
        self.passes += 1
        open_now = special.mask in self.tokens
        return not last and (open_now or self.tokens != before)

    def _filled(self, masked: Tensor, chance: Tensor, originals: int, last: bool) -> Tensor:
        """Masks that this pass fills. [B]"""
        steps = len(self.tokens)
        if last or not originals or self.passes >= steps:
            return masked
        confidence = chance.masked_fill(~masked, -1)
        due = self.masks // steps + (self.passes < self.masks % steps) + int(masked.sum()) - originals
        sure = confidence > self.threshold
        if int(sure.sum()) >= due:
            return sure
        chosen = confidence.topk(min(due, int(masked.sum()))).indices
        return torch.zeros_like(masked).index_fill(0, chosen, True)

    def _replaced(self, masked: Tensor, chance: Tensor, best: Tensor, before: list[int]) -> Tensor:
        """Generated tokens that this pass replaces. [B]"""
        own = torch.arange(len(before)) >= self.frozen
        return own & ~masked & (chance > self.edit) & (best != torch.tensor(before))


def _next_best(logits: Tensor, chance: Tensor, best: Tensor, changing: Tensor) -> Tensor:
    """The least certain of the changes takes its second best token."""
    if not changing.any():
        return best
    place = int(chance.masked_fill(~changing, 2).argmin())
    return best.index_fill(0, torch.tensor([place]), int(logits[place].topk(2).indices[1]))


def uses_edit_tokens(model: Model, options: DecodingOptions) -> bool:
    return options.edit is not None and EditTokens.of(model) is not None


@torch.no_grad()
def decode_with_edits(
    model: Model, prompts: Sequence[list[int]], options: DecodingOptions, draws: object = None
) -> list[Generation]:
    """Prompts one by one; greedy, so nothing is drawn."""
    default = DecodingOptions()
    for name in (one for one in DecodingOptions.__dataclass_fields__ if one not in KNOWN_OPTIONS):
        if getattr(options, name) != getattr(default, name):
            raise UserError(f"insertion and deletion of {model.name or model.kind} take no {name}: leave it out")
    if "tau" not in options.all_parameters:
        raise UserError("insertion and deletion go with the strategy threshold: give rule='threshold'")
    return [_decode_one(model, prompt, options) for prompt in prompts]


def _decode_one(model: Model, prompt: list[int], options: DecodingOptions) -> Generation:
    special, block, edit = EditTokens.of(model), model.block, options.edit
    assert special is not None and block is not None and edit is not None
    length = -(-(len(prompt) + options.max_new_tokens) // block) * block  # whole blocks, as the model was trained
    model.check_sequence([0] * length, "the prompt with its new tokens in whole blocks")
    canvas, ends = [*prompt, *[special.mask] * (length - len(prompt))], set(options.end_ids or ())
    forwards, order = 0, [0] * length
    for first in range(len(prompt) // block * block, length, block):
        frozen = max(len(prompt) - first, 0)
        state = EditedBlock(canvas[first : first + block], frozen, special, options.all_parameters["tau"], edit)
        going = True
        while going:
            batch = Batch.pack([[*canvas[:first], *state.tokens]], model.device)
            going = state.step(model.head(model.hidden(batch)[first : first + block]).cpu())
        canvas[first : first + block] = state.tokens
        forwards += state.passes
        order[first : first + block] = [forwards - 1] * block  # every token may change until the last pass
        if options.early_stop and ends & set(state.tokens[frozen:]):
            break
    new = canvas[len(prompt) : len(prompt) + options.max_new_tokens]
    stop = next((place for place, token in enumerate(new) if options.early_stop and token in ends), len(new))
    new = [*new[: stop + 1], *[new[stop]] * (len(new) - stop - 1)] if stop < len(new) else new
    order = order[len(prompt) : len(prompt) + len(new)]
    return Generation(new, decoded_text(model, new), forwards, order, [*prompt, *new])
