"""Models that the studio offers: those named on the command line and the embedded ones, no others."""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from maskwise.models.checkpoints.locations import embedded_models, planted_in, refuse_unknown_model
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.model import Model
from maskwise.support.errors import UserError

MOST_OPEN = 4


class Shelf:
    """LRU cache of opened models."""

    def __init__(self, named: Sequence[str], dtype: str = "auto", device: str | None = None) -> None:
        self.names = list(dict.fromkeys([*named, *filter(_is_installed, embedded_models())]))
        self.dtype, self.device = dtype, device
        self._open: OrderedDict[str, Model] = OrderedDict()
        self._lock = Lock()

    def take(self, name: str) -> Model:
        if name not in self.names:
            raise UserError(f"no model {name!r} here: start the studio with it, as in maskwise studio {name}")
        with self._lock:
            if name not in self._open:
                while len(self._open) >= MOST_OPEN:
                    self._open.popitem(last=False)
                self._open[name] = open_model(name, dtype=self.dtype, device=self.device)
            self._open.move_to_end(name)
            return self._open[name]


def _is_installed(name: str) -> bool:
    """Whether an embedded model's weights are here: those of smol-diffusion come with a package of their own."""
    try:
        refuse_unknown_model(name)
    except UserError:
        return False
    return True


def label_of(name: str) -> str:
    """Display name; a planted fault is labelled."""
    return f"{name} (planted)" if planted_in(name) else name
