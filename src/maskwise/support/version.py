"""The version of the package: the one place that states it; pyproject.toml reads it from here."""

__version__ = "0.3.0.dev0"
