"""The recipes of a document: what it tells to type, and what it shows for it.

A recipe is a block fenced as ```sh, followed by a block fenced as ``` with its output.
In the output "…" stands for anything within a line, a line of only "…" for any number
of lines. Everything else is meant literally, apart from the indentation.
"""

import collections
import re

Recipe = collections.namedtuple("Recipe", ["command", "output"])

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def section(document, heading):
    """The text below "## heading", up to the next heading of that level."""
    parts = re.split(r"^## (.*)\n", document, flags=re.MULTILINE)
    for name, text in zip(parts[1::2], parts[2::2]):
        if name == heading:
            return text
    raise ValueError("no section %r" % heading)


def recipes(text):
    """All recipes of a text. Every block in it must belong to one."""
    blocks = _BLOCK.findall(text)
    if len(blocks) % 2 or not blocks:
        raise ValueError("%d blocks: each command needs its output" % len(blocks))
    found = []
    for command, output in zip(blocks[0::2], blocks[1::2]):
        if command[0] != "sh" or output[0] != "":
            raise ValueError("no command and output: %r" % command[1])
        found.append(Recipe(command[1], output[1]))
    return found


def _line_pattern(line):
    return ".*".join(re.escape(part) for part in line.strip().split("…"))


def matches(shown, real):
    """Whether a command's real output is what the document shows."""
    pattern = ""
    for line in shown.strip().splitlines():
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += _line_pattern(line) + "\n"
    lines = [line.strip() + "\n" for line in real.strip().splitlines()]
    return re.fullmatch(pattern, "".join(lines)) is not None
