"""libtorch from an unpacked PyPI wheel.

The tree is $DJINN_SITE, else .deps/site of the checkout. As in site-packages it
holds torch/{include,lib} and nvidia/cu13/{include,lib} side by side, because
libtorch_cpu.so finds the CUDA libraries that it needs even on a CPU through the
RPATH $ORIGIN/../../nvidia/cu13/lib.
"""

# Left out of the include tree, or they hide Debian's own headers, which are what
# we link: protobuf 3.13, a newer fmt (no torch header that we use includes it),
# and pybind11 (Python targets bring the one that fits their interpreter).
_HIDDEN_HEADERS = ["fmt", "google", "pybind11"]

_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

# Whole folders as inputs: a sandboxed action then gets a few dozen links instead
# of thousands.
cc_library(
    name = "headers",
    # Selects a precompiled header, in this target and all that depend on it.
    defines = ["DJINN_USES_TORCH"],
    hdrs = glob(["include/*"], exclude_directories = 0),
    includes = ["include", "include/torch/csrc/api/include"],
)

# The CPU half only: libtorch.so would bring libtorch_cuda.so along. The libraries
# are named by path and not as srcs, because Bazel would link them into a folder of
# its own, from which $ORIGIN does not reach nvidia/cu13/lib.
cc_library(
    name = "torch",
    linkopts = [
        "-L{lib}",
        "-Wl,-rpath,{lib}",
        "-Wl,-rpath-link,{cuda_lib}",
        "-ltorch_cpu",
        "-lc10",
    ],
    deps = [":headers"],
)

# For targets that are loaded into a process which already has libtorch (Python,
# plug-ins): the same libraries, without a path of this machine in the result.
cc_library(
    name = "torch_without_rpath",
    linkopts = [
        "-L{lib}",
        "-Wl,-rpath-link,{cuda_lib}",
        "-ltorch_cpu",
        "-lc10",
    ],
    deps = [":headers"],
)

cc_library(
    name = "cuda_headers",
    hdrs = ["nvidia/cu13/include"],
    includes = ["nvidia/cu13/include"],
    deps = [":headers"],
)

# For the CUDA plug-in only, a shared object that is opened at run time, by a process
# that has these libraries: hence no paths. It links on machines without the rest of
# the CUDA libraries, hence the unresolved symbols.
cc_library(
    name = "torch_cuda",
    linkopts = [
        "-Wl,--unresolved-symbols=ignore-in-shared-libs",
        "-Wl,--push-state,--no-as-needed",
        "-ltorch_cuda",
        "-lc10_cuda",
        "-Wl,--pop-state",
        "-L{cuda_lib}",
        "-l:libcudart.so.13",
    ],
    deps = [":cuda_headers", ":torch_without_rpath"],
)
"""

def _torch_wheel_impl(repository_ctx):
    site = repository_ctx.os.environ.get("DJINN_SITE", "")
    if not site:
        site = str(repository_ctx.path(Label("//:WORKSPACE")).dirname) + "/.deps/site"
    if not repository_ctx.path(site + "/torch/lib/libtorch_cpu.so").exists:
        fail("No unpacked torch wheel in %s: run ./djinn setup, or set DJINN_SITE" % site)
    for entry in repository_ctx.path(site + "/torch/include").readdir():
        if entry.basename not in _HIDDEN_HEADERS:
            repository_ctx.symlink(entry, "include/" + entry.basename)
    repository_ctx.symlink(site + "/nvidia", "nvidia")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", _BUILD.format(
        cuda_lib = site + "/nvidia/cu13/lib",
        lib = site + "/torch/lib",
    ))

torch_wheel = repository_rule(
    implementation = _torch_wheel_impl,
    doc = "Declares @torch//:headers, :torch, :cuda_headers and :torch_cuda.",
    environ = ["DJINN_SITE"],
    local = True,
)
