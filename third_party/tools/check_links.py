"""Finds links between pages, and to their sections, that lead nowhere.

usage: check_links.py PAGE...    paths from the root of the checkout
"""

import os
import re
import sys


def headings(text):
    """The names under which a page's sections can be linked to, as GitHub makes them."""
    names = set()
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
        names.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return names


def broken(pages):
    """Of {path: text}, the links to pages or sections that are not there.

    Links to anything but pages are not looked at.
    """
    prose = {os.path.normpath(path): re.sub(r"```.*?```", "", text, flags=re.DOTALL)
             for path, text in pages.items()}
    sections = {path: headings(text) for path, text in prose.items()}
    found = []
    for path, text in sorted(prose.items()):
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            page, _, section = link.partition("#")
            if "://" in link or (page and not page.endswith(".md")):
                continue
            target = (os.path.normpath(os.path.join(os.path.dirname(path), page))
                      if page else path)
            if target not in sections:
                found.append(f"{path}: no page {link}")
            elif section and section not in sections[target]:
                found.append(f"{path}: no section {link}")
    return found


def main(paths):
    pages = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            pages[path] = file.read()
    found = broken(pages)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
