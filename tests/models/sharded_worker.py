"""One of the processes that share a model: python sharded_worker.py answers|diagnose OUT SIZE SECONDS FOLDER..."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

import maskwise as mw
from helpers.asked_alone import Slow
from helpers.known import SMALL
from maskwise.models.batch import Batch
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.runs.diagnose import diagnose
from maskwise.support.errors import UserError

ASKED = replace(SMALL, probes=("mask-count", "few-steps"), tasks=SMALL.tasks[:1], points=4)


def answers(folder, size=1):
    """Everything that must not depend on the number of processes: tensors, and what is compared as it is."""
    model = open_model(folder, device="cpu", tensor_parallel=size)
    mask = model.mask_id
    logits = torch.cat(model.predict([[5, 6, 7, mask, 9], [3, mask, mask]], [[3], [1, 2]]))
    batch = Batch.pack([[5, 6, mask, 9]], "cpu")
    embeds = model.embed(batch.ids).detach().requires_grad_()
    rows = model.flat_rows(batch, [[2]])
    hidden, seen = model.hidden_and_attention(replace(batch, embeds=embeds), rows)
    model.head(hidden[rows])[0, 7].backward()
    likelihood = torch.tensor(mw.score(model, [{"prompt": "ab", "answer": "cd"}], method="exact")[0].log_likelihood)
    written = [
        [one.ids for one in model.generate([[5, 6, 7, 8], [9, 8]], max_new_tokens=8, cache=cache)]
        for cache in ("none", "dual")
    ]
    tensors = [logits, embeds.grad, likelihood, *seen]
    return tensors, (written, fingerprint(model), model.parameter_count, model.shards == size)


if __name__ == "__main__":
    what, out, size, seconds, *folders = sys.argv[1:]
    if what == "answers":
        found = {Path(folder).name: answers(folder, int(size)) for folder in folders}
        if os.environ["RANK"] == "0":
            torch.save(found, out)
        sys.exit()
    model = open_model(folders[0], device="cpu", tensor_parallel=int(size))
    model._body = Slow(model._body, float(seconds))
    try:
        diagnose(model, ASKED, Path(out), batch_tokens=400)
    except UserError as problem:
        sys.exit(str(problem))
