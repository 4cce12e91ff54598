"""The ways to decode, on models whose weakness is known and against plain decoding, and what they give back."""

import numpy as np
import pytest
from msgspec import UNSET
from scipy import stats
from transformers import PretrainedConfig

from helpers.known import TASK_NAMES, distracted, known_model, known_path, shipped_tokenizer
from helpers.tiny import tiny_llada, tiny_sdar
from maskwise.decoding.generate import generate
from maskwise.experiments.mitigations import (
    MASKS,
    WAYS,
    BothEnds,
    Marked,
    PreparedQuestion,
    answer,
    biased_answers,
    first_tokens,
    way_for,
    with_both_ends,
)
from maskwise.scoring.changes import recovered_share
from maskwise.tasks.episodes import draw, mixed
from maskwise.tasks.prompts import encode_question
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

BY_NAME = {way.name: way for way in WAYS}


def small_llada(seed=0):
    tokenizer = shipped_tokenizer()
    return tiny_llada(
        seed, tokenizer=tokenizer, vocab=len(tokenizer), window=1200, mask_token_id=tokenizer.mask_token_id
    )


def tokens(model, prompts, options):
    return [one.token for one in first_tokens(model, prompts, options, MASKS)]


@pytest.mark.parametrize("way", WAYS, ids=lambda one: one.name)
def test_leaving_early_reads_what_the_whole_decoding_would_have_written(way):
    model = small_llada()
    prompts = [[5, 6, 7, 8], [9, 10, 11]]
    whole = generate(model, prompts, MASKS, **way.options)
    assert tokens(model, prompts, way.options) == [one.ids[0] for one in whole]
    assert whole[0].forwards == way.options["steps"]


def test_the_likelihood_is_that_of_the_right_answer_in_the_step_that_commits_it():
    """In one step that of a plain prediction; in several that of the canvas before the step."""
    model, prompts, right = small_llada(), [[5, 6, 7, 8], [9, 10, 11]], 12
    questions = [PreparedQuestion("t", point, tuple(prompt), right) for point, prompt in enumerate(prompts)]

    def plain(prompt, canvas):
        (logits,) = model.predict([[*prompt, *canvas]], [[len(prompt)]])
        return -logits[0].double().log_softmax(-1)[right].item()

    for masks in (2, MASKS):
        found = answer(model, questions, BY_NAME["baseline"], masks)
        assert [one.nll for one in found] == pytest.approx(
            [plain(prompt, [model.mask_id] * masks) for prompt in prompts], abs=1e-4
        )
    before = []  # the canvas that the committing step saw, from a decoding of one prompt alone
    steps = BY_NAME["40-step unmasking"]
    generate(model, prompts[:1], MASKS, on_step=lambda seen: before.append(list(seen.canvases[0][4:])), **steps.options)
    committed = next(step for step, canvas in enumerate(before) if canvas[0] != model.mask_id)
    seen = before[committed - 1] if committed else [model.mask_id] * MASKS
    assert answer(model, questions[:1], steps)[0].nll == pytest.approx(plain(prompts[0], seen), abs=1e-4)


def test_both_ends_are_paired_with_the_baseline():
    """Ten questions; 200 masks cost 2 nats, of which the adapter takes back 1.5, more or less by turns."""

    def answers(nll, right=6):
        return [Marked("t", point, point < right, None if nll is None else nll(point)) for point in range(10)]

    found = BothEnds(
        {None: answers(lambda point: 0.5, 9), 0: answers(lambda point: 0.6, 8)},
        {
            "baseline": answers(lambda point: 2.5, 4),
            "tuned": answers(lambda point: 1.0 + 0.1 * (-1) ** point, 7),
            "infinite": answers(None),
        },
    )
    tuned, infinite = (with_both_ends(name, found, number) for name, number in (("tuned", 0), ("infinite", None)))
    half = stats.t.ppf(0.975, 9) * np.std([0.1, -0.1] * 5, ddof=1) / np.sqrt(10)
    change = tuned.nll_difference
    assert (tuned.nll_two_masks, tuned.nll) == pytest.approx((0.6, 1.0))
    assert (change.difference, change.low, change.high) == pytest.approx((-1.5, -1.5 - half, -1.5 + half))
    assert (infinite.nll_two_masks, infinite.nll, infinite.nll_difference) == (pytest.approx(0.5), None, None)
    assert (tuned.two_masks.accuracy, tuned.accuracy, tuned.difference) == pytest.approx((0.8, 0.7, 0.3))
    assert tuned.low < 0.7 < tuned.high and tuned.difference_low < 0.3 < tuned.difference_high
    assert tuned.recovered.value == pytest.approx((7 - 4) / (9 - 4))
    assert tuned.recovered.ends == {"before": pytest.approx([0.9, 0.4]), "after": pytest.approx([0.8, 0.7])}
    same = with_both_ends("baseline", found, None)
    assert (same.way, same.difference, same.recovered) == ("baseline", 0, UNSET)
    assert same.difference_low == -same.difference_high < 0


def questions_for_known_models(points):
    tokenizer = shipped_tokenizer()
    found = []
    for task in (task for task in TASKS if task.name in TASK_NAMES):
        episode = draw(task, load_words(), 1, 1, points)
        for point, test in enumerate(episode.tests):
            encoded = encode_question(tokenizer, mixed(episode), test)
            found.append(PreparedQuestion(task.name, point, encoded.ids[: encoded.row], encoded.ids[encoded.row]))
    return found


def test_a_model_distracted_by_more_than_ten_masks_is_cured_by_a_canvas_that_never_shows_more():
    model = known_model(distracted)
    model.net.config = PretrainedConfig(eos_token_id=None)
    model.net.get_output_embeddings = lambda: model.net.embedding
    questions = questions_for_known_models(6)

    def share(name):
        records = answer(model, questions, BY_NAME[name])
        return sum(record.correct for record in records) / len(records)

    guessing = sum(question.answer_id == shipped_tokenizer().convert_tokens_to_ids("A") for question in questions) / 12
    assert share("baseline") == guessing < 1
    assert share("small blocks") == share("window") == guessing  # 200 and 30 masks are shown
    assert share("growing canvas") == 1  # ten are


def test_biased_keys_weigh_as_much_as_one_mask():
    """A model that follows the share of masks it sees: misled by 200 masks, not where 198 of them count as one."""
    model = known_path(lambda direct, context: direct)
    questions = questions_for_known_models(6)
    assert all(record.correct for record in biased_answers(model, questions))
    (two, many) = (
        model.predict([[*q.prompt, *[model.mask_id] * k]], [[len(q.prompt)]])[0].argmax().item()
        for q in questions[:1]
        for k in (2, MASKS)
    )
    assert two == questions[0].answer_id != many


def test_a_wrapped_model_has_no_biased_keys_to_offer():
    wrapped = known_model(distracted)
    assert way_for(BY_NAME["biased mask keys"], wrapped) is None
    assert way_for(BY_NAME["baseline"], wrapped) == BY_NAME["baseline"]
    assert way_for(BY_NAME["biased mask keys"], small_llada()) == BY_NAME["biased mask keys"]


def test_the_share_recovered_counts_the_end_with_many_masks_alone():
    """Before: 9 of 10 right with 2 masks, 4 with 200. After: 3 and 8, so 4 of 5 are recovered, whatever 2 masks do."""
    table = np.array([[n < 9, n < 4, n < 3, n < 8] for n in range(10)], dtype=float)
    score = recovered_share({"task": table})
    assert score.value == pytest.approx((8 - 4) / (9 - 4))
    assert score.ends == {"before": pytest.approx([0.9, 0.4]), "after": pytest.approx([0.3, 0.8])}
    same = recovered_share({"task": table[:, [0, 0, 2, 3]]})
    assert same.value is None and same.why == "too little degradation to reduce"


def small_sdar(block):
    tokenizer = shipped_tokenizer()
    own = {"vocab": len(tokenizer), "window": 1200, "mask_token_id": tokenizer.mask_token_id}
    return tiny_sdar(tokenizer=tokenizer, block_size=block, **own)


@pytest.mark.parametrize("way", WAYS, ids=lambda one: one.name)
@pytest.mark.parametrize("block", [4, 32])
def test_on_blocks_small_blocks_divide_the_models_own_and_what_changes_nothing_is_left_out(way, block):
    model = small_sdar(block)
    chosen = way_for(way, model)
    if way.biased or way.options.get("canvas") == "window":
        assert chosen is None
        return
    assert chosen.options.get("block") in (None, {4: 2, 32: 8}[block])
    if block == 4:
        made = generate(model, [[5] * 6], MASKS, **chosen.options)[0]
        assert tokens(model, [[5] * 6], chosen.options) == [made.ids[0]]
