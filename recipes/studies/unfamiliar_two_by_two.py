"""Two by two: words that stand in tasks/words.json or not ("listed", "unlisted"), kind pairs of training or new ones.

The fourth cell, unlisted words of new kinds, is set I (tasks/unfamiliar-1.json).
"""

_LISTED = {
    "bird": "crow dove duck eagle falcon flamingo goose hawk heron ostrich owl parrot",
    "mammal": "badger bear beaver bison camel cat deer dog fox goat horse lion",
    "clothes": "apron coat hat jacket robe sandal scarf shirt shoe sock helmet button",
    "kitchen": "bowl cup fork fridge jar jug kettle knife mug oven pan toaster",
    "saying": "argue apologise ask complain deny describe explain inform insist promise reply shout",
    "moving": "arrive carry enter escape follow leave pull push throw travel wander fetch",
    "size": "broad enormous gigantic huge large narrow short small tall tiny vast wide",
    "character": "brave careless clever cruel foolish generous honest humble lazy polite rude stubborn",
    "furniture": "bed bench chair desk sofa stool table wardrobe shelf carpet curtain mattress",
    "device": "battery camera computer keyboard laptop microphone printer radio television telescope microscope "
    "thermometer",
    "pain": "anger anguish anxiety contempt despair dread envy grief guilt hatred misery shame",
    "pleasure": "admiration affection amusement bliss contentment delight gladness gratitude happiness joy love "
    "serenity",
}
UNLISTED = {
    "animal": "lynx puma robin finch beetle trout tuna hornet mule pony lamb kitten",
    "object": "hammer bell comb razor pliers tripod dice kite doll rug cradle napkin",
    "verb": "vote sneeze hesitate scold arrest deceive stumble inhale bury crawl lick swear",
    "adjective": "crooked fluffy grumpy jolly rusty slender timid vivid wicked swift greedy bald",
    "emotion": "glee fright gloom dismay rapture scorn agony alarm ardour mirth woe pique",
}
_TRAINED_PAIRS = (
    ("animal", "object"),
    ("object", "animal"),
    ("verb", "adjective"),
    ("adjective", "verb"),
    ("emotion", "object"),
    ("object", "emotion"),
)
_NEW_PAIRS = (
    ("bird", "mammal"),
    ("clothes", "kitchen"),
    ("saying", "moving"),
    ("size", "character"),
    ("furniture", "device"),
    ("pain", "pleasure"),
)


def _pairs(words: dict[str, str], pairs: tuple[tuple[str, str], ...]) -> list[tuple[tuple[str, list[str]], ...]]:
    return [tuple((kind, words[kind].split()) for kind in pair) for pair in pairs]


def _drawn() -> dict[str, str]:
    """Twelve listed words a kind of training, so that the cells differ in the words alone."""
    import random

    from maskwise.tasks.words import load_words

    listed = load_words()
    return {kind: " ".join(random.Random(f"two by two {kind}").sample(listed[kind], 12)) for kind in UNLISTED}


CELLS = {
    "listed trained": _pairs(_drawn(), _TRAINED_PAIRS),
    "unlisted trained": _pairs(UNLISTED, _TRAINED_PAIRS),
    "listed new": _pairs(_LISTED, _NEW_PAIRS),
}
