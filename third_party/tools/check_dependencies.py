"""Checks that dependencies between the folders point one way.

    common <- scheduler <- {coordinator, gpu_worker};  common <- client_lib

and that the middles know neither gRPC nor torch (docs/design/architecture.md), and that
dependencies between the subfolders of each folder form no cycle: neither between packages
nor by #include, so that a subfolder without a BUILD file is checked, too. The subpackages
of the Python package know only what both need. Tests and what only tests use may depend on
anything. Reads the build graph with two queries, the #include lines and Python's imports,
and builds nothing. Prints each broken rule with a path that shows it, then exits 1.

usage: check_dependencies.py
"""

import ast
import collections
import pathlib
import re
import subprocess
import sys

_QUERY = ["bazel", "query", "--noshow_progress", "--noimplicit_deps", "--notool_deps",
          "--output=graph", "--nograph:factored", "deps(//...)"]

_TEST_QUERY = ["bazel", "query", "--noshow_progress",
               "attr(testonly, 1, //...) union kind('_test rule', //...)"]

_FOLDERS = ("common", "scheduler", "coordinator", "gpu_worker", "client_lib")

# The rooms of a worker, the lowest first: each knows those before it.
_WORKER_ROOMS = tuple("//gpu_worker/" + room for room in (
    "store", "plan", "leases", "pull", "session/base", "session/observe", "session/uploads",
    "session/state", "session/handlers", "session:session", "executor", "streams", "core",
    "service"))
_MIDDLES = ("//client_lib/session", "//gpu_worker/plan", "//gpu_worker/store",
            "//gpu_worker/leases", "//gpu_worker/session", "//gpu_worker/executor",
            "//gpu_worker/streams", "//gpu_worker/core", "//gpu_worker/device/fake")
_GRPC = ("@sys//:grpc",)
_TORCH = ("@torch//",)

_PYTHON = "//client_lib/python/djinn"
# The modules of the package that use the subpackages.
_PYTHON_USERS = tuple(f"{_PYTHON}:{name}" for name in ("__init__", "_compile"))

# (rule, folders that obey it, exceptions, what they must not reach)
_RULES = [
    ("common knows nobody", ("//common",), (),
     ("//scheduler", "//coordinator", "//gpu_worker", "//client_lib", "//tests")),
    ("scheduler knows common only", ("//scheduler",), (),
     ("//coordinator", "//gpu_worker", "//client_lib", "//tests") + _TORCH + _GRPC),
    ("coordinator knows common and scheduler, and no torch", ("//coordinator",), (),
     ("//gpu_worker", "//client_lib", "//tests") + _TORCH),
    ("gpu_worker knows common and scheduler", ("//gpu_worker",), (),
     ("//coordinator", "//client_lib", "//tests")),
    ("client_lib knows common", ("//client_lib",), ("//client_lib/examples",),
     ("//scheduler", "//coordinator", "//gpu_worker", "//tests")),
    ("in common, torch is known to common/torch alone", ("//common",), ("//common/torch",),
     _TORCH),
    ("in common, gRPC is known to common/net alone", ("//common",), ("//common/net",), _GRPC),
    ("a front end needs the protos alone", ("//tests/front_end:layer",), (),
     _TORCH + ("//client_lib", "//common", "//scheduler", "//coordinator", "//gpu_worker")),
    ("the middles know neither gRPC nor torch", _MIDDLES, (), _TORCH + _GRPC),
    ("a worker opens CUDA at run time",
     ("//gpu_worker:djinn-worker", "//gpu_worker/device/cpu", "//gpu_worker/device/torch"), (),
     ("@torch//:cuda_headers", "@torch//:torch_cuda")),
    ("Python's _dynamo knows nothing of registered functions", (_PYTHON + "/_dynamo",), (),
     _PYTHON_USERS + (_PYTHON + "/_registered",)),
    ("Python's _registered knows nothing of Dynamo", (_PYTHON + "/_registered",), (),
     _PYTHON_USERS + (_PYTHON + "/_dynamo",)),
] + [
    (room + " knows the rooms below it", (room,), (), _WORKER_ROOMS[i + 1:])
    for i, room in enumerate(_WORKER_ROOMS)
]

# Tests may use a whole worker, or a whole cluster, whatever they test.
_TEST = re.compile(r"_test$|_fuzz")
# Sources that only tests use.
_TEST_SOURCE = re.compile(r"/testing/|/fuzz/|_test[._]|_fuzz|_fixture|_benchmark")


def in_folder(label, folders):
    """Whether a label lies in one of the folders, or is one of the labels."""
    return any(label == f or label.startswith((f + "/", f + ":")) or
               (f.endswith("//") and label.startswith(f)) for f in folders)


def read_graph(text):
    edges = collections.defaultdict(list)
    for line in text.splitlines():
        match = re.match(r'\s*"([^"]+)"\s*->\s*"([^"]+)"', line)
        if match:
            edges[match.group(1)].append(match.group(2))
    return edges


def read_includes(root):
    """The #include lines between sources below `root` that are no tests, as edges between
    labels such as //common/net:tls.h."""
    edges = collections.defaultdict(list)
    for file in sorted(file for folder in _FOLDERS for file in (root / folder).rglob("*.*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in (".cc", ".cu", ".h") or _TEST_SOURCE.search(path):
            continue
        for included in re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE):
            if included.startswith(tuple(f + "/" for f in _FOLDERS)):
                edges[_file_label(path)].append(_file_label(included))
    return edges


def _file_label(path):
    folder, _, name = path.rpartition("/")
    return f"//{folder}:{name}"


def read_imports(folder):
    """The imports among the Python files of a folder, as edges between labels below _PYTHON."""
    edges = collections.defaultdict(list)
    for file in sorted(folder.rglob("*.py")):
        label = _python_label(file.relative_to(folder).with_suffix("").parts)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and re.match(r"djinn\b", node.module or ""):
                module = node.module.split(".")[1:]
                things = [[*module, name.name] for name in node.names] + [module] * bool(module)
                edges[label] += map(_python_label, things)
    return edges


def _python_label(parts):
    return "/".join((_PYTHON, *parts[:-1])) + ":" + parts[-1]


def path_to(edges, start, forbidden):
    """The first path from `start` to a forbidden label, or None."""
    before = {start: None}
    queue = collections.deque([start])
    while queue:
        label = queue.popleft()
        if label != start and in_folder(label, forbidden):
            path = [label]
            while before[path[-1]] is not None:
                path.append(before[path[-1]])
            return path[::-1]
        for target in edges.get(label, ()):
            if target not in before:
                before[target] = label
                queue.append(target)
    return None


def broken_rules(edges):
    broken = []
    for rule, folders, exceptions, forbidden in _RULES:
        for start in sorted(edges):
            if rule.endswith("below it") and _TEST.search(start):
                continue
            if in_folder(start, folders) and not in_folder(start, exceptions):
                path = path_to(edges, start, forbidden)
                if path:
                    broken.append("%s: %s" % (rule, " -> ".join(path)))
                    break
    return broken


def package_of(label):
    return label.partition(":")[0]


def package_cycles(edges, test_targets):
    """One cycle of subfolders for each folder that has any, as text.

    The edges are between targets, or between sources.
    """
    packages = collections.defaultdict(set)
    for start, targets in edges.items():
        for target in targets:
            if start in test_targets or target in test_targets:
                continue
            a, b = package_of(start), package_of(target)
            if a != b and a.startswith("//"):
                packages[a].add(b)
    cycles = []
    for folder in _FOLDERS:
        root = "//" + folder
        inside = {p: sorted(t for t in packages[p] if in_folder(t, (root,)))
                  for p in sorted(packages) if in_folder(p, (root,))}
        cycle = find_cycle(inside)
        if cycle:
            cycles.append("subfolders of %s form no cycle: %s" % (folder, " -> ".join(cycle)))
    return cycles


def find_cycle(edges):
    """A path whose last element is its first, or None."""
    done = set()
    for start in edges:
        path, stack = [], [(start, iter(edges.get(start, ())))]
        on_path = {start}
        path.append(start)
        while stack:
            node, targets = stack[-1]
            target = next(targets, None)
            if target is None:
                stack.pop()
                path.pop()
                on_path.discard(node)
                done.add(node)
            elif target in on_path:
                return path[path.index(target):] + [target]
            elif target not in done:
                stack.append((target, iter(edges.get(target, ()))))
                path.append(target)
                on_path.add(target)
    return None


def run_query(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, universal_newlines=True).stdout


def main():
    edges = read_graph(run_query(_QUERY))
    if not edges:
        print("the build graph is empty")
        return 1
    test_targets = set(run_query(_TEST_QUERY).split())
    package = pathlib.Path(_PYTHON.strip("/"))
    broken = (broken_rules({**edges, **read_imports(package)})
              + package_cycles(edges, test_targets)
              + package_cycles(read_includes(pathlib.Path()), set()))
    for line in broken:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
