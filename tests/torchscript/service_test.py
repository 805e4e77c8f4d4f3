"""Modules that Python scripted or traced, served in C++ from a remote device."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
from torch import nn

import djinn

_FOLDER = "client_lib/examples/torchscript_service/torchscript_service"
# The program is in the runfiles, or in the tree when the test runs by hand.
_PROGRAM = next(
    path for prefix in ("", "bazel-bin/") if (path := pathlib.Path(prefix + _FOLDER)).exists()
)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        states, _ = self.lstm(x)
        return torch.softmax(self.head(states[:, -1]), -1)


def convolutional():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


def _line(tensor):
    elements = " ".join(f"{value:.9g}" for value in tensor.flatten().tolist())
    return f"{' '.join(map(str, tensor.shape))}: {elements}"


def _tensor(line):
    sizes, elements = line.split(":")
    values = [float(word) for word in elements.split()]
    return torch.tensor(values).view([int(word) for word in sizes.split()])


class ServiceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.cluster = djinn.local(worker_threads=1)
        cls.enterClassContext(cls.cluster)

    def serve(self, module, lines):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            module.save(path)
            program = subprocess.run(
                [_PROGRAM, f"--model={path}"],
                env={
                    **os.environ,
                    "DJINN_COORDINATOR": self.cluster.coordinator,
                    "DJINN_TOKEN_FILE": self.cluster.token_file,
                },
                input="".join(line + "\n" for line in lines),
                capture_output=True,
                text=True,
                timeout=120,
            )
        self.assertEqual(program.returncode, 0, program.stderr)
        return program.stdout.splitlines()

    def test_scripted_and_traced_modules(self):
        torch.manual_seed(0)
        with torch.no_grad():
            for name, module, sizes in (
                ("mlp", nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), (4, 6)),
                ("convolutional", convolutional(), (2, 2, 8, 8)),
                ("recurrent", Recurrent(), (3, 7, 6)),
            ):
                module.eval()
                inputs = [torch.randn(sizes) for _ in range(5)]
                saved_modules = [torch.jit.script(module)]
                if name != "recurrent":  # a trace writes the CPU's name into its first state
                    saved_modules.append(torch.jit.trace(module, inputs[0]))
                for saved in saved_modules:
                    with self.subTest(name, kind=type(saved).__name__):
                        answers = self.serve(saved, map(_line, inputs))
                        for answer, value in zip(answers, inputs, strict=True):
                            self.assertTrue(
                                torch.equal(_tensor(answer), module(value)), answer
                            )

    def test_a_bad_request_is_answered_and_the_next_served(self):
        module = torch.jit.script(nn.Linear(2, 1))
        answers = self.serve(module, ["1 3: 1 2 3", "x", "1 2: 0 0"])
        self.assertIn("mat1 and mat2 shapes cannot be multiplied", answers[0])
        self.assertTrue(answers[1].startswith("error: "), answers[1])
        self.assertTrue(torch.equal(_tensor(answers[2]), module.bias.detach().view(1, 1)))
