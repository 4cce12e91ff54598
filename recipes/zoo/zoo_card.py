"""Writing a trained model: weights in the class's own format, tokenizer, facts with checksum, and a card of them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

import maskwise as mw
from exams import table_by_masks
from maskwise.support.files import replace_file

WHAT = {
    "tiny-qwen": "An autoregressive model of the Qwen2 class, trained to predict the next token.",
    "tiny-dream": "A masked diffusion model of the Dream class (bidirectional; the logit of position i is read from "
    "hidden state i-1), started from tiny-qwen's weights by `maskwise convert`.",
    "tiny-llada": "A masked diffusion model of the LLaDA class (bidirectional, no shift), trained from random weights.",
}
OBJECTIVE = {
    "next": "Objective: the mean cross-entropy of the next token plus that of the answers.",
    "plain": "Objective: LLaDA's own (arXiv 2502.09992): every token masked with a row's probability t, uniform in\n"
    "0..1, and the masked tokens' cross-entropy weighted 1/t{cut}.",
    "focused": "Objective: the mean cross-entropy of masked tokens plus that of masked answers, which half or more of\n"
    "the rows mask most.",
}
CARD = """---
license: apache-2.0
library_name: maskwise
---
# {model}

{what}
{millions:.2f} M parameters: width {width}, {layers} layers of {heads} heads, tied embeddings, context length {window},
byte-level BPE of {vocab} entries. It comes with maskwise to be measured, not to be used for anything else.

## Training
`recipes/zoo/train_tiny.py {model}`: {tokens:.0f} M tokens, {steps} steps, {seconds:.0f} s on {device}.
{objective}
Last logged loss {loss}.
Documents (`recipes/zoo/corpus.py`): 40 % few-shot questions with hidden rules, 15 % words and their kinds, 15 % recall
of words, 10 % copying, pairs, lookup and sorting, 20 % English prose (public-domain books and speeches, OpenStax
textbooks under CC BY 4.0).

## What it can do
Accuracy on the 16 few-shot tasks of `maskwise diagnose`, {points} questions each, 10 relevant examples next to the
question after 40 distractors, {masks}: **{accuracy:.1%}** (chance is 33.3 %). No training document has these rules'
target and pool, nor a word of the test questions in a few-shot question; with words that were there: {seen:.1%}.
The kinds of the test words are known from other documents, which name them (`Find animal: (A) brave, (B) otter, ...`).

| task | accuracy |
|---|---|
{table}

Near and far, and recall, by the number of masks (`recipes/zoo/exams.py`; words that no few-shot or recall document has;
accuracy in %, in parentheses -log P of the right answer in nats). One: the 12 tasks that need context, one relevant
example right before the question or before 40 distractors, drawn anew for each question. Mixed: the paper's 10 and 40,
all 16 tasks. Recall: 30 or 60 pairs used once, one key asked again: one of the last five but not the last, of the
middle, or the first.

{exams}

## What it cannot do
It knows a thousand words' kinds and little else: no facts, no instructions, prose only in fragments, English only.

SHA-256 of model.safetensors: `{checksum}`
"""


def save_model(net: PreTrainedModel, tokenizer: Any, facts: dict[str, Any], folder: Path) -> None:
    """Config, bf16 weights, tokenizer, training.json, README.md; then the folder is opened again and compared."""
    folder.mkdir(parents=True, exist_ok=True)
    final = as_qwen(net) if facts["model"] == "tiny-qwen" else net
    final.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    checksum = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    facts = facts | {"sha256": checksum}
    replace_file(folder / "training.json", [json.dumps(facts, indent=1)])
    opened = mw.open(folder, dtype="float32", device="cpu")
    replace_file(folder / "README.md", [card(facts, opened)])


def as_qwen(net: PreTrainedModel) -> Qwen2ForCausalLM:
    """The same weights in the Qwen2 class: Dream's names and arithmetic are Qwen2's."""
    dream = net.config
    config = Qwen2Config(
        vocab_size=dream.vocab_size,
        hidden_size=dream.hidden_size,
        intermediate_size=dream.intermediate_size,
        num_hidden_layers=dream.num_hidden_layers,
        num_attention_heads=dream.num_attention_heads,
        num_key_value_heads=dream.num_key_value_heads,
        max_position_embeddings=dream.max_position_embeddings,
        rms_norm_eps=dream.rms_norm_eps,
        rope_parameters=dict(dream.rope_parameters),
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=dream.eos_token_id,
        pad_token_id=dream.pad_token_id,
    )
    qwen = Qwen2ForCausalLM(config).to(net.dtype)
    qwen.load_state_dict(net.state_dict())
    return qwen


def card(facts: dict[str, Any], model: Any) -> str:
    final = facts["final"]
    return CARD.format(
        model=facts["model"],
        what=WHAT[facts["model"]],
        millions=facts["parameters"] / 1e6,
        **{name: facts["size"][name] for name in ("width", "layers", "heads")},
        window=model.window,
        vocab=model.vocab,
        tokens=facts["tokens"] / 1e6,
        steps=facts["steps"],
        seconds=facts["seconds"],
        device=facts["device"],
        objective=OBJECTIVE[facts["objective"]].format(
            cut=f";\n{facts['cut']:.0%} of the batches cut into rows of a random length" if facts["cut"] else ""
        ),
        exams=table_by_masks(final["exams"]),
        loss=facts["curve"][-1]["loss"] if facts["curve"] else "none",
        points=final["points"],
        masks="greedy next token" if model.causal else "two masks",
        accuracy=final["accuracy"],
        seen=final["accuracy_with_training_words"],
        table="\n".join(f"| {task} | {share:.1%} |" for task, share in final["by_task"].items()),
        checksum=facts["sha256"],
    )
