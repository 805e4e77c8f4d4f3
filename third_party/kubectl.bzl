"""kubectl, with which a test runs commands of the pages against a real API server.

Its folder is $DJINN_KUBECTL, which `./djinn test --full` sets once it has unpacked it. A build
does not need it, so without it the target is empty and the test says what to do.
"""

_ABSENT = """
filegroup(
    name = "kubectl",
    visibility = ["//visibility:public"],
)
"""

def _kubectl_binary_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_KUBECTL", "")
    if folder:
        repository_ctx.symlink(folder + "/kubectl", "kubectl")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", 'exports_files(["kubectl"])\n' if folder else _ABSENT)

kubectl_binary = repository_rule(
    implementation = _kubectl_binary_impl,
    doc = "Declares @kubectl//:kubectl, the program's file or nothing.",
    environ = ["DJINN_KUBECTL"],
    local = True,
)
