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
import sys
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

# Libraries from PyPI that bring protobuf (three versions), Abseil and gRPC of their own. They
# lie beside the environment of this test.
_OTHERS_FOLDER = str(pathlib.Path(sys.prefix).parent / "coexistence")
_USE_OTHERS = f"""
import sys
sys.path.append({_OTHERS_FOLDER!r})
import numpy, onnx, onnxruntime, pyarrow, pyarrow.flight
""" + """
def infer():
    value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3])
    node = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "twice", [value("x")], [value("y")]),
        opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (twice,) = session.run(None, {"x": numpy.ones(3, numpy.float32)})
    assert twice.sum() == 6, twice

class Server(pyarrow.flight.FlightServerBase):
    def do_get(self, context, ticket):
        return pyarrow.flight.RecordBatchStream(pyarrow.table({"n": [1, 2, 3]}))

def fetch(server):
    with pyarrow.flight.FlightClient(("127.0.0.1", server.port)) as client:
        table = client.do_get(pyarrow.flight.Ticket(b"n")).read_all()
    assert table.column("n").to_pylist() == [1, 2, 3], table

server = Server("grpc://127.0.0.1:0")
infer()
fetch(server)
"""
_USE_OTHERS_AGAIN = """
infer()
fetch(server)
server.shutdown()
"""
_VISIBLE_TO_ALL = """
import os, sys
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
"""


def preload(*libraries):
    """Returns the LD_PRELOAD of the libraries, after a sanitizer's runtime if any."""
    return {"LD_PRELOAD": " ".join(filter(None, (os.environ.get("LD_PRELOAD"), *libraries)))}


def functions(path, *options):
    """The names of a library's functions."""
    lines = subprocess.run(["nm", "--defined-only", *options, path], capture_output=True,
                           text=True, check=True).stdout.splitlines()
    return {parts[2] for parts in map(str.split, lines) if len(parts) == 3 and parts[1] in "TW"}


def make_poison(folder):
    """Makes a library that has the functions of Djinn's third-party libraries.

    A process that calls one ends with SIGILL. Functions that libtorch has are left out, because it
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
        """Runs the C++ program with these libraries first in the search for names."""
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

    def assert_computes(self, before="", after="", **environment):
        done = run_program(before + _COMPUTE + after, **self.session, **environment)
        self.assertEqual(done.stdout, "computed\n")

    def test_djinn_calls_its_own_libraries_and_not_the_programs(self):
        self.assert_computes(**preload(self.poison))

    def test_the_poison_library_ends_a_program_that_calls_it(self):
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

    def test_onnxruntime_and_arrow_flight_work_when_loaded_before_or_after(self):
        for visibility in ("", _VISIBLE_TO_ALL):
            with self.subTest("before", visibility=visibility):
                self.assert_computes(visibility + _USE_OTHERS, _USE_OTHERS_AGAIN)
            with self.subTest("after", visibility=visibility):
                self.assert_computes(visibility, _USE_OTHERS + _COMPUTE.replace(
                    "print", "str") + _USE_OTHERS_AGAIN)

    def test_no_library_of_others_is_bound_to_ours_nor_ours_to_theirs(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.assert_computes(
            f"import ctypes, torch\nctypes.CDLL({_LIBRARY!r}, ctypes.RTLD_GLOBAL)\n"
            + _VISIBLE_TO_ALL + _USE_OTHERS, _USE_OTHERS_AGAIN,
            DJINN_LIBRARY=_LIBRARY, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=f"{folder}/bindings")
        bound = set()
        for path in pathlib.Path(folder).iterdir():
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    found = re.search(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]", line)
                    if found:
                        bound.add(found.groups())
        ours = {pair for pair in bound if "libdjinn_client.so" in "".join(pair)}
        self.assertGreater(len(ours), 5)
        mixed = {pair for pair in ours if any(_OTHERS_FOLDER in one for one in pair)}
        self.assertEqual(mixed, set())
        self.assertTrue(any(_OTHERS_FOLDER in one for pair in bound for one in pair))
