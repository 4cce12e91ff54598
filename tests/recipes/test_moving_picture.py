"""The moving picture: each token appears at the pass that committed it, and without animation the last frame shows."""

import re
import xml.etree.ElementTree as ET

import moving_picture as picture
from helpers.wheel import ROOT

LOOKUP = picture.Lookup("", ["cup", "jaguar"], ["bridge", "stork"])
SLOW = picture.Filled([" br", "idge", " st", "ork"], [1, 0, 2, 3], 4)
FAST = picture.Filled([" br", "idge", " st", "p"], [0, 0, 1, 1], 2)


def test_a_value_counts_if_both_of_its_tokens_are_right():
    assert picture.right(LOOKUP, SLOW) == 2 and picture.right(LOOKUP, FAST) == 1
    assert FAST.words() == ["bridge", "stp"]


def test_each_token_appears_at_its_pass():
    root = ET.fromstring(picture.draw(LOOKUP, {"slow": SLOW, "fast": FAST}))
    texts = {node.text: node.attrib["class"].split() for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert "s4" in texts["ork"] and "bad" not in texts["ork"]
    assert "s2" in texts["p"] and "bad" in texts["p"]


def test_without_animation_no_mask_and_no_earlier_count_is_shown():
    style = picture.style(4)
    still, moving = style.split("@media(prefers-reduced-motion:no-preference)")
    assert ".m,.d{opacity:0}" in still and "animation" not in still and moving.count("@keyframes") == 3 * 5


def test_the_committed_picture_is_small_and_loads_nothing():
    committed = (ROOT / "docs" / "figures" / "filling.svg").read_text()
    ET.fromstring(committed)
    assert len(committed) < 60_000 and not re.search(r"<script|href|url\(|@import", committed)
