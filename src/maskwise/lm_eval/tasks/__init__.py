"""The 16 tasks as task files of lm-evaluation-harness.

    lm_eval --include_path "$(python -m maskwise.lm_eval.tasks)" --tasks maskwise --model maskwise --model_args ...

The group is `maskwise`, a task is `maskwise_country_smallest` and so on. They live here and not with the model plug-in,
because what is asked belongs to tasks/ and how it is answered to decoding/.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
