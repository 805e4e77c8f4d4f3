"""The packages, in a Debian 12 that has nothing else of ours, do what the pages say.

`mmdebstrap` makes the root, in which systemd starts the units. Needs root, and a network for
Debian's packages.
"""

import glob
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from deploy.packages import build_packages
from deploy.packages import notices
from deploy.testing import programs
from deploy.testing.isolation import isolate
from deploy.testing.systemd import Booted
from deploy.testing.tools import PACKAGES, ROOT

_PROGRAMS = ("client_lib/libdjinn_client.so", "coordinator/djinn-coordinator",
             "coordinator/ctl/djinnctl", "gpu_worker/djinn-worker")
_SITE_PACKAGES = os.path.join(ROOT, ".deps/python/lib/python3.11/site-packages")
# Small, because torch/torch.h takes a minute to compile.
_SMALL = """
#include <ATen/ATen.h>
#include <djinn/connect.h>
#include <djinn/embedded_cluster.h>
#include <iostream>
int main() {
  auto cluster = djinn::EmbeddedCluster::Start({.workers = 1, .worker_threads = 1});
  if (!cluster.ok()) { std::cerr << cluster.status() << std::endl; return 1; }
  absl::Status status = djinn::Connect((*cluster)->connect_options());
  if (!status.ok()) { std::cerr << status << std::endl; return 1; }
  const auto x = at::arange(6, at::kFloat).to(djinn::Device());
  std::cout << x.sum().item<float>() << std::endl;
  return djinn::Close().ok() ? 0 : 1;
}
"""
_SERVICE = """
#include <ATen/ATen.h>
#include <iostream>
int main() {
  const auto x = at::arange(6, at::kFloat).to(at::Device("remote_accelerator:0"));
  std::cout << x.sum().item<float>() << std::endl;
}
"""
_PYTHON = """
import torch
print(torch.arange(6.).to("remote_accelerator").sum().item())
"""

_OPERATOR = {"DJINN_COORDINATOR": "127.0.0.1:17070",
             "DJINN_ADMIN_TOKEN_FILE": "/etc/djinn/admin.token"}

folder = None
output = None


def setUpModule():  # pylint: disable=invalid-name
    global folder, output  # pylint: disable=global-statement
    temporary = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(temporary.cleanup)
    folder = pathlib.Path(temporary.name)
    folder.chmod(0o755)
    output = folder / "packages"
    folders = [os.path.dirname(programs.path(one)) for one in _PROGRAMS]
    build_packages.main(["--output", str(output), "--programs", *folders])


def block(page, language, mark, begin=""):
    """The first block of a page that comes after `mark` and begins like that."""
    text = pathlib.Path(ROOT, "docs", page).read_text(encoding="utf-8").split(mark)[1]
    return re.search(rf"```{language}\n({begin}.*?)```", text, re.DOTALL).group(1)


def write_project(where, source):
    """The project of the page, with this source."""
    where.mkdir(parents=True)
    (where / "CMakeLists.txt").write_text(block("user/cpp.md", "cmake", "## Build"),
                                          encoding="utf-8")
    (where / "service.cc").write_text(source, encoding="utf-8")


def checked(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise AssertionError(f"{command} ended with {done.returncode}:\n"
                             f"{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


class FilesTest(unittest.TestCase):

    def test_no_file_names_the_machine_that_built_it(self):
        for deb in output.glob("*.deb"):
            if "torch" in deb.name:
                continue
            with tempfile.TemporaryDirectory() as root:
                checked("dpkg-deb", "-x", deb, root)
                for path in pathlib.Path(root).rglob("*"):
                    if path.is_file() and not path.is_symlink():
                        self.assertNotIn(str(ROOT).encode(), path.read_bytes(), path)

    def test_packages_carry_the_licences_of_bundled_code(self):
        for name, words in (("libdjinn-client", ("gRPC", "abseil", "protobuf", "re2", "c-ares")),
                            ("djinn-server", ("CLI11", "nlohmann", "prometheus-cpp", "yaml-cpp")),
                            ("djinn-torch", ("PyTorch", "NVIDIA"))):
            (deb,) = output.glob(f"{name}_*.deb")
            with tempfile.TemporaryDirectory() as root:
                checked("dpkg-deb", "-x", deb, root)
                text = pathlib.Path(root, "usr/share/doc", name, "copyright").read_text(
                    encoding="utf-8").lower()
            for word in words:
                self.assertTrue(word.lower() in text, word)

    def test_every_package_whose_headers_the_programs_include_has_its_licence(self):
        headers = set()
        for part in ("common", "scheduler", "coordinator", "gpu_worker"):
            for path in pathlib.Path(ROOT, part).rglob("*"):
                if path.suffix in (".h", ".cc") and not re.search("test|bench|fuzz", str(path)):
                    headers |= set(re.findall(r'(?m)^#include ["<](\S+)[">]',
                                              path.read_text(encoding="utf-8")))
        found = {notices.owner(path) for path in (f"/usr/include/{name}" for name in headers)
                 if os.path.exists(path)}
        # C libraries have declarations alone in their headers; tests use googletest.
        found -= {"libc6-dev", "linux-libc-dev", "libssl-dev", "libsqlite3-dev",
                  "libgtest-dev", "libgmock-dev"}
        self.assertGreater(len(found), 5)
        self.assertLessEqual(found, set(notices.IN_SERVER))

    def test_files_belong_to_root_and_no_other_may_write_them(self):
        for deb in output.glob("*.deb"):
            for line in checked("dpkg-deb", "-c", deb).splitlines():
                if not line.startswith("l"):
                    self.assertRegex(line, r"^.rw.r-.r-. root/root ")

    def test_same_programs_make_the_same_packages(self):
        again = folder / "again"
        folders = [os.path.dirname(programs.path(one)) for one in _PROGRAMS]
        build_packages.main(["--output", str(again), "--programs", *folders, "--",
                             "libdjinn-client", "djinn-server"])
        for deb in again.glob("*.deb"):
            self.assertEqual(deb.read_bytes(), (output / deb.name).read_bytes(), deb.name)


class ArchiveTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        # A folder with a name of its own: nothing may know where the files lie.
        cls.place = folder / "some where"
        cls.place.mkdir()
        (archive,) = output.glob("*.tar.gz")
        checked("tar", "-xzf", archive, "-C", cls.place)
        (cls.prefix,) = cls.place.iterdir()

    def test_programs_find_all_their_libraries_inside(self):
        for name in ("djinn-coordinator", "djinn-worker", "djinnctl"):
            for line in checked("ldd", self.prefix / "lib/djinn" / name).splitlines():
                self.assertNotIn("not found", line)
                path = re.search(r"=> (/\S.*) \(", line)
                if path and not re.search(r"/lib(c|m|dl|rt|pthread|util|stdc\+\+|gcc_s)\.so", path.group(1)):
                    self.assertTrue(path.group(1).startswith(str(self.prefix)), line)

    def test_bundled_libraries_add_their_licences_to_those_of_the_programs(self):
        text = (self.prefix / "share/doc/djinn-server/copyright").read_text(encoding="utf-8")
        for name in ("libgrpc29", "libsqlite3-0", "libcli11-dev"):
            self.assertTrue(f"\n{name}\n====" in text, name)
        # Only Debian has /usr/share/common-licenses, to which its texts refer.
        self.assertTrue("END OF TERMS AND CONDITIONS" in text)

    def test_cmake_project_builds_against_it_and_runs(self):
        write_project(self.place / "project", _SMALL)
        build = self.place / "build"
        checked("cmake", "-S", self.place / "project", "-B", build,
                f"-DCMAKE_PREFIX_PATH={self.prefix}")
        checked("cmake", "--build", build)
        self.assertEqual(checked(build / "service", env={"PATH": "/usr/bin"}), "15\n")


class PortsTest(unittest.TestCase):
    """Projects that get the archive by their package managers."""

    def setUp(self):
        self.place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def build_and_run(self, *options):
        write_project(self.place / "project", _SMALL)
        checked("cmake", "-S", self.place / "project", "-B", self.place / "build", *options)
        checked("cmake", "--build", self.place / "build")
        self.assertEqual(checked(self.place / "build/service", env={"PATH": "/usr/bin"}), "15\n")

    def test_bazel_project_of_the_page_builds_and_runs(self):
        (archive,) = output.glob("*.tar.gz")
        workspace = re.sub(r'https://[^"]*', archive.as_uri(),
                           block("user/cpp.md", "python", "In `WORKSPACE`"))
        workspace = re.sub('sha256 = "[^"]*"',
                           f'sha256 = "{hashlib.sha256(archive.read_bytes()).hexdigest()}"', workspace)
        (self.place / "WORKSPACE").write_text(workspace, encoding="utf-8")
        (self.place / "BUILD.bazel").write_text(block("user/cpp.md", "python", "In `BUILD.bazel`"),
                                                encoding="utf-8")
        (self.place / "service.cc").write_text(_SMALL, encoding="utf-8")
        # Rules that Bazel itself asks for by name, and finds on the network.
        rules = {"rules_cc": f"{ROOT}/third_party/rules_cc",
                 "remote_coverage_tools": f"{ROOT}/third_party/remote_coverage_tools",
                 "rules_java": "/usr/share/bazel/rules/java",
                 "rules_proto": "/usr/share/bazel/rules/proto"}
        bazel = ["bazel", "--batch", "--nohome_rc",
                 f"--output_user_root={self.place}/root"]
        try:
            checked(*bazel, "build", "--color=no", "--cxxopt=-std=c++20", "//:service",
                    *[f"--override_repository={name}={path}" for name, path in rules.items()],
                    cwd=self.place)
            # Its dynamic linker sees nothing but what Bazel put beside it.
            service = os.path.realpath(self.place / "bazel-bin/service")
            self.assertEqual(checked(service, env={"PATH": "/usr/bin"}), "15\n")
        finally:
            # Bazel makes its folders read-only.
            checked("chmod", "-R", "u+w", self.place)

    def test_port_of_vcpkg_installs_what_a_project_builds_with(self):
        # These functions replace vcpkg's, which no registry offers.
        (self.place / "vcpkg.cmake").write_text("""
            function(vcpkg_check_linkage)
            endfunction()
            function(vcpkg_download_distfile result)
              cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILENAME;SHA512" "URLS")
              file(DOWNLOAD "${arg_URLS}" "${WORK}/${arg_FILENAME}" EXPECTED_HASH "SHA512=${arg_SHA512}")
              set(${result} "${WORK}/${arg_FILENAME}" PARENT_SCOPE)
            endfunction()
            function(vcpkg_extract_source_archive result)
              cmake_parse_arguments(PARSE_ARGV 1 arg "" "ARCHIVE" "")
              file(ARCHIVE_EXTRACT INPUT "${arg_ARCHIVE}" DESTINATION "${WORK}/source")
              file(GLOB top "${WORK}/source/*")
              set(${result} "${top}" PARENT_SCOPE)
            endfunction()
            function(vcpkg_install_copyright)
              cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
              foreach(file ${arg_FILE_LIST})
                file(READ "${file}" text)
                file(APPEND "${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright" "${text}")
              endforeach()
            endfunction()
            file(MAKE_DIRECTORY "${CURRENT_PACKAGES_DIR}/share/${PORT}")
            include("${FOLDER}/portfile.cmake")
            """, encoding="utf-8")
        port = output / "ports/vcpkg/djinn"
        self.assertEqual(json.loads((port / "vcpkg.json").read_text(encoding="utf-8"))["name"], "djinn")
        installed = self.place / "installed"
        checked("cmake", f"-DWORK={self.place}/work", f"-DCURRENT_PACKAGES_DIR={installed}",
                "-DPORT=djinn", f"-DFOLDER={port}", "-P", self.place / "vcpkg.cmake")
        shutil.rmtree(self.place / "work")
        licences = (installed / "share/djinn/copyright").read_text(encoding="utf-8")
        self.assertTrue("libgrpc-dev" in licences)
        self.build_and_run(f"-DCMAKE_PREFIX_PATH={installed}")

    def test_conan_makes_what_a_project_requires(self):
        environment = {"PATH": "/usr/bin:/bin", "CONAN_HOME": str(self.place / "home"),
                       "PYTHONPATH": PACKAGES}

        def conan(*arguments):
            return checked(sys.executable, "-m", "conans.conan", *arguments, env=environment)

        conan("profile", "detect")
        conan("create", output / "ports/conan", "--version", build_packages.VERSION)
        (self.place / "conanfile.txt").write_text(
            f"[requires]\ndjinn/{build_packages.VERSION}\n[generators]\nCMakeToolchain\n",
            encoding="utf-8")
        conan("install", self.place, "--output-folder", self.place / "generated")
        self.build_and_run(f"-DCMAKE_TOOLCHAIN_FILE={self.place}/generated/conan_toolchain.cmake",
                           "-DCMAKE_BUILD_TYPE=Release")


class DebianTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        started = time.monotonic()
        cls.root = folder / "root"
        sources = [path for path in glob.glob("/etc/apt/sources.list.d/*") +
                   glob.glob("/etc/apt/sources.list")
                   if re.search(r"(?m)(^|\s)bookworm(\s|$)",
                                pathlib.Path(path).read_text(encoding="utf-8"))]
        checked("mmdebstrap", "--quiet", "--variant=apt", "--mode=root", "bookworm", cls.root,
                *sources)
        for name, kind in (("proc", "proc"), ("sys", "sysfs"), ("dev/shm", "tmpfs")):
            (cls.root / name).mkdir(exist_ok=True)
            cls.mount("-t", kind, kind, cls.root / name)
        for name in ("null", "urandom", "zero"):
            (cls.root / "dev" / name).touch()
            cls.mount("--bind", f"/dev/{name}", cls.root / "dev" / name)
        shutil.copy("/etc/resolv.conf", cls.root / "etc/resolv.conf")
        cls.mount("--bind", output, cls.make("packages"))
        made = time.monotonic()
        cls.install_as_the_page_says()
        cls.inside("DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "
                   "--no-install-recommends /packages/*.deb")
        installed = time.monotonic()
        size = int(cls.inside("dpkg-query -W -f '${Package} ${Installed-Size}\\n' | "
                              "awk '/djinn/ { kilobytes += $2 } END { print kilobytes }'"))
        print(f"a bare root in {made - started:.0f} s, the packages in "
              f"{installed - made:.0f} s, {size / 1000:.0f} MB", flush=True)

    @classmethod
    def install_as_the_page_says(cls):
        """Runs the block of the page, after `./djinn package` has built and without questions."""
        cls.mount("--bind", output, cls.make("checkout/.deps/dist"))
        for path, content in (("checkout/djinn", '#!/bin/sh\n[ "$*" = package ]\n'),
                              ("usr/local/bin/sudo", '#!/bin/sh\nexec "$@"\n')):
            (cls.root / path).write_text(content, encoding="utf-8")
            (cls.root / path).chmod(0o755)
        (cls.root / "etc/apt/apt.conf.d/test").write_text(
            'APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\n', encoding="utf-8")
        cls.inside("apt-get update -qq && cd /checkout && "
                   + block("operator/deploy.md", "sh", "\n## Packages\n"),
                   DEBIAN_FRONTEND="noninteractive")

    @classmethod
    def mount(cls, *arguments):
        """Mounts until the tests end: the folder is removed then."""
        checked("mount", *arguments)
        cls.addClassCleanup(checked, "umount", "--lazy", arguments[-1])

    @classmethod
    def make(cls, name):
        path = cls.root / name
        path.mkdir(parents=True)
        return path

    @classmethod
    def inside(cls, script, **environment):
        """Runs a script in the root; returns what it prints."""
        return checked("chroot", cls.root, "/bin/bash", "-euc", script,
                       env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                            "HOME": "/root", "LC_ALL": "C.UTF-8", **environment})

    def beside_systemd(self, script, **environment):
        """Runs a script in the booted root; returns what it prints."""
        done = self.systemd.run(script, **environment)
        if done.returncode:
            self.fail(f"{script}\n{done.stdout[-3000:]}{done.stderr[-3000:]}" + self.systemd.run(
                "journalctl --no-pager --lines=40 --output=cat").stdout)
        return done.stdout

    def start_units(self):
        """Boots the root and enables and starts the units, as the page says."""
        self.inside("DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "
                    "--no-install-recommends systemd")
        self.inside("systemd-sysusers djinn.conf && systemd-tmpfiles --create djinn.conf")
        for name in ("etc/djinn/coordinator.yaml", "etc/djinn/workers/w0.yaml"):
            # The network is this machine's, where the port may be in use.
            config = block("operator/deploy.md", "yaml", "Write the configurations.", f"# /{name}\n")
            (self.root / name).write_text(
                config.replace("127.0.0.1:7070", "127.0.0.1:17070"), encoding="utf-8")
        self.inside("chgrp -R djinn /etc/djinn; chmod 640 /etc/djinn/*.yaml /etc/djinn/workers/*")
        self.systemd = Booted(self.root)
        self.addCleanup(self.systemd.close)
        self.beside_systemd(block("operator/deploy.md", "sh", "Tokens belong to the user:"))

    def await_worker(self, operator):
        deadline = time.monotonic() + 120
        while not re.search(r"w0\b.*\bACTIVE\b", workers := self.beside_systemd(
                "djinnctl get workers || true", **operator)):
            self.assertLess(time.monotonic(), deadline, workers)
            time.sleep(0.2)

    def test_1_installed_from_packages_it_serves_cpp_python_and_operators(self):
        self.start_units()
        self.addCleanup(self.beside_systemd, "systemctl stop 'djinn-*' && "
                        "! systemctl list-units --state=failed --plain --no-legend | grep djinn")
        operator = {**_OPERATOR, "DJINN_TOKEN_FILE": "/etc/djinn/research.token"}
        self.await_worker(operator)
        with self.subTest("a C++ service, built by CMake outside the tree"):
            self.inside("DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "
                        "--no-install-recommends cmake g++ make pkgconf")
            started = time.monotonic()
            write_project(self.root / "project", _SERVICE)
            self.inside("cmake -S /project -B /build && cmake --build /build")
            self.assertEqual(self.beside_systemd("/build/service", **operator), "15\n")
            print(f"from the packages to a result of a C++ program: "
                  f"{time.monotonic() - started:.0f} s", flush=True)
        with self.subTest("one built by pkg-config, with a cluster of its own"):
            write_project(self.root / "other", _SMALL)
            self.inside(f"cd /other && {block('user/cpp.md', 'sh', '## Build')}")
            self.assertEqual(self.inside("/other/service"), "15\n")
        with self.subTest("Python"):
            self.inside("DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "
                        "--no-install-recommends python3-venv")
            # The root has PyTorch already.
            self.mount("--bind", "-o", "ro", _SITE_PACKAGES, self.make("site"))
            wheel = shutil.copy(self.build_wheel(), self.make("wheel"))
            self.inside("python3 -m venv /venv && "
                        "echo /site >$(echo /venv/lib/python3.*/site-packages)/torch.pth && "
                        f"/venv/bin/pip install --no-deps --no-index /wheel/{os.path.basename(wheel)}")
            self.assertEqual(self.inside(f"/venv/bin/python -c '{_PYTHON}'", **operator), "15.0\n")
            # No other user of OpenSSL decides about the exit handler of this one.
            self.assertIn("libcrypto", self.inside("ls /venv/lib/python3.*/site-packages/djinn.libs"))
        with self.subTest("grpcurl"):
            shutil.copy(os.path.join(ROOT, ".deps/grpcurl/grpcurl"), self.root / "usr/bin")
            self.assertIn("djinn.v1.Admin", self.inside(
                'grpcurl -plaintext -H "authorization: Bearer $(cat /etc/djinn/admin.token)" '
                "127.0.0.1:17070 list"))

    def active(self):
        return self.beside_systemd("systemctl list-units --state=active,activating,failed --plain "
                                   "--no-legend 'djinn-*' | cut -d' ' -f1").split()

    def links(self):
        return [path.name for path in (self.root / "etc/systemd/system").glob("*.wants/djinn-*")]

    def test_2_removed_package_leaves_no_daemon_and_no_enabled_unit(self):
        self.start_units()
        # This instance was started but not enabled.
        config = (self.root / "etc/djinn/workers/w0.yaml").read_text(encoding="utf-8")
        (self.root / "etc/djinn/workers/w1.yaml").write_text(
            config.replace("w0", "w1"), encoding="utf-8")
        self.inside("chgrp djinn /etc/djinn/workers/w1.yaml; chmod 640 /etc/djinn/workers/w1.yaml")
        self.beside_systemd("systemctl start djinn-worker@w1")
        units = ["djinn-coordinator.service", "djinn-worker@w0.service", "djinn-worker@w1.service"]
        self.assertLessEqual(set(units), set(self.active()))
        self.assertEqual(sorted(self.links()), units[:2])
        with self.subTest("an upgrade leaves them"):
            self.make_upgrade()
            for mark, where in (("`apt` replaces the programs", "/upgrade"),
                                ("`apt` takes an older package", "/packages")):
                before = self.processes()
                self.beside_systemd(f"cd {where} && " + block("operator/upgrade.md", "sh", mark),
                                    PATH="/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                    DEBIAN_FRONTEND="noninteractive")
                self.assertLessEqual(set(units), set(self.active()))
                self.assertEqual(sorted(self.links()), units[:2])
                after = self.processes()
                for unit in ("djinn-coordinator", "djinn-worker@w0"):
                    self.assertNotEqual(after[unit][0], before[unit][0])
                    self.assertFalse(after[unit][1].endswith("(deleted)"), after)
                # w1 was not restarted, so it runs the earlier programs.
                self.assertEqual(after["djinn-worker@w1"][0], before["djinn-worker@w1"][0])
                self.assertTrue(after["djinn-worker@w1"][1].endswith("(deleted)"), after)
        self.beside_systemd("apt-get remove -y -qq djinn-server")
        self.assertEqual((self.active(), self.links()), ([], []))
        self.assertFalse((self.root / "usr/bin/djinn-worker").exists())
        self.assertTrue((self.root / "etc/djinn/coordinator.yaml").exists())
        with self.subTest("a purge removes links that are left"):
            wants = self.root / "etc/systemd/system/multi-user.target.wants"
            wants.mkdir(exist_ok=True)
            (wants / units[1]).symlink_to("/lib/systemd/system/djinn-worker@.service")
            self.inside("apt-get purge -y -qq djinn-server")
            self.assertEqual(self.links(), [])

    def test_3_archive_in_usr_starts_the_same_units(self):
        # apt-get fails for a package that is purged already; dpkg ignores it.
        self.inside("dpkg --purge djinn-server djinn-torch djinn-torch-dev libdjinn-client "
                    "libdjinn-client-dev")
        self.assertFalse((self.root / "usr/lib/djinn").exists())
        # Libraries that only the packages needed go, too.
        self.inside("DEBIAN_FRONTEND=noninteractive apt-get autoremove -y -qq")
        self.inside("DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "
                    "--no-install-recommends systemd")
        self.inside("cd /checkout && " + block("operator/deploy.md", "sh", "unpacked in `/usr`"))
        self.start_units()
        self.await_worker(_OPERATOR)
        self.beside_systemd("systemctl stop 'djinn-*'")

    def make_upgrade(self):
        """Makes a package of the same programs with a higher version, in /upgrade."""
        (deb,) = output.glob("djinn-server_*.deb")
        with tempfile.TemporaryDirectory() as place:
            checked("dpkg-deb", "-R", deb, f"{place}/package")
            control = pathlib.Path(place, "package/DEBIAN/control")
            control.write_text(re.sub("(?m)^Version: ", "Version: 9.",
                                      control.read_text(encoding="utf-8")), encoding="utf-8")
            checked("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build",
                    f"{place}/package", self.make("upgrade") / "djinn-server_9_amd64.deb")
        (torch,) = output.glob("djinn-torch_*.deb")
        shutil.copy(torch, self.root / "upgrade")

    def processes(self):
        """{unit: (process, its program)}; dpkg replaces the files of programs that run."""
        found = {}
        for unit in ("djinn-coordinator", "djinn-worker@w0", "djinn-worker@w1"):
            shown = self.beside_systemd(f"pid=$(systemctl show {unit} -p MainPID --value); "
                                        "echo $pid; readlink /proc/$pid/exe")
            found[unit] = tuple(shown.splitlines())
        return found

    def build_wheel(self):
        package = pathlib.Path(programs.path("client_lib/python/package/djinn"))
        checked(os.path.join(ROOT, ".deps/python/bin/python"),
                os.path.join(ROOT, "deploy/python/build_wheel.py"), f"--package={package}",
                "--programs", programs.path("coordinator/djinn-coordinator"),
                programs.path("gpu_worker/djinn-worker"), f"--output={folder}")
        (wheel,) = folder.glob("*.whl")
        return wheel


if __name__ == "__main__":
    isolate("it mounts and changes the root", "--mount")
    unittest.main()
