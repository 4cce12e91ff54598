"""Other software's own code next to ours: `python -m benchmarks.peers`."""
