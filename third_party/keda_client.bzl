"""KEDA's client, for the test of the scaler.

Its folder is $DJINN_KEDA_CLIENT, which `./djinn test` sets once it has built it. A build
does not need it, so without it the target is empty and the test says what to do.
"""

_ABSENT = """
filegroup(
    name = "keda_client",
    visibility = ["//visibility:public"],
)
"""

def _keda_client_binary_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_KEDA_CLIENT", "")
    if folder:
        repository_ctx.symlink(folder + "/keda_client", "keda_client")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", 'exports_files(["keda_client"])\n' if folder else _ABSENT)

keda_client_binary = repository_rule(
    implementation = _keda_client_binary_impl,
    doc = "Declares @keda_client//:keda_client, the program's file or nothing.",
    environ = ["DJINN_KEDA_CLIENT"],
    local = True,
)
