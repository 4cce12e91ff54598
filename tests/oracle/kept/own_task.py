"""own-task measures nothing that generation-length and likelihood-masks did: other canvases, another pace."""

GONE = (".*",)


def rows(tables):
    return []
