"""Rewrite matplotlib's SVG files smaller, in place, without a visible change.

    python recipes/studies/smaller_figures.py docs/figures/zoo-*.svg

1. Numbers keep one decimal (a tenth of a point).
2. Groups without attributes of their own, unused ids, the font's fallbacks and line breaks go.
3. Each style that is used more than once becomes a class.
4. Neighbouring lines of one style become one path; neighbouring markers of one style share a group.
"""

import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"  # SVG 2 writes plain href


def shortened(text: str) -> str:
    """A list of numbers or a path with one decimal each and no needless blanks."""
    text = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), text)
    return re.sub(r" ?([MLCQz]) ?", r"\1", " ".join(text.split())).replace("-0 ", "0 ")


def tidy(element: ElementTree.Element, used: set[str]) -> None:
    """Shorten one element's attributes, then its children's; merge what can be merged."""
    for name in ("d", "x", "y", "transform"):
        if name in element.attrib:
            element.set(name, shortened(element.attrib[name]))
    if re.match(r"rotate\(-?0 ", element.get("transform", "")):
        del element.attrib["transform"]
    if element.get("id") not in used:
        element.attrib.pop("id", None)
    if LINK in element.attrib:
        element.set("href", element.attrib.pop(LINK))
    style = element.get("style", "").replace("'DejaVu Sans', ", "DejaVu Sans, ")
    if style:
        element.set("style", re.sub(r"(DejaVu Sans), .*?sans-serif", r"\1, sans-serif", style))
    if element.tag != f"{SVG}text":
        element.text = None
    element.tail = None
    children: list[ElementTree.Element] = []
    for child in element:
        tidy(child, used)
        if child.tag == f"{SVG}g" and not child.attrib:
            children += list(child)
        elif not (child.tag == f"{SVG}path" and child.get("style") == "fill: none"):
            children.append(child)
    element[:] = merged(children)


def merged(children: list[ElementTree.Element]) -> list[ElementTree.Element]:
    """Neighbouring lines of one style as one path, neighbouring markers of one style as one group."""
    out: list[ElementTree.Element] = []
    for child in children:
        last = out[-1] if out else ElementTree.Element("none")
        look = {name: child.attrib[name] for name in ("clip-path", "style") if name in child.attrib}
        if child.tag == f"{SVG}path" and set(child.attrib) == {"d", *look} and "fill: none" in child.get("style", ""):
            if last.tag == child.tag and last.attrib | {"d": ""} == child.attrib | {"d": ""}:
                last.set("d", last.attrib["d"] + child.attrib["d"])
                continue
        elif child.tag == f"{SVG}use" and look:
            for name in look:
                del child.attrib[name]
            if last.tag == f"{SVG}g" and last.attrib == look:
                last.append(child)
                continue
            group = ElementTree.Element(f"{SVG}g", look)
            group.append(child)
            child = group
        out.append(child)
    return out


def smaller(text: str) -> str:
    """The same picture in fewer characters."""
    ElementTree.register_namespace("", SVG[1:-1])
    styles = dict(re.findall(r"\.(s\d+)\{([^}]*)\}", text))
    root = ElementTree.fromstring(text)
    sheet = next(root.iter(f"{SVG}style"))
    general = re.sub(r"\.s\d+\{[^}]*\}", "", sheet.text or "")
    for element in root.iter():
        if element.get("class") in styles:
            element.set("style", styles[element.attrib.pop("class")])
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    tidy(root, used)
    counts = Counter(element.get("style") for element in root.iter() if element.get("style"))
    classes = {style: f"s{i}" for i, (style, count) in enumerate(counts.most_common()) if count > 1}
    for element in root.iter():
        if element.get("style") in classes:
            element.set("class", classes[element.attrib.pop("style")])
    sheet.text = general + "".join(f".{name}{{{rules}}}" for rules, name in classes.items())
    out = ElementTree.tostring(root, encoding="unicode")
    for i, name in enumerate(sorted(used, key=len, reverse=True)):
        out = re.sub(rf'(id="|#){re.escape(name)}\b', rf"\g<1>i{i}", out)
    return out.replace(" />", "/>") + "\n"


def main() -> None:
    for name in sys.argv[1:]:
        file = Path(name)
        before = file.read_text()
        file.write_text(smaller(before))
        print(f"{name}: {len(before):,} to {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
