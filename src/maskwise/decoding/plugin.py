def register() -> None:
    """Entry point of editable installs of 0.2: were it not found, `import torch` itself would fail there."""
