"""Finds links between pages, and to their sections, that lead nowhere, names of files and
folders that are not in the checkout, functions that are not in the file said to have them,
pages that a source file names and that are not there, and commands of which a page does not say
which test runs them.

usage: check_links.py [ROOT]    the root of the checkout; the current folder without it
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
    """Returns the links of pages {path: text} that lead to no page or section.

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


def missing_files(pages, root="."):
    """Returns the files and folders that pages {path: text} name or link to
    and that are not there.

    A name is a word in backticks that begins with a top-level folder of the checkout and
    has no pattern in it. It may be a Bazel target's: then its source has the same stem.
    Names in fenced blocks are not looked at.
    """
    tops = {name for name in os.listdir(root)
            if os.path.isdir(os.path.join(root, name)) and not name.startswith((".", "bazel-"))}

    def exists(path):
        return any(os.path.exists(os.path.join(root, path + ending))
                   for ending in ("", ".cc", ".py", ".sh"))

    found = []
    for path, text in sorted(pages.items()):
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for name in re.findall(r"`([\w./-]+)`", prose):
            if "/" in name and name.split("/")[0] in tops and not exists(name.rstrip("/")):
                found.append(f"{path}: no file {name}")
        for link in re.findall(r"\]\(([^)\s#]+)", prose):
            target = os.path.normpath(os.path.join(os.path.dirname(path), link))
            if "://" not in link and not exists(target):
                found.append(f"{path}: no file {link}")
    return found


def missing_pages(sources, root="."):
    """Returns the missing pages of docs that the source files {path: text} name."""
    return [f"{path}: no page {page}" for path, text in sorted(sources.items())
            for page in re.findall(r"\bdocs/[\w./-]+\.md\b", text)
            if not os.path.exists(os.path.join(root, page))]


def missing_functions(pages, root="."):
    """Returns each "`NAME` in `FILE`" of {path: text} whose file lacks the name."""
    found = []
    for path, text in sorted(pages.items()):
        for name, file in re.findall(r"`([\w:.]+)`\s+in\s+`([\w./-]+/[\w.-]+\.\w+)`", text):
            where = os.path.join(root, file)
            if not os.path.exists(where):
                continue  # missing_files() says so.
            with open(where, encoding="utf-8") as source:
                if not re.search(r"\b%s\b" % re.split("[:.]", name)[-1], source.read()):
                    found.append(f"{path}: no {name} in {file}")
    return found


def unclaimed_commands(pages, root="."):
    """Returns the commands of operators' and users' pages whose section does not say
    which test runs them.

    The last comment above a block of commands, in its section or in the text before the first
    one, has "run by TEST", for a file TEST that names the page, or "Not run by a test: REASON".
    """
    found = []
    for path, text in sorted(pages.items()):
        if not re.match("docs/(operator|user)/", path):
            continue
        claim = preamble = ""
        for part in re.findall(r"^## [^\n]*$|^```sh\n.*?^```$|^```.*?^```$|<!--.*?-->", text,
                               flags=re.MULTILINE | re.DOTALL):
            if part.startswith("## "):
                claim = preamble
            elif part.startswith("<!--"):
                claim = part
                if not re.search("^## ", text[:text.index(part)], flags=re.MULTILINE):
                    preamble = part
            elif part.startswith("```sh\n"):
                problem = _problem_of(claim, path, root)
                if problem:
                    found.append(f"{path}: {problem}: {part.splitlines()[1]}")
    return found


def _problem_of(claim, path, root):
    """Returns the fault of a comment that says which test runs a page's commands."""
    if re.search(r"Not run by a test: \w", claim):
        return ""
    test = re.search(r"run by ([\w/]+_test)\b", claim, flags=re.IGNORECASE)
    if not test:
        return "no test is said to run"
    for ending in (".py", ".sh"):
        file = os.path.join(root, test[1] + ending)
        if os.path.exists(file):
            with open(file, encoding="utf-8") as source:
                text = source.read()
            # A test may read all pages of a folder.
            if os.path.basename(path) in text or os.path.dirname(path) + "/*.md" in text:
                return ""
            return f"{test[1]} does not name this page"
    return f"no test {test[1]}"


def read_pages(root):
    """{path: text} of the README, of all pages of docs, and of other folders' READMEs."""
    pages = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "bazel-"))]
        where = os.path.relpath(folder, root)
        for name in names:
            if name == "README.md" or (name.endswith(".md") and
                                       where.split(os.sep)[0] == "docs"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    pages[os.path.normpath(os.path.join(where, name))] = file.read()
    return pages


def read_sources(root):
    """{path: text} of all source files but these tools, whose tests name pages of their own."""
    sources = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "bazel-"))]
        for name in names:
            path = os.path.normpath(os.path.join(os.path.relpath(folder, root), name))
            if (name.endswith((".h", ".cc", ".cu", ".py", ".pyi", ".proto", ".bazel", ".sh"))
                    and not path.startswith("third_party/tools/check_links")):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    sources[path] = file.read()
    return sources


def main(given):
    root = given[0] if given else "."
    pages = read_pages(root)
    found = (broken(pages) + missing_files(pages, root) + missing_functions(pages, root) +
             missing_pages(read_sources(root), root) + unclaimed_commands(pages, root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
