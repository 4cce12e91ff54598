import os
import sys
from pathlib import Path

# Before any hub library is imported: no test may reach for the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
# Before torch is: the models are tiny, and several test processes share the cores.
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))  # tests/tiny.py
