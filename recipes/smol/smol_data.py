"""What smol-diffusion is trained on: text sampled from its teacher, and some real text, as rows of equal length.

A row begins with a short prompt and goes on as the teacher writes it at temperature 1:
- prose: the first tokens of a passage of real text;
- chat: a user's turn that has just begun, or a request out of templates and words;
- few-shot: two to eight pairs of one of the rules below in one of 24 formats, which the teacher continues.
The rules are none of the exams' (tenses, plurals, capitals, opposites, countries), and words come from the half of the
lists that no exam asks about.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwise.models.families.layers import Rotary
from maskwise.models.model import Model
from maskwise.tasks.words import load_words, split_words

SHARES = {"prose": 0.4, "chat": 0.3, "few-shot": 0.3}
OPENING = 16  # tokens of real text that a prose row begins with
BUCKET = 64  # places by which the sampled attention grows
FORMATS = (
    "{} -> {}\n", "{} => {}\n", "{}: {}\n", "{} = {}\n", "{} - {}\n", "{}, {}\n", "{} | {}\n", "{}\t{}\n",
    "Q: {}\nA: {}\n\n", "Question: {}\nAnswer: {}\n\n", "Input: {}\nOutput: {}\n\n", "input={} output={}\n",
    "x: {} y: {}\n", "In: {} Out: {}\n", "<in>{}</in><out>{}</out>\n", "({}, {})\n", "[{}] [{}]\n", "\"{}\": \"{}\",\n",
    "{{\"in\": \"{}\", \"out\": \"{}\"}}\n", "* {} goes with {}\n", "{} is to {}.\n", "Given {}, say {}.\n",
    "- {}\n  - {}\n", "The answer to {} is {}.\n",
)  # fmt: skip
REQUESTS = (
    "Tell me about the {}.",
    "Write a short story about a {}.",
    "What is a {}?",
    "Explain what {} means to a child.",
    "Give me three facts about {}.",
    "Write a poem about {}.",
    "How would you describe {}?",
    "Why do people like {}?",
    "Write a short letter that mentions {}.",
    "List five words that have to do with {}.",
    "Is {} a noun or a verb?",
    "Write a dialogue about {}.",
    "What can you do with {}?",
    "Use {} in a sentence.",
    "Summarise what you know of {}.",
)
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
ROMAN = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]


def words_to_train_on() -> dict[str, list[str]]:
    """The half of the lists that exams do not ask about, without countries."""
    shown, _ = split_words(load_words())
    return {name: listed for name, listed in shown.items() if name != "country"}


Rule = Callable[[random.Random, dict[str, list[str]]], tuple[str, str]]


def _any(draw: random.Random, words: dict[str, list[str]]) -> str:
    return draw.choice(words[draw.choice(sorted(words))])


def _category(draw: random.Random, words: dict[str, list[str]]) -> tuple[str, str]:
    name = draw.choice(sorted(words))
    return draw.choice(words[name]), name


def _list_item(draw: random.Random, words: dict[str, list[str]], place: int) -> tuple[str, str]:
    some = [_any(draw, words) for _ in range(3)]
    return " ".join(some), some[place]


def _number(draw: random.Random, change: Callable[[int], Any]) -> tuple[str, str]:
    value = draw.randrange(1, 60)
    return str(value), str(change(value))


RULES: dict[str, Rule] = {
    "category": _category,
    "repeat": lambda draw, words: (_any(draw, words),) * 2,
    "first of three": lambda draw, words: _list_item(draw, words, 0),
    "last of three": lambda draw, words: _list_item(draw, words, 2),
    "swapped": lambda draw, words: (lambda a, b: (f"{a} {b}", f"{b} {a}"))(_any(draw, words), _any(draw, words)),
    "next number": lambda draw, words: _number(draw, lambda value: value + 1),
    "number before": lambda draw, words: _number(draw, lambda value: value - 1),
    "double": lambda draw, words: _number(draw, lambda value: 2 * value),
    "even or odd": lambda draw, words: _number(draw, lambda value: "odd" if value % 2 else "even"),
    "large or small": lambda draw, words: _number(draw, lambda value: "large" if value > 30 else "small"),
    "sum": lambda draw, words: (lambda a, b: (f"{a} + {b}", str(a + b)))(draw.randrange(20), draw.randrange(20)),
    "number word": lambda draw, words: (lambda n: (NUMBERS[n], str(n)))(draw.randrange(13)),
    "Roman": lambda draw, words: (lambda n: (str(n + 1), ROMAN[n]))(draw.randrange(12)),
    "next day": lambda draw, words: (lambda n: (DAYS[n], DAYS[(n + 1) % 7]))(draw.randrange(7)),
    "animal or not": lambda draw, words: (
        (draw.choice(words["animal"]), "yes") if draw.random() < 0.5 else (draw.choice(words["object"]), "no")
    ),
    "with the": lambda draw, words: (lambda word: (word, f"the {word}"))(draw.choice(words["object"])),
}


def few_shot_prompt(draw: random.Random, words: dict[str, list[str]]) -> str:
    rule, form = RULES[draw.choice(sorted(RULES))], draw.choice(FORMATS)
    return "".join(form.format(*rule(draw, words)) for _ in range(draw.randrange(2, 9)))


def chat_prompt(draw: random.Random, words: dict[str, list[str]], tokenizer: Any) -> str:
    """A request of ours, or a user's turn that the teacher writes itself."""
    request = draw.choice(REQUESTS).format(_any(draw, words))
    if not tokenizer.chat_template:
        return request + "\n"
    whole = tokenizer.apply_chat_template(
        [{"role": "user", "content": request}], tokenize=False, add_generation_prompt=True
    )
    return whole if draw.random() < 0.5 else whole[: whole.rindex(request)]


def draw_prompts(count: int, kind: str, real: Tensor, tokenizer: Any, draw: random.Random) -> list[list[int]]:
    """Prompts of one kind; real [n] are the ids of the real text."""
    words = words_to_train_on()
    if kind == "prose":
        starts = [draw.randrange(max(1, len(real) - OPENING)) for _ in range(count)]
        return [real[start : start + OPENING].tolist() for start in starts]
    texts = [
        few_shot_prompt(draw, words) if kind == "few-shot" else chat_prompt(draw, words, tokenizer)
        for _ in range(count)
    ]
    return tokenizer(texts, add_special_tokens=False)["input_ids"]


# Sampling


@dataclass
class Sampler:
    """Draws rows from a causal model, many at a time, with keys and values kept and, on CUDA, one graph a bucket.

    `model` is a Dream with the teacher's weights, read causally: its layers are ours, so that a step is a few lines.
    """

    model: Model
    rows: int
    length: int
    draws: torch.Generator
    caches: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    graphs: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config, device = self.model.core.config, self.model.device
        shape = (self.rows, config.num_key_value_heads, self.length, config.head_dim)
        for _ in range(config.num_hidden_layers):
            keys, values = torch.zeros((2, *shape), dtype=self.model.dtype, device=device)
            self.caches.append((keys, values))
        self.ids = torch.zeros(self.rows, self.length + 1, dtype=torch.int64, device=device)
        self.known = torch.zeros(self.rows, dtype=torch.int64, device=device)  # tokens of each prompt
        self.place = torch.zeros(1, dtype=torch.int64, device=device)

    @torch.no_grad()
    def sample(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Rows [rows, length] that begin with the prompts (as many as rows, each shorter than a row)."""
        self.ids.zero_()
        for row, prompt in enumerate(prompts):
            self.ids[row, : len(prompt)] = torch.tensor(prompt, device=self.ids.device)
        self.known.copy_(torch.tensor([len(prompt) for prompt in prompts]))
        self.place.zero_()
        for place in range(self.length):
            self._advance(min(-(-(place + 1) // BUCKET) * BUCKET, self.length))
        return self.ids[:, : self.length].clone()

    def _advance(self, reach: int) -> None:
        if self.ids.device.type != "cuda":
            return self._step(reach)
        if reach not in self.graphs:
            self.graphs[reach] = self._recorded(reach)
        self.graphs[reach].replay()

    def _recorded(self, reach: int) -> Any:
        """A graph of one step. What the warm-up wrote is put back: its place is computed again."""
        kept = self.ids.clone(), self.place.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._step(reach)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.draws)
        with torch.cuda.graph(graph):
            self._step(reach)
        self.ids.copy_(kept[0])
        self.place.copy_(kept[1])
        return graph

    def _step(self, reach: int) -> None:
        """Reads the token at `place` and writes the one after it, unless the prompt has it; places below `reach`."""
        logits = self.logits(reach)
        noise = torch.empty_like(logits).exponential_(generator=self.draws)
        drawn = (logits.softmax(dim=-1) / noise).argmax(dim=-1)  # of exponential clocks the first rings: a sample
        self.place += 1
        index = self.place.expand(self.rows, 1)
        given = self.ids.gather(1, index)[:, 0]
        self.ids.scatter_(1, index, torch.where(self.place < self.known, given, drawn)[:, None])

    def logits(self, reach: int) -> Tensor:
        """Float32 logits [rows, V] of the token after `place`."""
        net, config = self.model.core, self.model.core.config
        x = self.model.embed(self.ids.gather(1, self.place.expand(self.rows, 1))[:, 0])
        rotary = Rotary(self.place, *net.model.frequencies.on(x.device), x.dtype)
        groups = config.num_attention_heads // config.num_key_value_heads
        seen = (torch.arange(reach, device=x.device) <= self.place)[None, None, None]
        for layer, (keys, values) in zip(net.model.layers, self.caches, strict=True):
            q, k, v = layer.self_attn.heads(layer.input_layernorm(x))  # [rows, heads, D]
            keys.index_copy_(2, self.place, rotary.turn(k)[:, :, None])
            values.index_copy_(2, self.place, v[:, :, None])
            # The queries of a group stand in the place of a sequence: each key is read once.
            q = rotary.turn(q).unflatten(1, (-1, groups))
            mixed = F.scaled_dot_product_attention(q, keys[:, :, :reach], values[:, :, :reach], attn_mask=seen)
            x = x + layer.self_attn.o_proj(mixed.flatten(1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.model.head(net.model.norm(x))
