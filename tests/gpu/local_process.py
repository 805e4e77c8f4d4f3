"""Runs the same on the same GPU without Djinn, in a process of its own.

PyTorch takes no gradients on a GPU in a process that has another accelerator, which
Djinn's device is. Requests and answers are pickled by torch.save, each behind its
length.
"""

import io
import os
import subprocess
import sys

import torch

from tests.gpu import workloads


def _write(stream, value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    stream.write(len(buffer.getvalue()).to_bytes(8, "little"))
    stream.write(buffer.getvalue())
    stream.flush()


def _read(stream):
    size = stream.read(8)
    if len(size) < 8:
        raise EOFError("the process without Djinn ended")
    return torch.load(io.BytesIO(stream.read(int.from_bytes(size, "little"))),
                      weights_only=False)


class LocalProcess:
    """The methods of workloads.Runner, called in the other process."""

    def __init__(self, device, small, threads):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.local_process", device, str(int(small)),
             str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})

    def call(self, method, *arguments):
        _write(self._process.stdin, (method, arguments))
        error, result = _read(self._process.stdout)
        if error:
            raise RuntimeError(f"without Djinn: {error}")
        return result

    def close(self):
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def main():
    device, small, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    # Output of a library must not come between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    runner = workloads.Runner(
        torch.device(device), workloads.SMALL if small == "1" else workloads.FULL)
    while True:
        try:
            method, arguments = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (None, getattr(runner, method)(*arguments))
        except Exception as error:  # noqa: BLE001  (the other process reports it)
            answer = (f"{type(error).__name__}: {error}", None)
        _write(answers, answer)


if __name__ == "__main__":
    main()
