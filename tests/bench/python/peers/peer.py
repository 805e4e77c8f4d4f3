"""Measures one peer, in a process of its own, each round beside local eager:

    python -m tests.bench.python.peers.peer NAME --rounds N --threads N

Prints a line of JSON: versions, and for each workload the seconds of the peer and of
the local run, or why there are none.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed.rpc as rpc

from tests.bench.python.peers.workloads import LARGE, PROMPT, VOCABULARY, Workloads

# The number of calls per round, and the seconds that a round may take. A round
# that would take longer has fewer calls.
CALLS, LONGEST_ROUND = 20, 1.5
# Rounds that are not measured: plans, packed weights, compilation.
WARM_UPS = 3
# The seconds that a workload may take after its warm-ups. A peer that would
# take longer gets fewer rounds.
LONGEST = 20.0


def _inputs(name, number):
    generator = torch.Generator().manual_seed(number)
    if name == "op + read":
        return "op", (float(number),)
    if name == "MLP step":
        return "step", (torch.randn(8, 784, generator=generator),
                        torch.randint(10, (8,), generator=generator))
    if name.startswith("MiniLM"):
        rows, _, tokens = name.split()[1:]
        return "encode", (torch.randint(
            1000, 30000, (int(rows), int(tokens)), generator=generator),)
    if name == "decode token":
        if number % (CALLS + 1) == 0:
            return "prompt", (torch.randint(
                VOCABULARY, (1, PROMPT), generator=generator),)
        return "token", (torch.randint(VOCABULARY, (1, 1), generator=generator),)
    if name == "upload 16 MiB":
        return "upload", (torch.rand(LARGE // 4, generator=generator),)
    return "download", ()


WORKLOADS = ("op + read", "MLP step", "MiniLM 1 x 32", "MiniLM 8 x 32", "MiniLM 1 x 128",
             "MiniLM 8 x 128", "decode token", "upload 16 MiB", "download 16 MiB")


def _measure(name, peer, local, rounds):
    """Rounds of both in turn, with the same inputs; the outputs must agree."""
    seconds = {"peer": [], "local": []}
    calls, begun, number = CALLS, 0.0, 0
    if name == "download 16 MiB":
        for side in (peer, local):
            side("upload", torch.rand(LARGE // 4, generator=torch.Generator().manual_seed(5)))
    largest = 0.0
    for round_ in range(-WARM_UPS, rounds):
        if round_ == 0:
            begun = time.perf_counter()
        given = [_inputs(name, number + i) for i in range(calls + 1)]
        if name == "decode token":
            number = (number // (CALLS + 1) + 1) * (CALLS + 1)
            given = [_inputs(name, number + i) for i in range(calls + 1)]
        number += calls + 1
        outputs = {}
        for side, run in (("peer", peer), ("local", local)):
            spent, outputs[side] = [], []
            for method, arguments in given:
                start = time.perf_counter()
                outputs[side].append(run(method, *arguments))
                spent.append(time.perf_counter() - start)
            # The first call of a round does not count, because it may be the
            # prompt.
            took = statistics.median(spent[1:])
            if round_ >= 0:
                seconds[side].append(took)
            if side == "peer":
                calls = max(1, min(CALLS, int(LONGEST_ROUND / max(took, 1e-6))))
        for one, other in zip(outputs["peer"], outputs["local"]):
            largest = max(largest, (one.double() - other.double()).abs().max().item())
        if round_ >= 0 and time.perf_counter() - begun > LONGEST:
            break
    wrong = largest > (0 if name in ("op + read", "upload 16 MiB", "download 16 MiB",
                                     "decode token") else 1e-4)
    return {**seconds, "error": f"differs by {largest:.3g}" if wrong else ""}


# Each peer yields a function call(method, *arguments) and its version. -------------

@contextlib.contextmanager
def local(threads):
    workloads = Workloads("cpu")
    yield lambda method, *args: getattr(workloads, method)(*args), torch.__version__


@contextlib.contextmanager
def compiled(threads):
    workloads = Workloads("cpu", compiled=True)

    def call(method, *args):
        if method != "encode":
            raise NotImplementedError("measured for the encoder")
        return workloads.encode(*args)

    yield call, torch.__version__


@contextlib.contextmanager
def djinn(threads, mode="strict", shared_memory=True, registered=False):
    if not shared_memory:
        os.environ["DJINN_SHARED_MEMORY"] = "0"
    import djinn as package

    with package.local(workers=1, worker_threads=threads):
        package.set_execution_mode(mode)
        how = {"register": package.compile} if registered else {}
        workloads = Workloads(package.device(), **how)
        yield (lambda method, *args: getattr(workloads, method)(*args),
               "this tree, " + package.where_is(0).transport)


_served = None


def _serve(method, *args):
    """In the other process."""
    global _served
    if _served is None:
        _served = Workloads("cpu")
    return getattr(_served, method)(*args)


def _rpc_server(port, threads, transports):
    torch.set_num_threads(threads)
    rpc.init_rpc("server", rank=1, world_size=2, rpc_backend_options=_options(
        port, transports))
    rpc.shutdown()


def _options(port, transports):
    return rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}", rpc_timeout=120, _transports=transports,
        # Its channels are chosen in the same way.
        _channels=["cma"] if "shm" in transports else ["basic"])


@contextlib.contextmanager
def torch_rpc(threads, transports):
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = torch.multiprocessing.get_context("spawn").Process(
        target=_rpc_server, args=(port, threads, transports))
    server.start()
    rpc.init_rpc("client", rank=0, world_size=2, rpc_backend_options=_options(
        port, transports))
    try:
        yield (lambda method, *args: rpc.rpc_sync("server", _serve, (method, *args)),
               torch.__version__)
    finally:
        rpc.shutdown()
        server.join()


@contextlib.contextmanager
def mycelya(threads):
    import mycelya_torch

    machine = mycelya_torch.RemoteMachine("mock")
    workloads = Workloads(machine.device("cpu"), inference=False)
    try:
        yield (lambda method, *args: getattr(workloads, method)(*args),
               importlib.metadata.version("mycelya-torch"))
    finally:
        machine.stop()


@contextlib.contextmanager
def ray_actor(threads):
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False,
             object_store_memory=512 << 20, configure_logging=False)

    @ray.remote
    class Actor:
        def __init__(self):
            torch.set_num_threads(threads)
            self.workloads = Workloads("cpu")

        def call(self, method, *args):
            return getattr(self.workloads, method)(*args)

    actor = Actor.remote()
    try:
        yield (lambda method, *args: ray.get(actor.call.remote(method, *args)),
               ray.__version__)
    finally:
        ray.shutdown()


@contextlib.contextmanager
def pytriton(threads):
    import numpy as np
    from pytriton.client import ModelClient
    from pytriton.decorators import batch
    from pytriton.model_config import ModelConfig, Tensor
    from pytriton.triton import Triton, TritonConfig

    workloads = Workloads("cpu")

    @batch
    def encode(ids):
        return [workloads.encode(torch.from_numpy(ids)).numpy()]

    import socket

    ports = []
    for _ in range(3):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    config = TritonConfig(http_port=ports[0], grpc_port=ports[1], metrics_port=ports[2])
    with Triton(config=config) as triton:
        triton.bind("encoder", encode, [Tensor(name="ids", dtype=np.int64, shape=(-1,))],
                    [Tensor(name="out", dtype=np.float32, shape=(-1,))],
                    config=ModelConfig(max_batch_size=8))
        triton.run()
        with ModelClient(f"grpc://127.0.0.1:{ports[1]}", "encoder") as client:
            def call(method, *args):
                if method != "encode":
                    raise NotImplementedError("serves whole models")
                return torch.from_numpy(client.infer_batch(args[0].numpy())["out"])

            yield call, importlib.metadata.version("nvidia-pytriton")


PEERS = {
    "local eager": local,
    "torch.compile": compiled,
    "Djinn, strict": djinn,
    "Djinn, fast": lambda threads: djinn(threads, "fast"),
    "Djinn, fast, registered": lambda threads: djinn(threads, "fast", registered=True),
    "Djinn, fast, gRPC": lambda threads: djinn(threads, "fast", shared_memory=False),
    "torch RPC, uv": lambda threads: torch_rpc(threads, ["uv"]),
    "torch RPC, shm": lambda threads: torch_rpc(threads, ["shm"]),
    "mycelya-torch, mock": mycelya,
    "Ray actor": ray_actor,
    "PyTriton": pytriton,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    beside = Workloads("cpu")
    result = {"workloads": {}}
    with PEERS[options.name](options.threads) as (call, version):
        result["version"] = version
        for name in WORKLOADS:
            print(f"bench: {options.name}: {name}", file=sys.stderr)
            try:
                result["workloads"][name] = _measure(
                    name, call, lambda method, *args: getattr(beside, method)(*args),
                    options.rounds)
            except NotImplementedError as reason:
                result["workloads"][name] = {"not_measured": str(reason)}
            except Exception as error:  # noqa: BLE001  (a peer's failure is a result)
                lines = str(error).strip().splitlines() or [""]
                result["workloads"][name] = {
                    "not_measured": f"failed: {type(error).__name__}: {lines[0][:160]}"}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
