"""Programs that have gRPC, protobuf and Abseil of their own beside libdjinn_client.so.

A name is sought first in the library that was loaded first. The tests therefore load Djinn's
first, the program's first, and one that has all functions of Djinn's third-party libraries and
returns from none.
"""

import glob
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

import torch

from tests.python.remote_case import RemoteCase, run_program

_LIBRARY = os.path.abspath("client_lib/libdjinn_client.so")
_HOST = "tests/coexistence/host"
_DEBIAN = ("libprotobuf.so.32", "libgrpc.so.29", "libgrpc++.so.1.51", "libspdlog.so.1.10")
_THIRD_PARTY = re.compile(
    r"(absl|fmt|grpc|grpc_core|grpc_event_engine|google::protobuf|re2|spdlog)::|"
    r"(ares|gpr|grpc|upb|XXH(3|32|64|128))_")
_COMPUTE = """
import torch
import djinn
x = torch.arange(12.).reshape(3, 4)
assert torch.equal((x.to("remote_accelerator") @ x.T.to("remote_accelerator")).cpu(), x @ x.T)
try:
    djinn.connect("127.0.0.1:1", token="x")
except djinn.Error as error:
    assert error.reason == "SESSION_OPEN", error
djinn.close()
print("computed")
"""


def preload(*libraries):
    """With what is loaded first anyway, which is a sanitizer's runtime."""
    return {"LD_PRELOAD": " ".join(filter(None, (os.environ.get("LD_PRELOAD"), *libraries)))}


def functions(path, *options):
    """The names of a library's functions."""
    lines = subprocess.run(["nm", "--defined-only", *options, path], capture_output=True,
                           text=True, check=True).stdout.splitlines()
    return {parts[2] for parts in map(str.split, lines) if len(parts) == 3 and parts[1] in "TW"}


def make_poison(folder):
    """Makes a library that has the functions of Djinn's third-party libraries.

    Whoever calls one ends with SIGILL. Functions that libtorch has are left out, because it
    calls them by name.
    """
    names = set()
    for archive in glob.glob("../private/*.a"):
        names |= functions(archive)
    libtorch = pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so"
    names = sorted(names - functions(libtorch, "--dynamic", "--without-symbol-versions"))
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    chosen = [name for name, text in zip(names, plain) if _THIRD_PARTY.match(text)]
    source = pathlib.Path(folder, "poison.s")
    source.write_text(".text\n" + "".join(
        f'.globl "{name}"\n.type "{name}", @function\n"{name}":\nud2\n' for name in chosen)
        + '.section .note.GNU-stack,"",@progbits\n', encoding="utf-8")
    library = pathlib.Path(folder, "libpoison.so")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", library, source], check=True)
    return str(library), len(chosen)


class CppTest(unittest.TestCase):

    def assert_both_work(self, *first):
        """The C++ program does, with these libraries first in the search for names."""
        done = subprocess.run([_HOST], capture_output=True, text=True, timeout=280,
                              env={**os.environ, **preload(*first)}, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "both worked\n"), done.stderr)

    def test_both_work_as_linked(self):
        self.assert_both_work()

    def test_both_work_with_djinns_library_first(self):
        self.assert_both_work(_LIBRARY)

    def test_both_work_with_the_programs_libraries_first(self):
        self.assert_both_work(*_DEBIAN)


class PythonTest(RemoteCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.poison, cls.poisoned = make_poison(folder.name)
        cls.session = {"DJINN_COORDINATOR": cls.cluster.coordinator,
                       "DJINN_TOKEN_FILE": cls.cluster.token_file}

    def assert_computes(self, before="", **environment):
        done = run_program(before + _COMPUTE, **self.session, **environment)
        self.assertEqual(done.stdout, "computed\n")

    def test_nothing_outside_is_called_in_place_of_what_is_inside(self):
        self.assert_computes(**preload(self.poison))

    def test_that_library_has_many_functions_and_ends_who_calls_one(self):
        self.assertGreater(self.poisoned, 10000)
        done = run_program("import ctypes; ctypes.CDLL(None).grpc_init()", check=False,
                           **preload(self.poison))
        self.assertEqual(done.returncode, -signal.SIGILL)

    def test_library_may_be_visible_to_all_and_first(self):
        self.assert_computes(f"""
import ctypes, torch
ctypes.CDLL({_LIBRARY!r}, ctypes.RTLD_GLOBAL)
for name in {_DEBIAN}: ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
ctypes.CDLL("libgrpc.so.29").grpc_init()
""", DJINN_LIBRARY=_LIBRARY)

    def test_library_may_be_visible_to_all_and_last(self):
        self.assert_computes(f"""
import ctypes, torch
for name in {_DEBIAN}: ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
ctypes.CDLL("libgrpc.so.29").grpc_init()
ctypes.CDLL({_LIBRARY!r}, ctypes.RTLD_GLOBAL)
""", DJINN_LIBRARY=_LIBRARY)
