"""Packages the built archive: libdjinn_client.so, PyTorch's CPU half and the programs."""

import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy, get


class Djinn(ConanFile):
    name = "djinn"
    description = "Runs PyTorch programs on accelerators of other machines"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def validate(self):
        if (self.settings.os, self.settings.arch) != ("Linux", "x86_64"):
            raise ConanInvalidConfiguration("djinn is built for Linux on x86_64")
        if self.settings.get_safe("compiler.libcxx") != "libstdc++11":
            raise ConanInvalidConfiguration("djinn is built for libstdc++11")

    def package_id(self):
        self.info.settings.rm_safe("compiler")
        self.info.settings.rm_safe("build_type")

    def build(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def package(self):
        for folder in ("include", "lib"):
            copy(self, f"{folder}/*", self.build_folder, self.package_folder)
        copy(self, "*/copyright", os.path.join(self.build_folder, "share/doc"),
             os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # find_package(djinn) finds the package's own files, which also find Debian 12's Abseil.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/djinn"]
        self.cpp_info.bindirs = ["lib/djinn"]
        self.cpp_info.libdirs = ["lib/djinn", "lib/djinn/torch/lib"]
        self.cpp_info.libs = ["djinn_client", "torch_cpu", "c10"]
        self.cpp_info.includedirs = ["include", "lib/djinn/torch/include",
                                     "lib/djinn/torch/include/torch/csrc/api/include"]
