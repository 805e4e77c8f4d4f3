"""libdjinn_client.so keeps its third-party libraries to itself.

A program may load other versions of them: nothing of ours may take the place of theirs, and
nothing of theirs the place of ours.
"""

import re
import subprocess
import unittest

_LIBRARY = "client_lib/libdjinn_client.so"
# Libraries of the system whose symbols have versions, and PyTorch's.
_NEEDED = {
    "ld-linux-x86-64.so.2", "libc.so.6", "libc10.so", "libcrypto.so.3", "libgcc_s.so.1",
    "libm.so.6", "libssl.so.3", "libstdc++.so.6", "libtorch_cpu.so", "libz.so.1",
}
_OF_DJINN = re.compile(r"(typeinfo (name )?for |vtable for |VTT for )?djinn::")
_PRIVATE = re.compile(r"\b(absl|grpc|grpc_core|google::protobuf|re2|fmt|spdlog)::|^_?(grpc|gpr|upb|ares)_|^XXH")


def _output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _symbols(*options):
    """The demangled names of the dynamic symbol table that other libraries see."""
    lines = _output("nm", "--dynamic", "--demangle", "--without-symbol-versions", *options,
                    _LIBRARY).splitlines()
    found = [re.match(r"[0-9a-f]* +(\S) (.*)", line).groups() for line in lines]
    # A local symbol has a small letter, and a weak one, too.
    return [name for kind, name in found if kind.isupper() or kind in "uvw"]


class ExportsTest(unittest.TestCase):

    def test_exports_are_few_and_all_of_djinn(self):
        names = _symbols("--defined-only")
        self.assertTrue(any(name.startswith("djinn::Connect(") for name in names))
        self.assertLessEqual(len(names), 200)
        self.assertEqual([name for name in names if not _OF_DJINN.match(name)], [])

    def test_nothing_private_is_sought_in_other_libraries(self):
        # Constructors of thread-local variables that have none are sought, and found nowhere.
        self.assertEqual([name for name in _symbols("--undefined-only")
                          if _PRIVATE.search(name.split("(")[0])
                          and not name.startswith("TLS init function for ")], [])

    def test_needs_libraries_of_the_system_and_pytorch_alone(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", _output("readelf", "--dynamic", "--wide", _LIBRARY))
        self.assertLessEqual(set(needed), _NEEDED)

    def test_a_running_program_can_load_it(self):
        # The room for thread-local variables of such a library is small, and PyTorch's take it.
        flags = _output("readelf", "--dynamic", "--wide", _LIBRARY)
        self.assertNotIn("STATIC_TLS", flags)


if __name__ == "__main__":
    unittest.main()
