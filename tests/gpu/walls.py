"""Checks the walls between two tenants on one device, and times what they cost.

    python3 -m tests.gpu.walls [--device cuda:0] [--memory 16GiB] [--rounds N] [--json FILE]

Two tenants have programs of their own on a worker with `isolation.mode: process`. One looks
for the other's bytes, processes are killed, and the same programs run on a worker with `mode:
shared`, in turn. Writes JSON, with the calls that the sandbox refused; ends with status 1 if a
check failed.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import djinn
from tests.operating.cluster import PATIENCE, Cluster

# The value that fills the victim's memory. It is not 0, and PyTorch makes no such number.
PATTERN = 0x5EC2E7A5
_TENANTS = """
tenants:
  - {name: victim, token_file: victim.token}
  - {name: attacker, token_file: attacker.token}
"""
_SETTLING_TURNS = 3
_CALLS = 8


def _programs(folder):
    """A folder in which Cluster finds the programs that djinn.local() would start."""
    package = os.environ.get("DJINN_BIN_DIR") or os.path.dirname(djinn.__file__)
    for part, name in (("coordinator", "djinn-coordinator"), ("gpu_worker", "djinn-worker")):
        if os.path.exists(os.path.join(part, name)):
            return ""  # a test's own folder
        os.makedirs(os.path.join(folder, part))
        os.symlink(os.path.join(package, name), os.path.join(folder, part, name))
    return folder


class _Work:
    """The programs of tenants, by name."""

    def __init__(self, device):
        self.device, self.kept, self.steps = device, [], {}

    def hold(self, mebibytes):
        """Keeps memory full of the pattern, and returns the number of its elements."""
        self.kept.append(torch.full((mebibytes << 18,), PATTERN, dtype=torch.int32)
                         .to(self.device))
        return self.kept[-1].numel()

    def whole(self):
        """The number of elements that are still the pattern."""
        return sum(int((one == PATTERN).sum().cpu()) for one in self.kept)

    def look(self, mebibytes):
        """Foreign elements in memory that nothing was written to, by how it was got."""
        found = {}
        for how, make in (("empty", self._empty), ("ctc_loss", self._unwritten_rows)):
            try:
                memory = make(mebibytes).contiguous().view(torch.int32)
                found[how] = int((memory == PATTERN).sum().cpu())
            except RuntimeError as error:
                found[how] = str(error)[:200]
        return found

    def _empty(self, mebibytes):
        return torch.empty(mebibytes << 18, dtype=torch.int32, device=self.device)

    def _unwritten_rows(self, mebibytes):
        # One sequence of one step and others of none leave most of log_alpha unwritten.
        steps, width = mebibytes << 12, 31
        loss = torch.ops.aten._ctc_loss(
            torch.zeros(steps, 1, 4).log_softmax(-1).to(self.device),
            torch.ones(1, width, dtype=torch.int64).to(self.device), [1], [width])
        return loss[1]

    def times(self, name):
        """The seconds of the shortest call, and its result."""
        if name not in self.steps:
            torch.manual_seed(31)
            self.steps[name] = getattr(self, "_" + name)()
        seconds = []
        for _ in range(_CALLS):
            begin = time.perf_counter()
            result = self.steps[name]()
            seconds.append(time.perf_counter() - begin)
        return min(seconds), result.flatten().tolist()

    def _request(self):
        left, right = (torch.randn(64, 64).to(self.device) for _ in range(2))
        return lambda: (left @ right).cpu()

    def _training_step(self):
        model = torch.nn.Sequential(
            torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(self.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        inputs = torch.randn(32, 256).to(self.device)
        labels = torch.randint(10, (32,)).to(self.device)

        def step():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            return loss.detach().cpu()

        return step

    def _decode(self):
        width, length, layers = 384, 64, 6
        stack = [[(torch.randn(width, width) / width**0.5).to(self.device) for _ in range(4)]
                 + [torch.randn(length, width).to(self.device) for _ in range(2)]
                 for _ in range(layers)]
        first = torch.randn(1, width).to(self.device)

        def step():
            x = first
            for queries, keys, values, out, key_cache, value_cache in stack:
                key_cache[-1:] = x @ keys
                value_cache[-1:] = x @ values
                scores = ((x @ queries) @ key_cache.T / width**0.5).softmax(-1)
                x = torch.nn.functional.layer_norm(x + scores @ value_cache @ out, (width,))
            return x.sum().cpu()

        return step


_TIMED = ("request", "training_step", "decode")


def _serve(coordinator, token_file):
    """Does what its input asks for, line by line."""
    torch.set_num_threads(1)
    djinn.connect(coordinator, token_file=token_file, recovery="replay",
                  connect_timeout=PATIENCE)
    work = _Work(djinn.device())
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            answer = {"result": getattr(work, method)(*arguments)}
        except Exception as error:  # noqa: BLE001  (the other process reports it)
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), flush=True)
    djinn.close()


class _Tenant:
    def __init__(self, cluster, name):
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.walls", "--serve", cluster.coordinator,
             cluster.path(name + ".token")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, method, *arguments):
        print(json.dumps([method, *arguments]), file=self._program.stdin, flush=True)
        line = self._program.stdout.readline()
        if not line:
            raise RuntimeError(f"a tenant's program ended with {self._program.wait(PATIENCE)}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def close(self):
        self._program.stdin.close()
        self._program.stdout.close()
        self._program.wait(PATIENCE)


class Side:
    """A worker of one mode, and its tenants' programs."""

    def __init__(self, mode, options):
        self._folder = tempfile.TemporaryDirectory()
        folder = os.path.join(self._folder.name, "cluster")
        os.mkdir(folder)
        for name in ("victim", "attacker"):
            token = os.open(os.path.join(folder, name + ".token"), os.O_CREAT | os.O_WRONLY, 0o600)
            os.write(token, f"{name}-0123456789abcdef".encode())
            os.close(token)
        self._log = open(os.path.join(self._folder.name, "log"), "w+", encoding="utf-8")
        device = f"{{kind: '{options.device}', memory: {options.memory}, calibrate: false"
        device += ", threads: 1}" if options.device == "cpu" else "}"
        isolation = f"{{mode: {mode}" + (", executors: 3}" if mode == "process" else "}")
        self.tenants = {}
        self.cluster = Cluster(
            folder, (), tenants=_TENANTS, log=self._log,
            programs=_programs(self._folder.name))
        self.cluster.write("worker.yaml", f"""
worker_id: worker
listen: 127.0.0.1:0
coordinator: {self.cluster.coordinator}
join_token_file: join.token
monitoring: {{listen: '127.0.0.1:0'}}
device: {device}
isolation: {isolation}
""")
        try:
            self.cluster.start("worker")
            for name in ("victim", "attacker"):
                self.tenants[name] = _Tenant(self.cluster, name)
        except BaseException:
            print(self.log(), file=sys.stderr)
            self.stop()
            raise

    def log(self):
        with open(self._log.name, encoding="utf-8") as file:
            return file.read()

    def metric(self, name):
        """The metric's sum, or None where there is none."""
        text = self.cluster.http("worker", "metrics")[1]
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, found)) if found else None

    def executors(self):
        return [int(pid) for pid in re.findall(r'executor started.* pid="?(\d+)', self.log())]

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)

    def stop(self):
        for tenant in self.tenants.values():
            tenant.close()
        self.cluster.stop()
        self._log.close()
        self._folder.cleanup()


class Run:
    def __init__(self, options):
        self.options, self.checks, self.times = options, [], []
        self.facts = {}

    def check(self, what, wrong):
        """Notes a check; `wrong` is empty when it passed."""
        self.checks.append({"check": what, "error": str(wrong) if wrong else ""})
        print(f"walls: {what}: {wrong or 'passed'}", file=sys.stderr, flush=True)

    def check_walls(self, side):
        victim, attacker = side.tenants["victim"], side.tenants["attacker"]
        held = victim.do("hold", self.options.mebibytes)
        executors = side.executors()
        self.check("each tenant has a process",
                   "" if len(set(executors)) >= 2 else f"processes {executors}")
        self.facts["context_bytes"] = side.metric("djinn_worker_executor_context_bytes")
        self._look(attacker, "while the victim holds memory")
        self.check("the victim's bytes are whole", self._lost(victim, held))
        # The first executor took the first lease, which is the victim's.
        side.kill(executors[0])
        self._look(attacker, "after a victim's process was killed")
        self.facts["foreign_elements_from_the_driver"] = self._look_without_djinn()
        self.check("the victim goes on in another process", self._lost(victim, held))
        for pid in side.executors():
            if pid != executors[0] and os.path.exists(f"/proc/{pid}"):
                side.kill(pid)
        self.check("the victim goes on after all were killed", self._lost(victim, held))
        self._look(attacker, "in another process of its own")
        # Libraries ask for more than they need. What the driver needs is not among it.
        lines = sorted(set(re.findall(r"sandbox refused a system call.*", side.log())))
        self.facts["refused_calls"] = lines
        self.check("the sandbox refused nothing that the device needs",
                   [line for line in lines if re.search(r"/dev/nvidia|\.so|number=16\b", line)])

    def _look(self, attacker, when):
        found = attacker.do("look", self.options.mebibytes)
        foreign = {how: count for how, count in found.items() if not isinstance(count, int)
                   or count}
        # An operator that the worker refuses shows nothing.
        self.facts["look " + when] = found
        self.check("no foreign bytes " + when,
                   {how: count for how, count in foreign.items() if isinstance(count, int)})

    @staticmethod
    def _lost(victim, held):
        whole = victim.do("whole")
        return "" if whole == held else f"{whole} of {held} elements"

    def _look_without_djinn(self):
        """Counts the victim's elements in new memory of another process; None on a CPU."""
        if self.options.device == "cpu":
            return None
        program = (f"import torch; memory = torch.empty({self.options.mebibytes << 20}, "
                   f"dtype=torch.int32, device='{self.options.device}'); "
                   f"print(int((memory == {PATTERN}).sum()))")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=120,
                              env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
        return int(done.stdout) if done.returncode == 0 else done.stderr[-300:]

    def measure(self, sides):
        for name in _TIMED:
            row = {"work": name, "process": [], "shared": []}
            for turn in range(-_SETTLING_TURNS, self.options.rounds):
                # The order changes, so that neither side always follows the other.
                results = {}
                for mode in list(sides)[::1 if turn % 2 else -1]:
                    seconds, results[mode] = sides[mode].tenants["attacker"].do("times", name)
                    if turn >= 0:
                        row[mode].append(seconds)
                if results["process"] != results["shared"] and self.options.device == "cpu":
                    self.check(f"{name} is equal in both modes", results)
            row["ratio"] = statistics.median(
                one / other for one, other in zip(row["process"], row["shared"]))
            self.times.append(row)
            print(f"walls: {name}: process {1e3 * statistics.median(row['process']):.3f} ms, "
                  f"shared {1e3 * statistics.median(row['shared']):.3f} ms, "
                  f"{row['ratio']:.3f}", file=sys.stderr, flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="run.sh walls")
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu")
    parser.add_argument("--memory", default="24GiB", help="of each worker")
    parser.add_argument("--mebibytes", type=int, default=1024, help="that are looked through")
    parser.add_argument("--rounds", type=int, default=40, help="of measuring")
    parser.add_argument("--json", default="djinn-walls.json", help="file to write")
    options = parser.parse_args(arguments)
    run = Run(options)
    walled = Side("process", options)
    try:
        run.check_walls(walled)
        shared = Side("shared", options)
        try:
            run.measure({"process": walled, "shared": shared})
        finally:
            shared.stop()
    except Exception as error:  # noqa: BLE001  (the report shows it, with the log)
        run.check("the run", f"{type(error).__name__}: {error}")
        print(walled.log(), file=sys.stderr)
    finally:
        walled.stop()
    passed = not any(check["error"] for check in run.checks)
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump({"settings": vars(options), "passed": passed, "checks": run.checks,
                   "facts": run.facts, "unit": "seconds", "results": run.times}, file, indent=1)
    print(f"{'passed' if passed else 'FAILED'}; wrote {options.json}")
    return 0 if passed else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        _serve(*sys.argv[2:])
    else:
        sys.exit(main())
