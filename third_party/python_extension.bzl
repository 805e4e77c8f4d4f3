"""What extensions for CPython are built against, PyTorch's side included.

Debian's Python is the one that builds and tests use. `./djinn wheel` also builds for those of
third_party/pythons.txt, which `./djinn setup pythons` unpacks; $DJINN_PYTHONS is their folder.
A build does not need them, so without them there are no targets for them.

pybind11 is the one that PyTorch brings, so that both agree on their exceptions.
"""

_HEAD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])
"""

_LIBRARY = """
# The process has loaded libtorch_python before the extension, and the CUDA libraries
# that it needs are not on this machine.
cc_library(
    name = "{name}",
    hdrs = glob(["include/pybind11", "include/{python}"], exclude_directories = 0),
    includes = ["include", "include/{python}"],
    linkopts = [
        "-Wl,--unresolved-symbols=ignore-in-shared-libs",
        "-L{lib}",
        "-Wl,--push-state,--no-as-needed",
        "-ltorch_python",
        "-Wl,--pop-state",
    ],
    deps = ["@torch//:torch_without_rpath"],
)
"""

def _python_extension_impl(repository_ctx):
    site = repository_ctx.os.environ.get("DJINN_SITE", "")
    if not site:
        site = str(repository_ctx.path(Label("//:WORKSPACE")).dirname) + "/.deps/site"
    own = repository_ctx.os.environ.get("DJINN_PYTHON_HEADERS", "/usr/include/python3.11")
    headers = {"python": own}
    folder = repository_ctx.os.environ.get("DJINN_PYTHONS", "")
    if folder:
        for entry in repository_ctx.path(folder).readdir():
            version = entry.basename
            headers[version] = "%s/include/python%s" % (entry, version)
    build = _HEAD
    for name, path in headers.items():
        if not repository_ctx.path(path + "/Python.h").exists:
            fail("Python's headers are missing: run ./djinn setup")
        repository_ctx.symlink(path, "include/" + name)
        build += _LIBRARY.format(
            lib = site + "/torch/lib",
            name = "python_extension" if name == "python" else name,
            python = name,
        )
    repository_ctx.symlink(site + "/torch/include/pybind11", "include/pybind11")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", build)
    repository_ctx.file("versions.bzl", "VERSIONS = %s\n" % sorted(
        [name for name in headers if name != "python"],
    ))

python_extension = repository_rule(
    implementation = _python_extension_impl,
    doc = "Declares @python_extension, headers and link options, and @python_extension//:3.12 " +
          "and the like for the further versions, which versions.bzl lists.",
    environ = ["DJINN_PYTHONS", "DJINN_PYTHON_HEADERS", "DJINN_SITE"],
    local = True,
)
