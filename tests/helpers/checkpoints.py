"""Checkpoint folders for tests: a tiny network and a tokenizer in which every byte is a token."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from helpers.tiny import dream_net, llada2_net, llada_net, qwen_net, sdar_net

END, TURN_END, MASK, START = 256, 257, 258, 259
CHAT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{{ '<|a|>' if add_generation_prompt else '' }}"
)
NETS = {"llada": llada_net, "dream": dream_net, "sdar": sdar_net, "llada2": llada2_net, "ar": qwen_net}


def byte_tokenizer(chat_template=None, starts=False):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    raw.add_special_tokens(["<|end|>", "<|im_end|>", "<|mask|>"])
    if starts:
        raw.add_special_tokens(["<|start|>"])
        raw.post_processor = processors.TemplateProcessing("<|start|> $A", special_tokens=[("<|start|>", START)])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|end|>",
        pad_token="<|end|>",
        mask_token="<|mask|>",
        bos_token="<|start|>" if starts else None,
        chat_template=chat_template,
    )


def save(folder, kind="llada", chat_template=None, starts=False, **more):
    """A checkpoint folder that maskwise opens; with `starts` its tokenizer puts a start token before every text."""
    ids = {"eos_token_id": END} if kind == "ar" else {"eos_token_id": END, "mask_token_id": MASK}
    NETS[kind](**({"vocab": 259 + starts, "window": 512} | ids | more)).save_pretrained(folder)
    byte_tokenizer(chat_template, starts).save_pretrained(folder)
    return folder
