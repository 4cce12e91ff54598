from maskwise.lm_eval.plugin import register  # noqa: F401  entry point of editable installs of 0.2: it must not fail
