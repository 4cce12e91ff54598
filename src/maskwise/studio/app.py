"""The Gradio page: a tab per subject."""

import gradio as gr

from maskwise.studio.decode_tab import decode_tab
from maskwise.studio.probe_tab import probe_tab
from maskwise.studio.shelf import Shelf


def build_app(shelf: Shelf) -> gr.Blocks:
    """Opens no model: the page is there at once, and its first answer follows."""
    with gr.Blocks(analytics_enabled=False, title="maskwise studio", fill_width=True) as app:
        gr.HTML('<h1 class="studio">maskwise studio</h1>', apply_default_css=False)
        with gr.Tab("Probe"):
            probe_tab(app, shelf)
        with gr.Tab("Decode"):
            decode_tab(shelf)
    return app
