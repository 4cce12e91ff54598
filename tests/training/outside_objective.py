"""An objective outside the package: one file. It masks one random token, with a focal loss (Lin et al., arXiv
1708.02002): a token of probability p counts (1 - p)^gamma times."""

import torch
from torch import Tensor

from maskwise.diffusion import Call, MicroBatch, Noised, Noising, Objective, nelbo_call


def noise_one_token(ids: Tensor, places: Tensor | None, noising: Noising) -> Noised:
    places = torch.arange(len(ids)) if places is None else places
    row = places[torch.randint(len(places), (1,), generator=noising.generator)]
    return Noised(ids.index_fill(0, row, noising.mask_id), row, ids[row], torch.ones(1))


def focal_loss(batch: MicroBatch) -> Call:
    call = nelbo_call(batch.model, batch.examples, count=batch.count)
    targets = torch.cat([example.targets for example in batch.examples]).to(batch.model.device)
    weights = torch.cat([example.weights for example in batch.examples]).to(batch.model.device) / batch.count

    def loss(hidden: Tensor, head_weight: Tensor) -> Tensor:
        logits = (hidden @ head_weight.T).index_fill(1, torch.tensor([batch.model.mask_id]), -torch.inf)
        log_p = logits.log_softmax(1).gather(1, targets[:, None])[:, 0]
        return -(weights * (1 - log_p.exp()) ** batch.settings.parameters["gamma"] * log_p).sum()

    return Call(call.batch, call.index, loss)


FOCAL = Objective(
    name="focal",
    title="one token of each document, with a focal loss",
    noise=noise_one_token,
    loss=focal_loss,
    paper="Lin et al., Focal Loss for Dense Object Detection, arXiv 1708.02002",
    parameters={"gamma": 2.0},
)
