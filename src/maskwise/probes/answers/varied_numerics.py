"""The same questions under settings that should not matter: copies in other dtypes, batches, orders, attentions."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from maskwise.decoding.checks import end_tokens
from maskwise.decoding.generate import decode
from maskwise.decoding.history.voting import text_before_end
from maskwise.decoding.loop import Snapshot
from maskwise.decoding.options import DecodingOptions
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.generation import Generation
from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, Written, answer_rows, answers_to, pack
from maskwise.probes.checked import AskedSet
from maskwise.probes.numeric_settings import EMULATED, FLOAT16, FLOAT32, REFERENCE, WEIGHTS, Machine, NumericSetting
from maskwise.support.randomness import python_random
from maskwise.tasks.checkable import is_right
from maskwise.tasks.prompts import Prompt


def machine_of(model: Model) -> Machine:
    """Layers are compiled on CUDA alone: on a CPU it takes a C++ compiler and longer than the probe.

    Where the questions of a finished run are made again there is no model, and every setting may have been asked.
    """
    if not isinstance(model, Model):
        return Machine(FLOAT16, compiles=True, weights=WEIGHTS)
    compiles = model.device.type == "cuda" and model.family.layers_compile
    return Machine(model.dtype_name, compiles, model.weights)


def missing_bytes(model: Model) -> int:
    """Memory of the GPU that a float32 copy would need beyond what is free; 0 where it fits, or on a CPU."""
    if not isinstance(model, Model) or model.device.type != "cuda":
        return 0
    free, _ = torch.cuda.mem_get_info(model.device)
    return max(0, int(4.2 * model.parameter_count) - free)


class ModelCopies:
    """The model in other dtypes, one copy at a time: an 8B model takes 32 GB in float32."""

    def __init__(self) -> None:
        self.key: tuple[int, str, bool] | None = None
        self.made: Model | None = None

    def under(self, model: Model, setting: NumericSetting) -> Model:
        own = model.dtype_name == setting.dtype and not setting.compiled
        if own and (setting.weights or model.weights is None):
            return model
        key = id(model), setting.dtype, setting.compiled
        if self.key != key or self.made is None:
            self.made = None  # freed before the next is made
            self.made = self._copy(model, setting)
            self.key = key
        return self.made

    @torch.inference_mode(False)  # decoding packs the copy's weights outside of inference mode
    def _copy(self, model: Model, setting: NumericSetting) -> Model:
        if model.weights is not None:  # of quantised weights the originals are read again
            made = open_model(model.name, FLOAT32, model.device, check_weights=False)
        else:
            model.recordings = None  # CUDA graphs cannot be copied
            made = copy.deepcopy(model).float()
        dtype = getattr(torch, setting.dtype)
        if made.device.type == "cpu" and dtype != torch.float32:
            return emulated(made, dtype)
        made = made.to(dtype)
        if setting.compiled:
            made.compile_layers()
        return made.eval()


def emulated(model: Model, dtype: torch.dtype) -> Model:
    """Half precision on a CPU without its instructions: weights and what modules give are rounded, sums are float32.

    So does a GPU compute products of half precision, but for the order of its sums. Most CPUs would take minutes.
    """

    def rounded(module: nn.Module, given: Any, out: Any) -> Any:
        return out.to(dtype).to(out.dtype) if isinstance(out, Tensor) and out.is_floating_point() else out

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype).to(parameter.dtype))
    for module in model.core.modules():
        if not any(True for _ in module.children()):
            module.register_forward_hook(rounded)
    return model.eval()


def computed_in(used: Model, setting: NumericSetting) -> str:
    return setting.dtype if used.dtype_name == setting.dtype else setting.dtype + EMULATED


def parts(count: int, setting: NumericSetting) -> Iterator[list[int]]:
    """The numbers of the questions in the batches of a setting."""
    order = list(range(count))
    random = python_random("numeric order", setting.order)
    if setting.order == 1:
        order.reverse()
    elif setting.order:
        random.shuffle(order)
    while order:
        size = 1 if setting.one_at_a_time else random.randint(1, len(order)) if setting.sizes else len(order)
        yield order[:size]
        order = order[size:]


def attention_of(setting: NumericSetting) -> AbstractContextManager[Any]:
    return sdpa_kernel(SDPBackend.MATH) if setting.plain else nullcontext()


@torch.inference_mode()
def ask_under(model: Model, prompts: Sequence[Prompt], setting: NumericSetting, copies: ModelCopies) -> list[Answer]:
    """One forward pass per batch of the setting; evidence: the margin of the two best logits, and the largest."""
    used = copies.under(model, setting)
    found: dict[int, Answer] = {}
    with attention_of(setting):
        for numbers in parts(len(prompts), setting):
            some = [prompts[number] for number in numbers]
            batch = pack(used, some)
            which = torch.arange(len(some), device=used.device)
            logits = used.head(used.hidden(batch)[used.locate(batch, which, answer_rows(used, some))])
            evidence = margins_of(logits)
            for number, answer, measured in zip(numbers, answers_to(some, logits), evidence, strict=True):
                found[number] = replace(answer, evidence={"dtype": computed_in(used, setting), **measured})
    return [found[number] for number in range(len(prompts))]


def margins_of(logits: Tensor) -> list[dict[str, float]]:
    """[n, V] -> best less second, and the largest absolute logit of those that are finite."""
    best = logits.topk(2, dim=-1).values
    largest = logits.masked_fill(~logits.isfinite(), 0.0).abs().amax(-1)
    pairs = zip((best[:, 0] - best[:, 1]).tolist(), largest.tolist(), strict=True)
    return [{"margin": round(margin, DIGITS), "scale": round(scale, DIGITS)} for margin, scale in pairs]


def write_under(
    model: Model, prompts: Sequence[Prompt], setting: NumericSetting, copies: ModelCopies, asked: AskedSet, steps: int
) -> list[Answer]:
    """Greedy, on the canvas of the prompts. Of the reference the least margin of a committed token is kept."""
    right = {one.ids: one.answer for one in asked.questions}
    used = copies.under(model, setting)
    ends = set(end_tokens(used))
    found: dict[int, Answer] = {}
    with attention_of(setting):
        for numbers in parts(len(prompts), setting):
            some = [prompts[number] for number in numbers]
            made, margins = _generated(used, some, setting, steps)
            for number, one, evidence in zip(numbers, made, margins, strict=True):
                answer = right[prompts[number].ids[: prompts[number].row]]
                text = text_before_end(used, one.ids, ends)
                # The whole canvas is compared, so that a change after the answer counts as a change.
                whole = used.tokenizer.decode(one.ids)
                written = Written(whole, is_right(text, answer, asked.check))
                measured = {"dtype": computed_in(used, setting), **evidence}
                found[number] = Answer(one.ids[0], 0.0, 0.0, 0.0, measured, written)
    return [found[number] for number in range(len(prompts))]


def _generated(
    model: Model, prompts: Sequence[Prompt], setting: NumericSetting, steps: int
) -> tuple[list[Generation], list[dict[str, float]]]:
    cache, refresh = ("dual", 1) if setting.cache else ("none", None)
    options = DecodingOptions(max_new_tokens=prompts[0].masks, steps=steps, cache=cache, refresh=refresh)
    least = [{"margin": float("inf"), "scale": 0.0} for _ in prompts]

    def watch(snapshot: Snapshot) -> None:
        rows = snapshot.rows
        now = snapshot.sheet.ids[snapshot.places]
        committed = rows.open & (now != model.mask_id)
        for place, (logits, mine) in enumerate(zip(rows.logits, committed, strict=True)):
            for measured in margins_of(logits[mine]) if mine.any() else []:
                if measured["margin"] < least[place]["margin"]:
                    least[place] = measured

    ids = [list(prompt.ids[: prompt.row]) for prompt in prompts]
    if setting.name != REFERENCE:
        return decode(model, ids, options, batch=len(ids)), [{} for _ in prompts]
    return decode(model, ids, options, on_step=watch), least
