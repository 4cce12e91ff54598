"""The model that users work with: the model interface with `predict`, `generate`, saving and compiling."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn

from maskwise.models.batch import Batch, passes
from maskwise.models.checkpoints.saving import push, save
from maskwise.models.families.quantise import Float8Linear
from maskwise.models.generation import GenerateArguments, Generations, PromptInput
from maskwise.models.interface import ModelInterface
from maskwise.models.peft_access import linear_targets, stored_weight
from maskwise.support.errors import UserError, UserNotice
from maskwise.support.imports import imported
from maskwise.support.terminal import one_line

TOKENS_A_PASS = 16384  # what `predict` puts into one forward pass
WORTH_COMPILING = 10**9  # parameters

# Of the layers' shared code: with and without a cache, gradients, packed weights, few rows, for one sequence and
# several. Beyond torch's default of 8 further kinds of passes would not be compiled.
RECOMPILATIONS = 64


class Model(ModelInterface):
    """A transformers model with the model interface.

    net: the model itself, a `PreTrainedModel`, or PEFT's wrapper of it; `core` is the `PreTrainedModel` in either case.
    tokenizer: a `PreTrainedTokenizerBase`, or None. window: the context length. trained_window: that of training, where
    it is shorter than the configured one. mask_id: the mask's token, None of an autoregressive model.

    Threads may share a model: one forward pass or one whole decoding runs at a time.

    >>> import maskwise as mw
    >>> model = mw.open("tiny-llada")
    >>> type(model.net).__name__, model.kind, model.window
    ('LLaDAModelLM', 'llada', 1536)
    """

    def __repr__(self) -> str:
        count = self.parameter_count
        size = f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.1f} M"
        facts = [
            f"{self.name or 'unnamed'} ({self.kind})",
            f"{size} parameters",
            "no mask" if self.mask_id is None else f"mask id {self.mask_id}",
            f"context length {self.window}",
            str(self.device),
            self.weights or str(self.dtype).removeprefix("torch."),
            "no adapter" if self.net is self.core else f"adapter {', '.join(getattr(self.net, 'peft_config', ()))}",
        ]
        return f"Model({', '.join(facts)})"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Calls the model interface with a `Batch`; a call in the manner of transformers is refused with a remedy."""
        if not isinstance(arguments[0] if arguments else named.get("batch"), Batch):
            raise UserError(
                "a model is called with a Batch and rows: for logits call model.predict(sequences, rows), for the "
                "transformers model model.net(input_ids)"
            )
        return super().__call__(*arguments, **named)

    # As in transformers

    def to(self, *arguments: Any, **named: Any) -> Self:
        """As in torch; a device that is not there is one line."""
        try:
            return super().to(*arguments, **named)
        except (torch.OutOfMemoryError, NotImplementedError):  # the second: layers on the meta device
            raise
        except (AssertionError, RuntimeError) as problem:
            reason = str(problem).splitlines()[0]
            raise UserError(
                f"{self.name or self.kind} cannot be moved ({reason}): name another device, such as cpu"
            ) from None

    def generate(
        self,
        prompts: Sequence[PromptInput] | PromptInput | None = None,
        *options: Any,
        **named: Unpack[GenerateArguments],
    ) -> Generations:
        """`mw.generate` of this model: continues texts, chats (lists of messages) or lists of token ids.

        >>> import maskwise as mw
        >>> len(mw.open("tiny-llada").generate("Once upon a time", max_new_tokens=4)[0].ids)
        4
        """
        if prompts is None and not named:
            raise UserError("generate needs prompts: give a text, messages, or a list of texts or token ids")
        given = () if prompts is None else (prompts, *options)  # without prompts its line says what is missing
        return imported("maskwise.decoding.generate:generate")(self, *given, **named)

    def save_pretrained(self, folder: str | Path) -> list[str]:
        """Writes what `mw.open`, and transformers' and PEFT's from_pretrained, open again: the network, or the adapter
        on it, and the tokenizer. Returns the names of the files.

        >>> import maskwise as mw
        >>> "model.safetensors" in mw.open("tiny-llada").save_pretrained("saved")
        True
        """
        return save(self, folder)

    def push_to_hub(
        self,
        repo_id: str,
        private: bool | None = None,
        commit_message: str = "Written by maskwise",
        dry_run: bool = False,
    ) -> list[str]:
        """Saves the model and uploads it to the Hugging Face hub, with the token of `hf auth login`.

        dry_run: save it to a temporary folder, ask and upload nothing. Returns the names of the files.

        >>> import maskwise as mw
        >>> "config.json" in mw.open("tiny-llada").push_to_hub("me/my-llada", dry_run=True)
        True
        """
        return push(self, repo_id, private, commit_message, dry_run)

    # The simple call

    @torch.no_grad()
    def predict(self, sequences: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> list[Tensor]:
        """Lists of ids and the positions asked of each -> one float32 [n, V] CPU tensor per sequence."""
        if isinstance(sequences, str) or any(isinstance(one, str) for one in sequences):
            raise UserError("sequences are lists of token ids: give [model.tokenizer(text).input_ids]")
        if len(sequences) != len(rows):
            raise UserError(f"{len(sequences)} sequences but {len(rows)} lists of rows: give one list each")
        for number, (sequence, asked) in enumerate(zip(sequences, rows, strict=True)):
            self.check_sequence(sequence, f"sequence {number}")
            self._check_rows(0, len(sequence), asked)
        answers: list[Tensor] = []
        for first, last in passes([len(sequence) for sequence in sequences], TOKENS_A_PASS):
            batch = Batch.pack(sequences[first:last], self.device)
            logits = self(batch, self.flat_rows(batch, rows[first:last])).cpu()
            answers += logits.split([len(asked) for asked in rows[first:last]])
        return answers

    def check_sequence(self, sequence: Sequence[int], what: str = "the sequence") -> None:
        """Refuses an empty sequence, one longer than the context length, and ids without an embedding."""
        if len(sequence) == 0:
            raise UserError(f"{what} is empty: give at least one token")
        if len(sequence) > self.window:
            raise UserError(
                f"{what} has {len(sequence)} tokens but the context length of {self.name or self.kind} is "
                f"{self.window}: shorten it"
            )
        known = stored_weight(self.core.get_input_embeddings()).shape[0]
        low, high = min(sequence), max(sequence)
        if any(isinstance(one, float) for one in sequence):
            raise UserError(f"{what} holds a number that is not whole: give token ids")
        if low < 0 or high >= known:
            raise UserError(
                f"{what} has token id {low if low < 0 else high}, outside 0..{known - 1}: "
                "was it made with another tokenizer?"
            )
        if self.trained_window and len(sequence) > self.trained_window:
            warnings.warn(
                f"{what} has {len(sequence)} tokens; {one_line(self.name)} was trained on {self.trained_window}",
                UserNotice,
                stacklevel=3,
            )

    # Size, targets of adapters, speed

    @property
    def stored_quantised(self) -> bool:
        return getattr(getattr(self.core, "config", None), "quantization_config", None) is not None

    @property
    def parameter_count(self) -> int:
        """The number of parameters; of a quantised model that of the original."""
        net: nn.Module = self.core
        if self.stored_quantised and self.family.net_class is not None:
            net = imported("maskwise.models.checkpoints.networks:network_without_weights")(
                self.core.config, self.family
            )
        scales = sum(one.out_features for one in net.modules() if isinstance(one, Float8Linear))
        return sum(weight.numel() for weight in net.parameters()) - scales

    @property
    def lora_targets(self) -> str:
        """A regular expression that matches the layers' linear maps in full, and never the output head."""
        return self.family.lora_targets or linear_targets(self.core)

    def compile_for_long_work(self) -> None:
        """Compiles the layers of a large model on CUDA, which takes half a minute and pays after minutes of work."""
        large = self.parameter_count >= WORTH_COMPILING
        if large and not self.spread and self.device.type == "cuda" and self.family.layers_compile:
            self.compile_layers()

    def compile_layers(self) -> None:
        """One switch: torch.compile of each layer in place; raises torch's limit of recompilations in this process."""
        if self.spread:
            raise UserError("layers on several devices are not compiled: leave --compile out")
        limits = torch._dynamo.config
        limits.recompile_limit = max(limits.recompile_limit, RECOMPILATIONS)
        for module in self.core.modules():
            if type(module).__name__ in (self.core._no_split_modules or ()):
                module.compile(dynamic=True)
