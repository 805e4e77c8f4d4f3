"""grpcurl, for the test of the recipes in docs/operator/observe.md.

Its folder is $DJINN_GRPCURL, which `./djinn test` sets once it has built it. A build
does not need it, so without it the target is empty and the test says what to do.
"""

_ABSENT = """
filegroup(
    name = "grpcurl",
    visibility = ["//visibility:public"],
)
"""

def _grpcurl_binary_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_GRPCURL", "")
    if folder:
        repository_ctx.symlink(folder + "/grpcurl", "grpcurl")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", 'exports_files(["grpcurl"])\n' if folder else _ABSENT)

grpcurl_binary = repository_rule(
    implementation = _grpcurl_binary_impl,
    doc = "Declares @grpcurl//:grpcurl, the program's file or nothing.",
    environ = ["DJINN_GRPCURL"],
    local = True,
)
