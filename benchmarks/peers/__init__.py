"""Other software's own code beside ours: `python -m benchmarks.peers`."""
