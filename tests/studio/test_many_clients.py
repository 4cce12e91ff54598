"""Many sessions at once; `python -m soak.studio` is the same with 20 clients for a minute."""

from importlib.util import find_spec

import pytest
from soak.studio import soak


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gradio") is None, reason="no Gradio here: pip install .[studio]")
def test_clients_at_once_are_all_answered(tmp_path):
    outcome = soak(clients=6, seconds=3, folder=tmp_path)
    assert outcome.failures == [] and outcome.answered >= outcome.clients
