"""Writes the files of the console's page as C++: embed.py OUT FILE..."""

import os
import sys

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PIECE = 4096  # Compilers limit the length of one literal.


def literal(content):
    pieces = [content[i:i + _PIECE] for i in range(0, len(content), _PIECE)] or [b""]
    return "\n".join(
        '    "' + "".join("\\%03o" % byte if byte < 32 or byte > 126 or byte in b'"\\?' else chr(byte)
                          for byte in piece) + '"' for piece in pieces)


def main(out, files):
    lines = ['#include "coordinator/console/assets.h"', "",
             "namespace djinn::console {", "namespace {", ""]
    entries = []
    for index, path in enumerate(sorted(files)):
        with open(path, "rb") as file:
            content = file.read()
        name = os.path.basename(path)
        lines += ["constexpr char kContent%d[] =" % index, literal(content) + ";", ""]
        entries.append('    {"%s", "%s", {kContent%d, sizeof(kContent%d) - 1}},' % (
            "/" if name == "index.html" else "/" + name,
            _TYPES[os.path.splitext(name)[1]], index, index))
    lines += ["constexpr Asset kAssets[] = {", *entries, "};", "", "}  // namespace", "",
              "absl::Span<const Asset> Assets() { return kAssets; }", "",
              "}  // namespace djinn::console", ""]
    with open(out, "w", encoding="ascii") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
