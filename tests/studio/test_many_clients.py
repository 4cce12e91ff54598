"""Several sessions at once."""

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from helpers.studio_server import running_studio


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gradio") is None, reason="no Gradio here: pip install .[studio]")
def test_clients_at_once_are_all_answered(tmp_path):
    from gradio_client import Client

    with running_studio(tmp_path) as address:
        clients = [Client(address, verbose=False, analytics_enabled=False) for _ in range(6)]

        def ask(number: int) -> None:
            masks = 5 + 11 * number  # fewer are not counted
            asked = ("none", "", f"The number after {number} is", "", "animal-largest", 0, 1, 4, 50, masks)
            assert f"× {masks}" in clients[number % 6].predict("tiny-llada", *asked, api_name="/probe")

        with ThreadPoolExecutor(6) as pool:
            assert len(list(pool.map(ask, range(18)))) == 18
