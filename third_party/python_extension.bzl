"""What an extension for Debian's Python is built against, PyTorch's side included.

pybind11 is the one that PyTorch brings, so that both agree on their exceptions.
"""

_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

# The process has loaded libtorch_python before the extension, and the CUDA libraries
# that it needs are not on this machine.
cc_library(
    name = "python_extension",
    hdrs = glob(["include/*"], exclude_directories = 0),
    includes = ["include", "include/python"],
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
    headers = repository_ctx.path(
        repository_ctx.os.environ.get("DJINN_PYTHON_HEADERS", "/usr/include/python3.11"),
    )
    if not headers.get_child("Python.h").exists:
        fail("Python's headers are missing: run ./djinn setup")
    site = repository_ctx.os.environ.get("DJINN_SITE", "")
    if not site:
        site = str(repository_ctx.path(Label("//:WORKSPACE")).dirname) + "/.deps/site"
    repository_ctx.symlink(headers, "include/python")
    repository_ctx.symlink(site + "/torch/include/pybind11", "include/pybind11")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", _BUILD.format(lib = site + "/torch/lib"))

python_extension = repository_rule(
    implementation = _python_extension_impl,
    doc = "Declares @python_extension, headers and link options.",
    environ = ["DJINN_PYTHON_HEADERS", "DJINN_SITE"],
    local = True,
)
