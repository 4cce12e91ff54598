"""A model family outside the package: its classes and one `Family`, all that adding one takes."""

from maskwise.models.families import Family
from maskwise.models.families.layers import register
from maskwise.models.families.llada import LLaDAConfig, LLaDAModelLM


class MirrorConfig(LLaDAConfig):
    model_type = "mirror"


class MirrorModelLM(LLaDAModelLM):
    config_class = MirrorConfig


register(MirrorConfig, MirrorModelLM)

MIRROR = Family(
    name="mirror",
    title="masked diffusion (Mirror)",
    architecture="MirrorModelLM",
    net_class=f"{__name__}:MirrorModelLM",
    config_class=f"{__name__}:MirrorConfig",
    shift=True,
    mask_id=7,
)
