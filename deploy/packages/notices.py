"""The licences of what packages, images' archives and wheels have of others."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

# Debian's packages of what libdjinn_client.so has inside.
IN_CLIENT = ("libabsl-dev", "libc-ares-dev", "libfmt-dev", "libgrpc-dev", "libprotobuf-dev",
             "libre2-dev", "libspdlog-dev", "libxxhash-dev")
# Debian's packages whose headers have code that is compiled into the programs.
IN_SERVER = ("libabsl-dev", "libcli11-dev", "libcpp-httplib-dev", "libfmt-dev", "libgrpc-dev",
             "libgrpc++-dev", "libprotobuf-dev", "libspdlog-dev", "libxxhash-dev", "libyaml-cpp-dev",
             "nlohmann-json3-dev", "prometheus-cpp-dev")
# Libraries that every machine has; a package does not contain them.
OF_SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|stdc\+\+|gcc_s|resolv))\.so")


def _headed(name, text):
    return f"{'=' * 78}\n{name}\n{'=' * 78}\n\n{text}\n"


def of_packages(*names):
    """Returns the licences of Debian's packages, as they have them.

    They refer to files of Debian for the text of the Apache License, which is added.
    """
    texts = {name: pathlib.Path("/usr/share/doc", name, "copyright") for name in names}
    texts["Apache-2.0"] = pathlib.Path("/usr/share/common-licenses/Apache-2.0")
    return "".join(_headed(name, path.read_text(encoding="utf-8")) for name, path in texts.items())


def of_wheels(wheels, *patterns):
    """Returns the licences out of the wheels of a folder, one for each pattern of names."""
    text = ""
    for pattern in patterns:
        (path,) = wheels.glob(pattern)
        with zipfile.ZipFile(path) as wheel:
            found = [name for name in wheel.namelist()
                     if re.search(r"\.dist-info/.*(LICENSE|License|NOTICE)[^/]*$", name)]
            if not found:
                sys.exit(f"{path.name} has no licence")
            for name in sorted(found):
                text += _headed(name, wheel.read(name).decode("utf-8", "replace"))
    return text


def owner(path):
    """Returns the name of Debian's package that has a file, or None."""
    real = os.path.realpath(path)
    for known in (path, real, str(real).removeprefix("/usr")):
        done = subprocess.run(["dpkg", "-S", known], capture_output=True, text=True, check=False)
        if not done.returncode:
            return done.stdout.split(":")[0]
    return None


def libraries(binaries, outside):
    """Returns {name: path} of the libraries of Debian that binaries need, less the system's.

    Libraries below the folder `outside` do not come from Debian.
    """
    needed = {}
    for binary in binaries:
        done = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"ldd {binary}: {done.stdout}{done.stderr}")
        for line in done.stdout.splitlines():
            found = re.match(r"\s*(\S+) => (/\S+)", line)
            if found and not OF_SYSTEM.match(found.group(1)) and (
                    not found.group(2).startswith(str(outside))):
                needed[found.group(1)] = found.group(2)
    return needed


def owners(needed):
    """Returns the sorted names of the packages that libraries() belong to."""
    found = {path: owner(path) for path in needed.values()}
    for path, name in found.items():
        if not name:
            sys.exit(f"{path} belongs to no package of Debian")
    return sorted(set(found.values()))
