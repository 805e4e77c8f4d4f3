"""Checks that dependencies between the folders point one way.

    common <- scheduler <- {coordinator, gpu_worker};  common <- client_lib

and that the middles know neither gRPC nor torch (docs/design/architecture.md). Reads
the build graph with one query; builds nothing. Prints each broken rule with a
path that shows it, and then exits 1.

usage: check_dependencies.py [GRAPH]   GRAPH: a saved query output, for tests
"""

import collections
import re
import subprocess
import sys

_QUERY = ["bazel", "query", "--noshow_progress", "--noimplicit_deps", "--notool_deps",
          "--output=graph", "--nograph:factored", "deps(//...)"]

_MIDDLES = ("//client_lib/session", "//gpu_worker/plan", "//gpu_worker/memory",
            "//gpu_worker/cache", "//gpu_worker/queue", "//gpu_worker/session",
            "//gpu_worker/core", "//gpu_worker/device/fake")
_GRPC = ("@sys//:grpc",)
_TORCH = ("@torch//",)

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
]


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
            if in_folder(start, folders) and not in_folder(start, exceptions):
                path = path_to(edges, start, forbidden)
                if path:
                    broken.append("%s: %s" % (rule, " -> ".join(path)))
                    break
    return broken


def main(arguments):
    if arguments:
        with open(arguments[0]) as graph:
            text = graph.read()
    else:
        text = subprocess.run(_QUERY, check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True).stdout
    edges = read_graph(text)
    if not edges:
        print("the build graph is empty")
        return 1
    broken = broken_rules(edges)
    for line in broken:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
