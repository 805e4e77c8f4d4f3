"""The static libraries that libdjinn_client.so has inside, so that it neither needs nor
meets those of the program that loads it.

setup.sh makes them, in .deps/private of the checkout; $DJINN_PRIVATE names another
folder. They have the names of Debian's shared libraries, which @sys names, and the linker
searches their folder first.
"""

# Of these, @sys names no more than the first ones, which need the others.
_GROUP = ["grpc++", "grpc", "gpr", "address_sorting", "cares", "re2", "upb", "protobuf"]

_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

# For a shared library whose version script, or --exclude-libs, exports none of it.
cc_library(
    name = "private",
    linkopts = [
        "-L{folder}",
        "-Wl,--start-group",
        {libraries},
        "-Wl,--end-group",
        # What these need of Debian's shared libraries, which have symbol versions.
        "-lssl",
        "-lcrypto",
        "-lz",
    ],
)

# Inputs of a link with the above.
filegroup(
    name = "archives",
    srcs = glob(["*.a"]),
)
"""

def _private_libraries_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_PRIVATE", "")
    if not folder:
        folder = str(repository_ctx.path(Label("//:WORKSPACE")).dirname) + "/.deps/private"
    if not repository_ctx.path(folder).exists:
        fail("%s is missing: run ./djinn setup, or set DJINN_PRIVATE" % folder)
    names = list(_GROUP)
    for file in repository_ctx.path(folder).readdir():
        repository_ctx.symlink(file, file.basename)
        if file.basename.startswith("libabsl_"):
            names.append(file.basename[len("lib"):-len(".a")])
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", _BUILD.format(
        folder = folder,
        libraries = ", ".join(['"-l%s"' % name for name in names]),
    ))

private_libraries = repository_rule(
    implementation = _private_libraries_impl,
    doc = "Declares @private//:private and its @private//:archives.",
    environ = ["DJINN_PRIVATE"],
    local = True,
)
