"""Finds names that docs/glossary.md retires.

usage: check_glossary.py [TABLE]    in the root of the checkout

Prints each line of a tracked file, and each path, in which a retired name stands, with
the word to use, and then exits 1. The table is third_party/tools/retired_names.txt.
"""

import collections
import fnmatch
import re
import subprocess
import sys

TABLE = "third_party/tools/retired_names.txt"
# The glossary and the table name what is retired.
_ALWAYS_ALLOWED = ("docs/glossary.md", TABLE, "third_party/tools/check_glossary*",
                   "docs/benchmarks/data/*", "*.patch", "*/corpus/*")

Rule = collections.namedtuple("Rule", "pattern word allowed")


def read_table(text):
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        pattern, arrow, rest = line.partition(" => ")
        if not arrow:
            raise ValueError(f"line {number} of the table has no =>")
        word, _, allowed = rest.partition(" except ")
        rules.append(Rule(re.compile(pattern.strip()), word.strip(), tuple(allowed.split())))
    return rules


def retired_in(rules, path, text):
    """The places of one file, as lines to print."""
    found = []
    for rule in rules:
        if any(fnmatch.fnmatch(path, glob) for glob in _ALWAYS_ALLOWED + rule.allowed):
            continue
        match = rule.pattern.search(path)
        if match:
            found.append(f"{path}: the path has \"{match.group()}\", use: {rule.word}")
        for number, line in enumerate(text.splitlines(), 1):
            match = rule.pattern.search(line)
            if match:
                found.append(f"{path}:{number}: \"{match.group()}\", use: {rule.word}")
    return found


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, stdout=subprocess.PIPE)
    for name in listed.stdout.decode().split("\0"):
        try:
            with open(name, encoding="utf-8") as file:
                yield name, file.read()
        except (OSError, UnicodeDecodeError):
            continue  # Deleted, a folder or not text.


def main(given):
    with open(given[0] if given else TABLE, encoding="utf-8") as file:
        rules = read_table(file.read())
    found = [line for path, text in tracked_files() for line in retired_in(rules, path, text)]
    print("\n".join(found[:50]))
    if len(found) > 50:
        print(f"and {len(found) - 50} more")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
