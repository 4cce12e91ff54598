"""The order of training examples. An item is a pure function of its index and the seed.

A run is one pass over `steps * accumulation * world * batch` items. Which example an item holds and its noise depend on
(seed, example, micro-batch) alone, so that a run that is killed and resumed sees the same items, and several processes
together see the items of one.
"""

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import torch
from torch.utils.data import Dataset

from maskwise.support.randomness import torch_generator
from maskwise.training.training_settings import SharedSettings


class Epochs(Dataset[dict[str, Any]], ABC):
    """index -> item(example, micro): the number of the example and that of the micro-batch.

    Items are in their final order: each epoch is a shuffle of its own. `world` is the number of processes that share
    the micro-batches.
    """

    def __init__(self, count: int, settings: SharedSettings, world: int) -> None:
        self.count, self.run = count, settings
        self.items_per_micro_batch = settings.batch * world
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def __len__(self) -> int:
        return self.run.steps * self.run.accumulation * self.items_per_micro_batch

    def __getitem__(self, index: int) -> dict[str, Any]:
        epoch, place = divmod(index, self.count)
        return self.item(self._order(epoch)[place], index // self.items_per_micro_batch)

    @abstractmethod
    def item(self, number: int, micro: int) -> dict[str, Any]:
        """The collator's input for one example in one micro-batch."""

    def _shuffled(self, epoch: int) -> list[int]:
        return torch.randperm(self.count, generator=torch_generator("order", self.run.seed, epoch)).tolist()
