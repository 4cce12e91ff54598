"""The moving picture of the README: one canvas filled by one token per forward pass, and by six.

1. A prompt lists six pairs, `Key: otter\\nValue:[ copper].`, and repeats the six keys with their values masked.
   tiny-llada was trained on documents of this kind and on these words. Every word has two tokens: twelve masks.
2. Each prompt is decoded greedily by `low-confidence`, in twelve passes and in two.
3. The table counts right values over all prompts. The picture shows the first prompt that has both strategies' mean
   numbers of right values, rounded: neither the best nor the worst case.
4. The SVG is animated by CSS, so that it plays inside an `<img>`. Without animation it shows the last frame.

CPU, 3 minutes:    python recipes/studies/moving_picture.py --out docs/figures/filling.svg
"""

import argparse
import random
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import NamedTuple

from scipy import stats

import maskwise as mw
from maskwise.models.model import Model
from maskwise.support.files import replace_file
from maskwise.tasks.words import load_words, split_words

KINDS = ("animal", "object", "fruit", "colour", "sport")
PAIRS = 6
TOKENS = 2 * PAIRS
STRATEGIES = {"one token per pass": TOKENS, "six tokens per pass": 2}  # title: forward passes

START, STEP, HOLD = 1.2, 0.6, 4.0  # seconds: the empty canvas, a pass, the last frame
WIDTH, TOP, ROW = 640, 84, 40
COLUMNS = (222, 436)  # left edge of each canvas
CELLS, GAP = (58, 104), 4  # widths: first tokens of words are short
WIDEST = 9  # letters of the second token at the full size


class Lookup(NamedTuple):
    """A prompt, the keys in the order of the canvas, and the value of each."""

    prompt: str
    keys: list[str]
    values: list[str]


class Filled(NamedTuple):
    """What one strategy wrote: two tokens per value, and the pass that committed each."""

    tokens: list[str]
    order: list[int]
    passes: int

    def words(self) -> list[str]:
        return ["".join(self.tokens[i : i + 2]).strip() for i in range(0, len(self.tokens), 2)]


def two_token_words(model: Model) -> list[str]:
    """The words of the training documents that the tokenizer cuts into two tokens."""
    shown, _ = split_words(load_words())
    words = {word for kind in KINDS for word in shown[kind]}
    return sorted(word for word in words if len(token_ids(model, word)) == 2)


def token_ids(model: Model, word: str) -> list[int]:
    return list(model.tokenizer.encode(f" {word}", add_special_tokens=False))


def draw_lookup(model: Model, words: list[str], draws: random.Random) -> Lookup:
    """No two words begin with the same token, as in training."""
    chosen: list[str] = []
    while len({token_ids(model, word)[0] for word in chosen}) < 2 * PAIRS:
        chosen = draws.sample(words, 2 * PAIRS)
    value = dict(zip(chosen[:PAIRS], chosen[PAIRS:], strict=True))
    keys = draws.sample(list(value), PAIRS)
    mask = model.tokenizer.decode([model.mask_id])
    lines = [f"Key: {key}\nValue:[ {value[key]}].\n\n" for key in value]
    lines += [f"Key: {key}\nValue:[{mask * 2}].\n\n" for key in keys]
    return Lookup("".join(lines), keys, [value[key] for key in keys])


def fill(model: Model, lookups: list[Lookup], passes: int) -> list[Filled]:
    made = mw.generate(model, [one.prompt for one in lookups], 0, chat=False, steps=passes)
    return [Filled([model.tokenizer.decode([i]) for i in one.ids], one.order, one.forwards) for one in made]


def right(lookup: Lookup, filled: Filled) -> int:
    return sum(word == value for word, value in zip(filled.words(), lookup.values, strict=True))


# The picture


def style(passes: int) -> str:
    """Classes m1, m2, ... are shown before that pass, s1, ... from it on, d1, ... during it."""
    seconds = START + passes * STEP + HOLD
    share = [100 * (START + (number - 1) * STEP) / seconds for number in range(passes + 2)]
    lines = [
        "svg{--back:#fff;--edge:#d0d7de;--ink:#1f2328;--dim:#59636e;--mask:#cfd6de;--cell:#eef1f4;--new:#ffe08a;"
        "--good:#1a7f37;--bad:#b3141f;font-family:ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif}",
        "@media(prefers-color-scheme:dark){svg{--back:#0d1117;--edge:#3d444d;--ink:#f0f6fc;--dim:#9198a1;"
        "--mask:#3d444d;--cell:#1c2229;--new:#4d3a00;--good:#3fb950;--bad:#ff9b94}}",
        ".card{fill:var(--back);stroke:var(--edge)}text{fill:var(--ink);font-size:17px}.dim{fill:var(--dim)}.head{font-weight:600}.cell{fill:var(--cell)}"
        ".mask{fill:var(--mask)}.new{fill:var(--new)}.good{fill:var(--good)}.bad{fill:var(--bad)}.mid{text-anchor:middle}",
        ".m,.d{opacity:0}",
        f"@media(prefers-reduced-motion:no-preference){{.m,.s,.d{{animation:{seconds:.1f}s step-end infinite}}",
    ]
    for number in range(passes + 1):
        begin, end = (f"{at:.2f}%" for at in share[number : number + 2])
        lines += [f".{kind}{number}{{animation-name:{kind}{number}}}" for kind in "msd"]
        lines.append(f"@keyframes m{number}{{0%{{opacity:1}}{begin},to{{opacity:0}}}}")
        lines.append(f"@keyframes s{number}{{0%{{opacity:0}}{begin},to{{opacity:1}}}}")
        before = f"{begin}{{opacity:1}}" if number else "0%{opacity:1}"
        after = f"{end},to{{opacity:0}}"
        lines.append(f"@keyframes d{number}{{{'0%{opacity:0}' if number else ''}{before}{after}}}")
    return "".join([*lines, "}"])


def canvas(left: int, title: str, lookup: Lookup, filled: Filled) -> list[str]:
    """One strategy: its counter, a row of two cells per value, a mark where the value is complete."""
    wrong = [word != value for word, value in zip(filled.words(), lookup.values, strict=True)]
    summary = f"{len(wrong) - sum(wrong)} of {len(wrong)} right"
    parts = [f'<text class="head" x="{left}" y="34">{title}</text>']
    for number in range(filled.passes):
        passes = "1 pass" if number == 1 else f"{number} passes"
        parts.append(f'<text class="dim d d{number}" x="{left}" y="58">{passes}</text>')
    parts.append(f'<text class="s s{filled.passes}" x="{left}" y="58">{filled.passes} passes: {summary}</text>')
    for place, (token, step) in enumerate(zip(filled.tokens, filled.order, strict=True)):
        row, half = divmod(place, 2)
        x, y, at = left + half * (CELLS[0] + GAP), TOP + row * ROW, step + 1
        box = f'x="{x}" y="{y}" width="{CELLS[half]}" height="{ROW - 8}" rx="5"'
        parts.append(f'<rect class="cell" {box}/><rect class="new d d{at}" {box}/>')
        text = escape(token.strip())
        size = f' style="font-size:{17 * WIDEST // len(text)}px"' if len(text) > WIDEST else ""
        kind = f"mid {'bad ' * wrong[row]}s s{at}"
        parts.append(f'<text class="{kind}" x="{x + CELLS[half] // 2}" y="{y + 22}"{size}>{text}</text>')
        parts.append(f'<rect class="mask m m{at}" {box}/>')
    for row, is_wrong in enumerate(wrong):
        at = 1 + max(filled.order[2 * row : 2 * row + 2])
        kind, sign = ("bad", "✗") if is_wrong else ("good", "✓")
        x, y = left + sum(CELLS) + GAP + 6, TOP + row * ROW + 22
        parts.append(f'<text class="{kind} s s{at}" x="{x}" y="{y}">{sign}</text>')
    return parts


def draw(lookup: Lookup, filled: dict[str, Filled]) -> str:
    height = TOP + len(lookup.keys) * ROW + 8
    about = "; ".join(
        f"{title}: {right(lookup, one)} of {len(lookup.keys)} values right" for title, one in filled.items()
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>tiny-llada fills twelve masks. {about}</title>",
        f"<style>{style(max(one.passes for one in filled.values()))}</style>",
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="9"/>',
        '<text class="head" x="16" y="34">the prompt says</text>',
    ]
    for row, (key, value) in enumerate(zip(lookup.keys, lookup.values, strict=True)):
        parts.append(f'<text class="dim" x="16" y="{TOP + row * ROW + 22}">{key}: {value}</text>')
    for left, (title, one) in zip(COLUMNS, filled.items(), strict=True):
        parts += canvas(left, title, lookup, one)
    return "\n".join([*parts, "</svg>\n"])


def main(given: list[str] | None = None, say: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the SVG")
    parser.add_argument("--prompts", type=int, default=48)
    options = parser.parse_args(given)
    model = mw.open("tiny-llada", device="cpu")
    words, draws = two_token_words(model), random.Random(0)
    lookups = [draw_lookup(model, words, draws) for _ in range(options.prompts)]
    filled = {title: fill(model, lookups, passes) for title, passes in STRATEGIES.items()}
    counts = {title: list(map(right, lookups, found)) for title, found in filled.items()}
    for title, found in counts.items():
        say(f"| {title} | {STRATEGIES[title]} | {sum(found)} of {PAIRS * len(found)} |")
    fewer = stats.ttest_rel(*(([100 * count / PAIRS for count in found]) for found in counts.values()))
    low, high = fewer.confidence_interval()
    say(f"difference per prompt: {low:.1f} to {high:.1f} points (95 %, Student's t over {options.prompts} prompts)")
    typical = tuple(round(sum(found) / len(found)) for found in counts.values())
    shown = list(zip(*counts.values(), strict=True)).index(typical)
    say(f"shown: prompt {shown + 1}, {lookups[shown].keys}, {[found[shown].words() for found in filled.values()]}")
    replace_file(options.out, draw(lookups[shown], {title: found[shown] for title, found in filled.items()}))


if __name__ == "__main__":
    main()
