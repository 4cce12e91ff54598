"""Threads that use one model take turns."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor, wait

import torch

import maskwise as mw
from helpers.tiny import tiny_ar, tiny_llada
from maskwise.models.interface import ModelLock

PROMPTS = [[3, 5, 7, 9], [8, 2, 6], [1, 1, 4, 4, 2]]


def test_a_decoding_is_not_disturbed_by_another_thread():
    """Its weights lie otherwise while it goes on; whoever asks waits until they are back."""
    model, waiting = tiny_llada(), []
    alone = model.predict([[1, 2, 3]], [[1]])[0], mw.generate(model, [[3, 5, 7, 9]], 20)[0].ids
    with ThreadPoolExecutor(1) as other:

        def on_step(snapshot):
            if not waiting:
                waiting.append(other.submit(model.predict, [[1, 2, 3]], [[1]]))
                assert not wait(waiting, timeout=0.2).done
            assert torch.equal(model.predict([[1, 2, 3]], [[1]])[0], alone[0])  # whose turn it is may ask

        assert mw.generate(model, [[3, 5, 7, 9]], 20, on_step=on_step)[0].ids == alone[1]
        assert torch.equal(waiting[0].result(timeout=30)[0], alone[0])


def test_threads_get_what_they_get_alone():
    for model in (tiny_llada(), tiny_ar()):
        defaults = getattr(model.core, "generation_config", None)

        def answer(prompt, model=model):
            return mw.generate(model, [prompt], 6)[0].ids

        alone = [answer(prompt) for prompt in PROMPTS]
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(answer, PROMPTS * 5)) == alone * 5
        assert getattr(model.core, "generation_config", None) is defaults


def test_a_copy_takes_its_own_turns():
    model = tiny_llada()
    with model.lock, ThreadPoolExecutor(1) as other:
        twin = copy.deepcopy(model)
        assert torch.equal(other.submit(twin.head_weight.sum).result(), model.head_weight.sum())
        assert other.submit(twin.predict, [[1, 2]], [[1]]).result(timeout=30)[0].shape[0] == 1
    assert isinstance(pickle.loads(pickle.dumps(ModelLock())), ModelLock)
