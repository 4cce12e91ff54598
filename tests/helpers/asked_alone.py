"""A small diagnosis in a process of its own, also by torchrun: python asked_alone.py OUT SETTINGS [SECONDS A BATCH]"""

import sys
import time
from pathlib import Path

from helpers.known import DECODED, SMALL, shipped_tokenizer
from helpers.tiny import tiny_llada
from maskwise.runs.diagnose import diagnose


def small_model():
    return tiny_llada(tokenizer=shipped_tokenizer(), vocab=2048, window=1024, mask_token_id=1)


class Slow:
    """Waits before every pass of a model, so that the process can be killed between two."""

    def __init__(self, body, seconds):
        self.body, self.seconds = body, seconds

    def __call__(self, net, batch, layout):
        time.sleep(self.seconds)
        return self.body(net, batch, layout)


if __name__ == "__main__":
    model = small_model()
    settings = {"SMALL": SMALL, "DECODED": DECODED}[sys.argv[2]]
    if len(sys.argv) > 3:
        model._body = Slow(model._body, float(sys.argv[3]))
    diagnose(model, settings, Path(sys.argv[1]), batch_tokens=1000)
