"""Generates the pages of docs/reference from the code.

usage: reference.py [--check] ROOT CONFIG_KEYS

ROOT is the checkout, CONFIG_KEYS the program that lists configuration keys. With
--check, prints what differs from the committed pages and exits 1.

The last column of configuration.md is written by hand: the generator keeps the
text of keys that the page has, and refuses keys that have none.
"""

import difflib
import os
import re
import subprocess
import sys

COMMAND = "./djinn reference"
_FOLDERS = ("client_lib", "common", "coordinator", "gpu_worker", "scheduler")
_ROLES = {"coordinator": ("coordinator",), "gpu_worker": ("worker",),
          "common": ("coordinator", "worker")}


def sources(root):
    """{path: text} of the C++ sources of the programs and the library."""
    found = {}
    for folder in _FOLDERS:
        for where, folders, names in os.walk(os.path.join(root, folder)):
            folders[:] = [name for name in folders
                          if name not in ("testing", "examples", "fuzz", "simulator")]
            for name in names:
                if (name.endswith((".cc", ".h")) and not re.search(
                        r"_(test|benchmark|fuzz|fixture)\.|testing", name)):
                    path = os.path.join(where, name)
                    with open(path, encoding="utf-8") as file:
                        found[os.path.relpath(path, root)] = re.sub(
                            r"(?m)^\s*//.*$", "", file.read())
    return found


def arguments(text, start):
    """The arguments of a call or initializer, of which `start` is behind the bracket."""
    depth, quoted, begin, found = 0, False, start, []
    at = start
    while at < len(text):
        letter = text[at]
        if quoted:
            if letter == "\\":
                at += 1
            elif letter == '"':
                quoted = False
        elif letter == '"':
            quoted = True
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            if depth == 0:
                found.append(text[begin:at].strip())
                return found
            depth -= 1
        elif letter == "," and depth == 0:
            found.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    return []


def literal(text, constants=None):
    """The value of an argument that is a string literal or a constant; else None."""
    if re.fullmatch(r'(\s*"(?:[^"\\]|\\.)*")+\s*', text):
        return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text))
    return (constants or {}).get(text.strip())


def constants_of(text):
    return {name: literal(value) for name, value in re.findall(
        r"\b(k[A-Z]\w*)(?:\[\])?\s*=\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)+);", text)}


# --- metrics ---

_CALL = re.compile(r"(?:->|\.)(Gauge|Counter|Histogram)\(")
_DECLARED = re.compile(r"(?:->|\.)(Gauge|Counter)s\(")
_LABELLED = re.compile(r"\bLabelledCounter\s+\w+\{|\bstarted_\(")
_LAMBDA = re.compile(r"const auto (\w+) = \[[^\]]*\]\(const char\* name")


def _labels(argument):
    return re.findall(r'\{\s*"(\w+)"\s*,', argument)


def metrics(texts):
    """{name: (type, help, labels, roles)}"""
    found = {}

    def add(path, name, kind, text, labels):
        known = found.setdefault(name, [kind, text, set(), set()])
        known[2].update(labels)
        known[3].update(_ROLES.get(path.split("/")[0], ()))

    for path, text in sorted(texts.items()):
        header = texts.get(path[:-3] + ".h", "") if path.endswith(".cc") else ""
        constants = {**constants_of(header), **constants_of(text)}
        calls = [(match.group(1).lower(), arguments(text, match.end()))
                 for match in _CALL.finditer(text)]
        for kind, given in calls:
            if len(given) < 3:
                continue
            name, help_text = (literal(one, constants) for one in given[:2])
            if name:
                add(path, name, kind, help_text or "", _labels("".join(given[3:])))
        for match in _LAMBDA.finditer(text):
            inner = _CALL.search(text, match.end(), match.end() + 300)
            if not inner:
                continue
            labels = _labels("".join(arguments(text, inner.end())[3:]))
            for call in re.finditer(r"\b%s\(" % match.group(1), text):
                given = arguments(text, call.end())
                name = literal(given[0], constants) if given else None
                if name:
                    add(path, name, inner.group(1).lower(),
                        literal(given[1], constants) or "", labels)
        declared = [("counter", match) for match in _LABELLED.finditer(text)]
        declared += [(match.group(1).lower(), match) for match in _DECLARED.finditer(text)]
        for kind, match in declared:
            given = arguments(text, match.end())
            name = literal(given[0], constants) if len(given) == 3 else None
            if name:
                add(path, name, kind, literal(given[1], constants) or "",
                    re.findall(r'"(\w+)"', given[2]))
    return found


def metrics_page(texts):
    lines = [
        "# Metrics", "",
        f"Generated from the code by `{COMMAND}`. [Observe](../operator/observe.md) says how to",
        "read them. Each process counts what happens in it since it started. Durations are in",
        "seconds. The label `tenant` is empty where no tenant is known, and `_other` for tenants",
        "beyond the first 200.", "",
        "| Metric | Type | At | Help |", "|---|---|---|---|"]
    for name, (kind, text, labels, roles) in sorted(metrics(texts).items()):
        shown = "{%s}" % ",".join(sorted(labels)) if labels else ""
        lines.append(f"| `{name}{shown}` | {kind} | {', '.join(sorted(roles))} | "
                     f"{_cell(text)} |")
    return "\n".join(lines) + "\n"


# --- reasons of errors ---

_REASON = re.compile(
    r'(?:"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)")|'
    r'(?:StatusCode::k\w+,|Declined\(|set_reason\()\s*"([A-Z]{4,})"')
# Literals of this form that name something else: variables, modes, tables of SQL, options of the
# kernel.
_NO_REASON = re.compile(r"DJINN_|OMP_|GOMP_|TSI_|PHASE_|GRPC_|TORCH_|KMP_|MKL_|CUDA_|LD_|"
                        r"UNARY_|PRIORITY_CLASS_|PCI_BUS_|XDG_|NVIDIA_|OPENBLAS_|DATA_TYPE_|ATEN_|DNNL_|"
                        r"PYTORCH_|SO_|RLIMIT_|PR_SET_")


def _code(text, start):
    """The status code of the call around a reason, if it names one before."""
    begin = max(text.rfind(end, 0, start) for end in ";{}") + 1
    codes = re.findall(r"StatusCode::k(\w+)", text[begin:start])
    if not codes and re.search(r"LimitExceeded\(\s*$|CappedMemory\(\s*$", text[:start]):
        return "RESOURCE_EXHAUSTED"
    return _snake(codes[-1]) if codes else ""


def _snake(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _text_behind(text, start):
    """The first text with words behind a reason in the same statement; "" without one."""
    for match in re.finditer(r'((?:"(?:[^"\\]|\\.)*"\s*)+)(.)|;', text[start:start + 500]):
        if match.group(0) == ";":
            return ""
        said = literal(match.group(1))
        if re.search(r"[a-z] ?[a-z]{2}", said):
            before = text[start:start + match.start()]
            parts = "StrCat(" in before and match.group(2) == ","
            return ("… " if re.search(r"StrCat\([^\"]+,\s*$", before) else "") + said.strip() + (
                "…" if parts else "")
    return ""


def reasons(texts):
    """{reason: (codes, folders, text)}"""
    found = {}
    for path, text in sorted(texts.items()):
        for match in _REASON.finditer(text):
            reason = match.group(1) or match.group(2)
            start = match.start(1) - 1 if match.group(1) else match.start(2) - 1
            if _NO_REASON.match(reason) or re.search(
                    r"(getenv|Environment|Variable|Execute)\(\s*$", text[:start]):
                continue
            known = found.setdefault(reason, (set(), set(), []))
            code = _code(text, start)
            if code:
                known[0].add(code)
            known[1].add(path.split("/")[0])
            said = _text_behind(text, match.end())
            if said:
                known[2].append(said)
    # A helper gives all of its reasons one code.
    for path, text in sorted(texts.items()):
        for helper in re.finditer(
                r"absl::Status (\w+)\((?:absl::string_view|const char\*|const std::string&) reason",
                text):
            body = text[helper.end():helper.end() + 400]
            code = re.search(r"StatusCode::k(\w+)\s*,\s*reason", body)
            if not code:
                continue
            for used in re.findall(r'\b%s\(\s*"([A-Z_0-9]+)"' % helper.group(1), text):
                if used in found:
                    found[used][0].add(_snake(code.group(1)))
    return found


def _best(said):
    """Returns the first text of a reason that is not the middle of a sentence."""
    return next((text for text in said if re.match("[A-Za-z0-9…]", text)),
                "… " + said[0].removeprefix('\\"').strip() if said else "")


def errors_page(texts):
    lines = [
        "# Error reasons", "",
        f"Generated from the code by `{COMMAND}`. Every error of Djinn has a gRPC status code and,",
        "in `google.rpc.ErrorInfo` of the domain `djinn`, one of these reasons. The text is one",
        "of those in the code; `…` stands for what it adds. [Errors](../user/errors.md) has",
        "causes and remedies.", "",
        "| Reason | Status | Made in | Text |", "|---|---|---|---|"]
    for reason, (codes, folders, said) in sorted(reasons(texts).items()):
        lines.append(f"| `{reason}` | {', '.join(sorted(codes)) or '-'} | "
                     f"{', '.join(sorted(folders))} | {_cell(_best(said))} |")
    return "\n".join(lines) + "\n"


# --- keys of the configuration ---

def _cell(text):
    return text.replace('\\"', '"').replace("|", "\\|").strip()


def _value(kind, text):
    if kind == "duration":
        return re.sub(r"(?<=[hm])0[ms](?=$|0s$)", "", re.sub(r"(?<=m)0s$", "", text))
    if kind == "size":
        number = int(text)
        for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
            if number and number % (1 << 10 * power) == 0:
                return f"{number >> 10 * power}{unit}"
    return text


def config_keys(program):
    """[(program, path, type, default)]"""
    text = subprocess.run([program], check=True, stdout=subprocess.PIPE,
                          universal_newlines=True).stdout
    keys = []
    for line in text.splitlines():
        role, path, kind, default, needed = line.split("\t")
        limit = re.fullmatch(r"(.*\.quota\.\w+)\.(nominalQuota|borrowingLimit|lendingLimit)", path)
        if kind == "list" or (limit and limit.group(2) != "nominalQuota"):
            continue
        if limit:
            path, kind, default = limit.group(1), f"quota ({kind})", ""
        # A group that is absent needs no keys; each map of a list is there.
        group = re.match(r"(.*[^\]])\.\w+$", path)
        shown = (f"with `{group.group(1)}`" if needed == "required" and group else
                 "required" if needed == "required" else
                 f"`{_value(kind, default)}`" if default else "none")
        keys.append((role, path, kind, shown))
    return _grouped(keys)


def _grouped(keys):
    """Puts keys of one group behind each other, in the order in which groups begin."""
    places = {}
    for role, path, _, _ in keys:
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            places.setdefault((role, *parts[:depth]), len(places))
    return sorted(keys, key=lambda key: [
        places[(key[0], *key[1].split(".")[:depth])]
        for depth in range(1, len(key[1].split(".")) + 1)])


def means_of(page):
    """{(program, path): text} of a page as it is committed."""
    found, role = {}, None
    for line in page.splitlines():
        if line.startswith("## "):
            role = line[3:].strip().lower()
        match = re.match(r"\| `([^`]+)` \| [^|]* \| [^|]* \| (.*) \|$", line)
        if match:
            found[role, match.group(1)] = match.group(2)
    return found


def configuration_page(keys, means):
    lines = [
        "# Configuration keys", "",
        f"Generated by `{COMMAND}` from what the programs read; the last column is written by",
        "hand. The format is YAML. A program refuses unknown keys and values out of range, with",
        "their line. Paths are relative to the folder of the file. Sizes are written `512`,",
        "`64KiB`, `1.5GiB`, `16GB`; durations `250ms`, `30s`, `1h30m`.",
        "[Configure](../operator/configure.md) has examples."]
    missing = []
    for role in ("coordinator", "worker"):
        lines += ["", f"## {role.capitalize()}", "",
                  "| Key | Type | Default | Means |", "|---|---|---|---|"]
        for of, path, kind, default in keys:
            if of != role:
                continue
            text = means.get((role, path), "")
            if not text:
                missing.append(f"{role}: {path}")
            lines.append(f"| `{path}` | {kind} | {default} | {text} |")
    return "\n".join(lines) + "\n", missing


# ---

def pages(root, keys_program):
    """({path: text}, keys without an explanation)"""
    texts = sources(root)
    folder = os.path.join("docs", "reference")
    path = os.path.join(folder, "configuration.md")
    committed = ""
    if os.path.exists(os.path.join(root, path)):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            committed = file.read()
    configuration, missing = configuration_page(config_keys(keys_program), means_of(committed))
    return {path: configuration,
            os.path.join(folder, "metrics.md"): metrics_page(texts),
            os.path.join(folder, "errors.md"): errors_page(texts)}, missing


def differences(root, keys_program):
    """Returns the differences of the committed pages from the code, as lines."""
    made, missing = pages(root, keys_program)
    found = [f"no explanation in docs/reference/configuration.md of {key}" for key in missing]
    for path, text in sorted(made.items()):
        old = ""
        if os.path.exists(os.path.join(root, path)):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                old = file.read()
        found += difflib.unified_diff(old.splitlines(), text.splitlines(), path, path,
                                      lineterm="", n=0)
    if found:
        found.append(f"Run `{COMMAND}`, and explain new keys in docs/reference/configuration.md.")
    return found


def main(given):
    check = given[:1] == ["--check"]
    root, keys_program = given[1:] if check else given
    if check:
        found = differences(root, keys_program)
        print("\n".join(found))
        return 1 if found else 0
    made, missing = pages(root, keys_program)
    for path, text in made.items():
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)
    for key in missing:
        print(f"explain in docs/reference/configuration.md: {key}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
