"""The model `maskwise` of lm-evaluation-harness: any masked or autoregressive model that maskwise opens.

    lm_eval --model maskwise --model_args pretrained=PATH,adapter=PATH,rule=threshold,tau=0.9,block=32,cache=dual \
            --tasks gsm8k --batch_size 8

Likelihoods come from `log_likelihoods`, text from `decode`. Every option, and every number of masks that was shown to
the model, is written into the results under "config".
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from maskwise.decoding.checks import end_tokens, text_before_end
from maskwise.decoding.generate import decode, greedy_answers, prompt_generators
from maskwise.decoding.likelihood import encode_pair, encode_text, log_likelihoods
from maskwise.decoding.options import OPTION_NAMES, DecodingOptions
from maskwise.decoding.prompt_ids import text_ids
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.tokenizers.chat import render_chat
from maskwise.support.errors import UserError
from maskwise.support.terminal import one_line

log = logging.getLogger("lm_eval")
AUTO_BATCH = 16
# The task says how many tokens it wants, and lm-eval itself applies chat templates.
ARGUMENTS = tuple(name for name in OPTION_NAMES if name not in ("max_new_tokens", "chat"))


@contextmanager
def one_line_of_command() -> Iterator[None]:
    """Under the command `lm_eval` a user's mistake ends it in one line; in Python it is raised."""
    try:
        yield
    except UserError as problem:
        if not Path(sys.argv[0]).name.startswith(("lm_eval", "lm-eval")) and "lm_eval" not in Path(sys.argv[0]).parts:
            raise
        sys.stderr.write(f"maskwise: {one_line(problem)}\n")
        sys.exit(2)


@register_model("maskwise")
class MaskwiseLM(LM):
    """lm-eval's three questions, answered by maskwise."""

    def __init__(
        self,
        pretrained: str,
        adapter: str | None = None,
        dtype: str = "auto",
        device: str | None = None,
        batch_size: int | str = AUTO_BATCH,
        max_batch_size: int | None = None,
        method: str = "auto",
        samples: int = 128,
        masks: int = 0,
        check_greedy: bool = True,
        max_new_tokens: int | None = None,
        seed: int = 0,
        any_base: bool = False,
        **arguments: Any,
    ) -> None:
        """pretrained, adapter, any_base: what `maskwise.open` takes.

        method, samples, masks: the likelihood's estimator, its draws, and the number of masks after the answer.
        check_greedy: also decode answers of several tokens, for metrics that ask whether greedy decoding gives them.
        max_new_tokens: masks to generate into; when left out, what the task asks for (max_gen_toks, else 256).
        arguments: the options of `mw.generate` by their names (ARGUMENTS), and the strategy's parameters, such as tau.
        """
        super().__init__()
        with one_line_of_command():
            self.options = decoding_options(arguments)
            # The default of lm-eval's command line is cuda:0.
            place = device if torch.cuda.is_available() or not str(device).startswith("cuda") else None
            self.model = open_model(pretrained, dtype=dtype, device=place, adapter=adapter, any_base=any_base)
            self.model.compile_for_long_work()
            self.tokenizer = self.model.tokenizer
            if self.tokenizer is None:
                raise UserError(f"{pretrained} has no tokenizer, so it reads no text")
        self.batch_size = AUTO_BATCH if str(batch_size).startswith("auto") else int(batch_size)
        self.likelihood: dict[str, Any] = {"method": method, "samples": samples, "masks": masks}
        self.check_greedy, self.max_new_tokens = check_greedy, max_new_tokens
        self.pretrained, self.adapter, self.seed = pretrained, adapter, seed
        self.masks_after_answer: set[int] = set()
        self.visible_after_answer: set[int] = set()  # of these, of a block diffusion model
        self.masks_of_greedy_check: set[int] = set()
        self.masks_generated: set[int] = set()
        self._device = self.model.device

    # What lm-eval asks

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return self._likelihoods([self._pair(*request.args) for request in requests])

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Each text in pieces of the context length; every token is scored once, with the context that fits."""
        windows, owner = [], []
        longest = self.model.window - 1 - self.likelihood["masks"]
        for number, request in enumerate(requests):
            start, ids = encode_text(self.model, request.args[0])
            if not start:
                raise UserError(f"{self.pretrained} names neither a start nor an end token to start a text from")
            for pair in get_rolling_token_windows(ids, start[0], longest, context_len=1):
                windows.append(make_disjoint_window(pair))
                owner.append(number)
        totals = [0.0] * len(requests)
        for number, (found, _) in zip(owner, self._likelihoods(windows, greedy=False), strict=True):
            totals[number] += found
        return totals

    def generate_until(self, requests: list[Instance]) -> list[str]:
        texts = [""] * len(requests)
        asked = [self._asked(dict(request.args[1])) for request in requests]
        for settings in dict.fromkeys((new, temperature) for new, temperature, _ in asked):
            same = [number for number, (new, temperature, _) in enumerate(asked) if (new, temperature) == settings]
            new, temperature = settings
            prompts = [self._fitting(text_ids(self.model, requests[number].args[0]), new) for number in same]
            for number, ids in zip(same, self._decode(prompts, new, temperature), strict=True):
                texts[number] = self._cut(ids, asked[number][2])
                self.cache_hook.add_partial("generate_until", requests[number].args, texts[number])
        return texts

    # Likelihoods

    def _likelihoods(
        self, pairs: Sequence[tuple[list[int], list[int]]], greedy: bool = True
    ) -> list[tuple[float, bool]]:
        masks = self.likelihood["masks"]
        found = log_likelihoods(self.model, pairs, seed=self.seed, **self.likelihood)
        if not self.model.causal:
            self.masks_after_answer.add(masks)
            self.visible_after_answer.update(one.visible for one in found if one.visible is not None)
        answers = [one.greedy for one in found]
        open_questions = [n for n, known in enumerate(answers) if known is None] if greedy and self.check_greedy else []
        for length in dict.fromkeys(len(pairs[number][1]) for number in open_questions):
            self.masks_of_greedy_check.add(length + masks)
            same = [number for number in open_questions if len(pairs[number][1]) == length]
            for first in range(0, len(same), self.batch_size):
                part = same[first : first + self.batch_size]
                decoded = greedy_answers(self.model, [pairs[number][0] for number in part], length, masks)
                for number, ids in zip(part, decoded, strict=True):
                    answers[number] = ids == pairs[number][1]
        return [(one.log_likelihood, bool(known)) for one, known in zip(found, answers, strict=True)]

    def _pair(self, context: str, answer: str) -> tuple[list[int], list[int]]:
        prompt, wanted = encode_pair(self.model, context, answer)
        return self._fitting(prompt, len(wanted) + self.likelihood["masks"]), wanted

    # Text

    def _decode(self, prompts: list[list[int]], new: int, temperature: float) -> Iterator[list[int]]:
        options = replace(self.options, max_new_tokens=new, temperature=temperature)
        if not self.model.causal:
            self.masks_generated.add(new)
        # `repeats` asks one prompt several times: each time it is sampled anew.
        generators = prompt_generators(self.model, self.seed, prompts)
        for first in range(0, len(prompts), self.batch_size):  # lm-eval keeps what is finished
            part = slice(first, first + self.batch_size)
            for generation in decode(self.model, prompts[part], options, generators[part], batch=self.batch_size):
                yield generation.ids

    def _asked(self, wishes: dict[str, Any]) -> tuple[int, float, tuple[str, ...]]:
        """(new tokens, temperature, stop strings) of a request; the model's own arguments come before the task's."""
        until = wishes.pop("until", None) or []
        new = wishes.pop("max_gen_toks", wishes.pop("max_new_tokens", 256))
        # As in lm-eval: do_sample may be left out, but where it is false the temperature does not count.
        samples, temperature = wishes.pop("do_sample", True), wishes.pop("temperature", 0.0)
        wanted = temperature if samples else 0.0
        if wishes:
            raise UserError(f"generation settings {', '.join(wishes)} are not known: give them as --model_args")
        stops = (until,) if isinstance(until, str) else tuple(until)
        return self.max_new_tokens or int(new), self.options.temperature or float(wanted), stops

    def _cut(self, ids: list[int], stops: tuple[str, ...]) -> str:
        """The text up to the first end token or stop string."""
        text = text_before_end(self.model, ids, end_tokens(self.model))
        found = [text.find(stop) for stop in stops if stop and stop in text]
        return text[: min(found)] if found else text

    # Tokens

    def _fitting(self, prompt: list[int], more: int) -> list[int]:
        """The end of the prompt that leaves room for `more` tokens in the model's context length."""
        room = self.model.window - more
        if room < 1:
            raise UserError(f"{more} tokens leave no room for a prompt in the context length of {self.model.window}")
        if len(prompt) > room:
            log.warning("maskwise: a prompt of %d tokens was cut to its last %d", len(prompt), room)
        return prompt[-room:] if prompt else prompt

    # Chats, and what is written into the results

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        text = render_chat(self.tokenizer, chat_history, add_generation_prompt=add_generation_prompt)
        if add_generation_prompt:
            return text
        # LLaDA's template always opens one more turn: cut after the last message.
        last = chat_history[-1]["content"]
        return text[: text.rindex(last) + len(last)]

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return self.tokenizer.chat_template or ""

    @property
    def tokenizer_name(self) -> str:
        return self.tokenizer.name_or_path.replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        """The entries that lm-eval adds to the configuration in its results."""
        model = self.model
        options = self.options.summary()
        return {
            "model_num_parameters": model.parameter_count,
            "model_dtype": model.dtype_name,
            "maskwise": {
                "pretrained": self.pretrained,
                "adapter": self.adapter,
                "kind": model.kind,
                "mask_id": model.mask_id,
                "shift": model.shift,
                "block": model.block,
                "window": model.window,
                "seed": self.seed,
                "check_greedy": self.check_greedy,
                "likelihood": self.likelihood,
                "decoding": None if model.causal else {name: options[name] for name in ARGUMENTS},
                "max_new_tokens": self.max_new_tokens,
                "masks_after_answer": sorted(self.masks_after_answer),
                **({"visible_after_answer": sorted(self.visible_after_answer)} if model.block is not None else {}),
                "masks_of_greedy_check": sorted(self.masks_of_greedy_check),
                "masks_generated": sorted(self.masks_generated),
            },
        }


def decoding_options(arguments: dict[str, Any]) -> DecodingOptions:
    """The options among lm-eval's arguments by their names; all other arguments are parameters of the strategy."""
    given = {name: value for name, value in arguments.items() if name in ARGUMENTS}
    parameters = {name: value for name, value in arguments.items() if name not in ARGUMENTS}
    if parameters:
        given["parameters"] = dict(given.get("parameters") or {}) | parameters
    return DecodingOptions(**given)
