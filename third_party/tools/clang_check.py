"""Compiles our sources with Clang, for its warnings only: nothing is written.

usage: clang_check.py [--jobs=N] [--clang=PROGRAM] [FILE...]

What to compile, and how, is what Bazel says (`bazel aquery`), so a new target is
covered by itself. FILE limits the check to these sources. Lock annotations
(common/base/mutex.h) are errors when broken, and so is every warning that Clang gives by
default. Headers are checked where a source includes them.

Ends with the line "N passed, N failed", a source each. Exits 1 when one failed.
"""

import argparse
import concurrent.futures
import json
import subprocess
import sys

WARNINGS = ["-Wthread-safety", "-Wthread-safety-beta", "-Werror"]

# Compiled by every target that includes them, and not ours.
NOT_OURS = ("external/", "bazel-out/")


def bazel(*arguments):
    return subprocess.run(
        ["bazel", *arguments, "--noshow_progress", "--ui_event_filters=-info"],
        check=True, stdout=subprocess.PIPE, text=True).stdout


def commands_of(graph, clang, external, out):
    """Source -> the arguments that check it, from aquery's action graph.

    They hold in the workspace itself: Bazel's own folder to run them in has links
    to what the last build needed only.
    """

    def absolute(argument):
        for prefix, folder in (("external/", external), ("bazel-out/", out)):
            for option in ("", "-I"):
                if argument.startswith(option + prefix):
                    return option + folder + "/" + argument[len(option + prefix):]
        return argument

    commands = {}
    for action in graph.get("actions", []):
        arguments = action["arguments"]
        source = arguments[arguments.index("-c") + 1]
        if source.startswith(NOT_OURS) or source in commands:
            continue
        kept, skip = [], False
        for argument in arguments[1:]:
            # Drops the options for outputs, and those that only GCC has.
            if skip:
                skip = False
            elif argument in ("-MF", "-o"):
                skip = True
            elif argument not in ("-MD", "-c", source,
                                  "-fno-canonical-system-headers",
                                  "-Wunused-but-set-parameter",
                                  "-Wno-free-nonheap-object"):
                kept.append(absolute(argument))
        commands[source] = [clang, "-fsyntax-only", *kept, *WARNINGS, source]
    return commands


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--clang", default="clang++-19")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()

    # Generated headers and links to headers, without compiling anything.
    bazel("build", "--output_groups=compilation_prerequisites_INTERNAL_", "//...")
    root, base, out = [
        bazel("info", key).strip() for key in ("workspace", "output_base", "output_path")]
    graph = json.loads(bazel("aquery", "--output=jsonproto",
                             'mnemonic("CppCompile", //...)'))
    commands = commands_of(graph, options.clang, base + "/external", out)
    sources = options.files or sorted(commands)
    for source in sources:
        if source not in commands:
            sys.exit("clang_check: no target compiles " + source)

    def check(source):
        return subprocess.run(commands[source], cwd=root, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for source, result in zip(sources, pool.map(check, sources)):
            if result.returncode:
                failed += 1
                print(result.stdout, end="")
                print("FAILED: " + source, flush=True)
    print("%d passed, %d failed" % (len(sources) - failed, failed))
    return 1 if failed or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
