"""Checkpoint folders for tests: a tiny network and a tokenizer in which every byte is a token."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tiny import dream_net, llada_net, qwen_net

END, TURN_END, MASK = 256, 257, 258
CHAT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{{ '<|a|>' if add_generation_prompt else '' }}"
)
NETS = {"llada": llada_net, "dream": dream_net, "ar": qwen_net}


def byte_tokenizer(chat_template=None):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    raw.add_special_tokens(["<|end|>", "<|im_end|>", "<|mask|>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|end|>", pad_token="<|end|>", mask_token="<|mask|>",
        chat_template=chat_template,
    )  # fmt: skip


def save(folder, kind="llada", chat_template=None, **more):
    """A checkpoint folder that maskwise opens."""
    ids = {"eos_token_id": END} if kind == "ar" else {"eos_token_id": END, "mask_token_id": MASK}
    NETS[kind](vocab=259, window=512, **(ids | more)).save_pretrained(folder)
    byte_tokenizer(chat_template).save_pretrained(folder)
    return folder
