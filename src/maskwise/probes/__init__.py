"""The probes: what a model is asked, one file each, named as on the command line.

To add a probe, write its file and its line here. Nothing here imports torch, so that probes can be listed at once and a
report be drawn without it; what does lies in answers/.
"""

from maskwise.probes import (
    attention,
    attribution,
    block_offset,
    calibration,
    coherence,
    context_length,
    contrast,
    few_steps,
    filler,
    generation_length,
    hotpotqa,
    labelled_text,
    likelihood_masks,
    location,
    location_masks,
    marginals,
    mask_attribution,
    mask_count,
    mechanism,
    natural_text,
    nelbo,
    order,
    points,
    question_position,
    recall,
    shots_masks,
    total_correlation,
    unmasking,
)
from maskwise.probes.probe import Probe

# In the order in which they are asked, listed and shown.
PROBES: tuple[Probe, ...] = (
    location.PROBE,
    question_position.PROBE,
    recall.PROBE,
    mask_count.PROBE,
    block_offset.PROBE,
    filler.PROBE,
    context_length.PROBE,
    location_masks.PROBE,
    contrast.PROBE,
    calibration.PROBE,
    natural_text.PROBE,
    attribution.PROBE,
    mask_attribution.PROBE,
    attention.PROBE,
    mechanism.PROBE,
    unmasking.PROBE,
    few_steps.PROBE,
    shots_masks.PROBE,
    hotpotqa.PROBE,
    points.PROBE,
    labelled_text.PROBE,
    generation_length.PROBE,
    likelihood_masks.PROBE,
    nelbo.PROBE,
    marginals.PROBE,
    total_correlation.PROBE,
    order.PROBE,
    coherence.PROBE,
)
