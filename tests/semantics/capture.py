"""Runs the zoo's programs and writes what the coordinator keeps of them.

usage: python -m tests.semantics.capture DJINNCTL FOLDER [PROGRAM...]

For each program one file of JSON lines, a graph each with its notes, in the order of
their first definition.
"""

import json
import pathlib
import subprocess
import sys

import transformers

import djinn
from tests.semantics.labels import Labels
from tests.semantics.zoo import PROGRAMS

transformers.logging.set_verbosity_error()


class Graphs:
    """Asks a coordinator for the graphs that it keeps."""

    def __init__(self, djinnctl, cluster):
        self._command = [
            djinnctl, f"--coordinator={cluster.coordinator}",
            f"--token_file={cluster.admin_token_file}", "-o", "json", "get"]

    def _ask(self, *words):
        return json.loads(subprocess.run(
            [*self._command, *words], check=True, capture_output=True, text=True).stdout)

    def fingerprints(self):
        return [graph["fingerprint"] for graph in self._ask("graphs")["graphs"]]

    def get(self, fingerprint):
        return self._ask("graphs", fingerprint)


def capture(program, graphs):
    """The graphs that the program defines."""
    before = set(graphs.fingerprints())
    with Labels():
        program.run(djinn.device())
    djinn.synchronize()
    found = [graphs.get(one) for one in graphs.fingerprints() if one not in before]
    return sorted(found, key=lambda graph: int(graph["ordinal"]))


def capture_each(djinnctl, folder, programs):
    """Writes a file for each; yields the program, its file and its graphs."""
    for program in programs:
        # Uses a cluster of its own, because a cluster that has seen the graphs
        # of other programs does not list the same graphs as new.
        with djinn.local(workers=1, worker_threads=1) as cluster:
            found = capture(program, Graphs(djinnctl, cluster))
        name = f"held_out_{program.name}" if program.held_out else program.name
        file = folder / f"{name}.jsonl"
        file.write_text("".join(f"{json.dumps(graph)}\n" for graph in found))
        yield program, file, found


def main():
    djinnctl, folder, *names = sys.argv[1:]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [program for program in PROGRAMS if not names or program.name in names]
    for program, _, found in capture_each(djinnctl, folder, chosen):
        nodes = sum(len(graph["nodes"]) for graph in found)
        print(f"{program.name}: {len(found)} graphs, {nodes} nodes", flush=True)


if __name__ == "__main__":
    main()
