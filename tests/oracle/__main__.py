"""Writes the values that the present package gives: `make oracle`, or `python -m oracle [--change] [NAME ...]`.

A NAME is that of an entry or the beginning of some (asked, asked/tiny-llada); none means all. An entry that is stored
already is left as it is; with --change it is written anew: the commit says "Changed:" and why.
"""

import argparse
import os
import time
from importlib import import_module
from importlib.util import find_spec

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"  # before any hub library is imported

from oracle import stored

PARTS = ("asked", "computed", "models")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m oracle", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--change", action="store_true", help="write entries anew that are stored already")
    given = parser.parse_args()
    found = {}
    for part in PARTS:
        if find_spec(f"oracle.{part}") is not None:
            found |= import_module(f"oracle.{part}").entries()
    if unknown := [name for name in given.names if not any(entry.startswith(name) for entry in found)]:
        parser.error(f"there is no entry {unknown[0]}")
    chosen = [name for name in found if not given.names or name.startswith(tuple(given.names))]
    known = set() if given.change else set(stored.names()) & set(chosen)
    for name in chosen:
        if name not in known:
            began = time.process_time()
            stored.write(name, found[name]())
            size = stored.file_of(name).stat().st_size
            print(f"{name}: {size} bytes, {time.process_time() - began:.1f} CPU s", flush=True)
    if known:
        print(f"{len(known)} entries are stored already and were left as they are (--change writes them anew)")


if __name__ == "__main__":
    main()
