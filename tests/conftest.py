import os

# Before any hub library is imported: no test may reach for the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
# Before torch is: the models are tiny, and several test processes share the cores.
os.environ["OMP_NUM_THREADS"] = "1"

from hypothesis import HealthCheck, settings

# The one profile: a busy machine changes nothing, and the same examples are drawn in every run.
settings.register_profile("maskwise", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("maskwise")
