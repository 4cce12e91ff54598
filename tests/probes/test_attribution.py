"""Attribution against a closed form and a plain reference; attention shares against the weights themselves."""

from itertools import pairwise

import pandas as pd
import pytest
import torch
from torch import nn

from helpers.known import shipped_tokenizer
from helpers.tiny import tiny_ar, tiny_dream, tiny_llada
from maskwise.models.batch import Batch
from maskwise.models.model import Model
from maskwise.probes.answers.gradients import attribute, embedding_gradients, mask_groups, watch
from maskwise.probes.answers.plain import ask
from maskwise.probes.library.attribution import by_tokens, drawn, metrics, prompt_of
from maskwise.probes.setup import Asker
from maskwise.tasks.episodes import draw
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

MASK = 9
MAKERS = [tiny_llada, tiny_dream, tiny_ar]


def linear_model(weights: list[float], shift: bool = False) -> Model:
    """h_i = sum over places j of weights[|i - j|] * e_j, logits = h: the gradient of any logit is known by hand."""

    def body(net, batch, layout):
        x = net.embedding(batch.ids) if batch.embeds is None else batch.embeds
        bounds = batch.offsets.tolist()
        parts = []
        for start, end in pairwise(bounds):
            place = torch.arange(end - start)
            mixing = torch.tensor(weights)[(place[:, None] - place[None, :]).abs()]
            parts.append(mixing @ x[start:end])
        return torch.cat(parts)

    net = nn.Module()
    net.embedding = nn.Embedding(10, 10)
    net.get_input_embeddings = lambda: net.embedding
    torch.nn.init.eye_(net.embedding.weight)
    return Model(net, body, window=64, shift=shift, mask_id=MASK, head=lambda rows: rows.clone())


def test_on_a_linear_model_the_attribution_is_the_mixing_weight():
    """The gradient of logit v of row i is weights[|i - j|] in coordinate v of e_j: its norm is that weight."""
    weights = [5.0, 4.0, 3.0, 2.0, 1.0, 0.5, 0.25, 0.125]
    prompts = [
        Prompt((1, 2, 3, MASK, 4, 5), 3, 1, 1, parts=(0, 0, 1, 1, 1, 2)),
        Prompt((1, 2, MASK, MASK, MASK), 2, 1, 3),
    ]
    first, second = attribute(linear_model(weights), prompts, near=1)
    # Distances 3 2 1 | 1 2 from the answer, whose own weight (5) is left out: the largest that remains is 4.
    assert first.evidence["examples"] == pytest.approx([(2 + 3) / 2 / 4, 3 / 4])
    assert first.evidence["question"] == pytest.approx((4 + 4) / 2 / 4)
    # Context at distances 2, 1; masks at 1, 2; the nearest context token is at distance 1.
    assert second.evidence == pytest.approx({"masks": (4 + 3) / 2 / 4, "near": 1.0, "all": (3 + 4) / 2 / 4})
    # A shifted model reads from the place before: distances are from there, and both places are left out.
    shifted = attribute(linear_model(weights, shift=True), prompts[1:], near=1)[0]
    assert shifted.evidence == pytest.approx({"masks": (3 + 2) / 2 / 4, "near": 1.0, "all": 1.0})


def test_a_scaled_token_is_seen_and_others_are_not():
    """Row 4 sees only what weights say: a zero weight is a zero attribution."""
    answer = attribute(linear_model([1.0, 0, 0, 7.0, 0, 0]), [Prompt((1, 2, 3, 4, MASK), 4, 1, 1)], near=2)[0]
    assert answer.evidence == {"masks": 0.0, "near": 0.0, "all": pytest.approx(1 / 4)}


def test_masks_that_move_the_answer_more_than_the_nearest_text():
    asked = {"task": ["a"] * 10 + ["b"] * 10, "point": [*range(10)] * 2, "of": "masks", "extra masks": 50}
    table = pd.DataFrame(asked | {"near": 0.05, "all": 0.01}).assign(masks=lambda one: 0.2 + 0.01 * one.point)
    one, *norms = metrics(table, {})
    assert one.value == pytest.approx(0.195) and one.verdict == "holds"
    assert [norm.value for norm in norms] == pytest.approx([0.245, 0.05, 0.01])
    drawn_norms = by_tokens(table, {})
    assert drawn_norms.value.tolist() == pytest.approx([0.245, 0.05, 0.01]) and set(drawn_norms.n) == {20}


@pytest.mark.parametrize("make", MAKERS)
def test_batched_gradients_equal_one_prompt_at_a_time_and_touch_no_weight(make):
    model = make(vocab=64)
    draws = torch.Generator().manual_seed(0)
    prompts = []
    for length in (9, 14, 5):
        ids = torch.randint(1, 60, (length,), generator=draws).tolist()
        row = length if model.causal else 3
        if not model.causal:
            ids[3] = model.mask_id
        prompts.append(Prompt(tuple(ids), row, 7, 1))
    wanted = [weight.requires_grad for weight in model.parameters()]
    answers, norms = embedding_gradients(model, prompts)
    assert all(weight.grad is None for weight in model.parameters())
    assert wanted == [weight.requires_grad for weight in model.parameters()]
    for answer, prompt, found in zip(answers, prompts, norms, strict=True):
        embeds = model.embed(torch.tensor(prompt.ids)).detach().requires_grad_()
        batch = Batch.pack([prompt.ids])
        alone = Batch(None, embeds, batch.offsets, batch.starts, batch.longest)
        read = prompt.row - 1 if model.shift else prompt.row
        logits = model.head(model.hidden(alone))[read]
        assert answer.token == int(logits.argmax())
        logits[answer.token].backward()
        norm = embeds.grad.norm(dim=1)
        own = [place for place in {read, prompt.row} if place < len(norm)]
        norm[own] = 0
        torch.testing.assert_close(found, norm / norm.max(), atol=1e-5, rtol=1e-4)
        plain = ask(model, [prompt])[0]
        assert (plain.token, plain.nll) == (answer.token, pytest.approx(answer.nll, abs=1e-4))
        model.zero_grad()


def asker_and_episode(mask_id: int | None):
    tokenizer = shipped_tokenizer()
    dot = tokenizer.convert_tokens_to_ids(".")
    return Asker(tokenizer, mask_id, dot), draw(TASKS[0], load_words(), 2, 4, 3)


def test_points_are_questions_then_orders_and_parts_are_examples():
    asker, episode = asker_and_episode(mask_id=1)
    count = len(episode.tests)
    pairs = [drawn(episode, 3, point) for point in range(3 * count)]
    assert [test for _, test in pairs] == list(episode.tests) * 3  # every question before one recurs
    assert len({tuple(examples) for examples, _ in pairs}) == 3 and all(len(examples) == 6 for examples, _ in pairs)
    assert len({(tuple(examples), test) for examples, test in pairs}) == 3 * count  # each question in every order
    tokenizer = asker.tokenizer
    examples, test = drawn(episode, 3, 4)
    for place, before in {"right": 6, "middle": 3, "left": 0}.items():
        prompt = prompt_of(asker, episode, 3, 4, {"of": "examples", "question": place})
        questions = [*examples[:before], test, *examples[before:]]
        for number, question in enumerate(questions):
            tokens = [token for token, part in zip(prompt.ids, prompt.parts, strict=True) if part == number]
            text = tokenizer.decode(tokens)
            assert question.asked in text and text.count("Options") == 1
        assert prompt.parts[prompt.row] == before and prompt.ids[prompt.row] == 1
    causal, _ = asker_and_episode(mask_id=None)
    prompt = prompt_of(causal, episode, 3, 4, {"of": "examples", "question": "right"})
    assert len(prompt.parts) == len(prompt.ids) == prompt.row


def test_groups_of_a_prompt_with_masks():
    asker, episode = asker_and_episode(mask_id=1)
    prompt = prompt_of(asker, episode, 3, 0, {"of": "masks", "extra masks": 5})
    ids, row = prompt.ids, prompt.row
    assert ids[row:] == (1,) * 6 and prompt.masks == 6
    groups = mask_groups(tiny_llada(mask_token_id=1), prompt, near=4)
    assert groups[row:] == [0, 1, 1, 1, 1, 1] and groups[row - 5 : row] == [3, 2, 2, 2, 2]
    shifted = mask_groups(tiny_dream(mask_token_id=1), prompt, near=4)
    assert shifted[row - 6 : row + 2] == [3, 2, 2, 2, 2, 0, 0, 1]
    causal, _ = asker_and_episode(mask_id=None)
    prompt = prompt_of(causal, episode, 3, 0, {"of": "masks", "extra masks": 0})
    assert prompt.masks == 0
    assert mask_groups(tiny_ar(), prompt, near=2)[-4:] == [3, 2, 2, 0]


@pytest.mark.parametrize("make", MAKERS)
def test_attention_shares_are_the_weights_added_up(make):
    model = make(vocab=64, layers=3)
    mask = model.mask_id
    ids = (3, 4, 5, 6, 7) if model.causal else (3, 4, 5, 6, 7, mask, mask, mask)
    prompts = [Prompt(ids, 5, 7, 3), Prompt((8, *ids), 6, 7, 3)]
    answers = watch(model, prompts, near=2)
    weights = model.attention(Batch.pack([prompts[1].ids]), [[6]])
    own = {5} if model.causal else {5, 6} if model.shift else {6}
    for layer, seen in enumerate(weights):
        line = seen[0].mean(0)
        near = [n for n in range(5, -1, -1) if n not in own][:2]
        expected = {
            "answer": line[list(own)].sum(),
            "masks": line[7:].sum(),
            "near": line[near].sum(),
            "far": line[: min(near)].sum(),
        }
        found = {name: values[layer] for name, values in answers[1].evidence.items()}
        assert found == pytest.approx({name: float(v) for name, v in expected.items()}, abs=2e-5)
        assert sum(found.values()) == pytest.approx(1, abs=1e-4)
    assert {len(values) for values in answers[0].evidence.values()} == {3}
