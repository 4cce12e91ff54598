"""Speed and memory, each row against a plain reference in the same run; see benchmarks/__main__.py."""
