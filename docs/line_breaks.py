"""Where a line of the site may break: names and numbers stay whole, and cells of words get room (site.css)."""

import re

NAME = 32  # characters of code that fit beside other words on a telephone


def with_line_breaks(html: str) -> str:
    """Marks names that stay on one line, and cells that need room for their words."""
    html = re.sub(r"(?<!></span>)<code>([^<]+)</code>", _unbroken, html)
    html = re.sub(r"(<code>[^<]*, [^<]*</code>\s*</td>(?:(?!</tr>).)*?)<em>required</em>", r"\1", html, flags=re.DOTALL)
    html = re.sub(r'<td(?=(?: style="[^"]*")?>(?:(?!</td>).){60,}</td>)', '<td class="long"', html)
    parts = re.split(r"(<(pre|code|svg|script|style)\b.*?</\2>|<[^>]*>)", html, flags=re.DOTALL)
    return "".join(_unbroken_text(text) + (tag or "") for text, tag in zip(parts[::3], [*parts[1::3], ""], strict=True))


def _unbroken_text(text: str) -> str:
    """Numbers with their unit and options on one line; arrows and minus signs as one character."""
    text = re.sub(r"(?<=\d) (?=%|(?:s|ms|GiB)\b)|(?<=±) (?=[\d.])", "\u00a0", text).replace("-&gt;", "→")
    text = re.sub(r"(?<![\w.)-])-(?=\.?\d)", "\u2212", text)
    return re.sub(r"(?<![\w-])--[a-z][\w-]*|\b\d[\d.]*e-\d+\b", r'<span class="name">\g<0></span>', text)


def _unbroken(code: re.Match[str]) -> str:
    """Short code whole; of longer code and of lists the words with a hyphen, such as options."""
    text = code[1].replace("\n", " ").replace("\\|", "|")  # a cell of a table has its bars escaped
    if len(text) <= NAME and ", " not in text:
        return f'<code class="name">{text}</code>'
    return f"<code>{' '.join(map(_unbroken_word, text.split(' ')))}</code>"


def _unbroken_word(word: str) -> str:
    if len(word) > NAME:
        return word.replace("/", "/<wbr>")  # a path is broken between its folders
    return f'<span class="name">{word}</span>' if "-" in word else word
