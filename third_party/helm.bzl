"""helm, for the tests of deploy/helm.

Its folder is $DJINN_HELM, which `./djinn test --full` sets once it has built it. A build
does not need it, so without it the target is empty and the test says what to do.
"""

_ABSENT = """
filegroup(
    name = "helm",
    visibility = ["//visibility:public"],
)
"""

def _helm_binary_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_HELM", "")
    if folder:
        repository_ctx.symlink(folder + "/helm", "helm")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", 'exports_files(["helm"])\n' if folder else _ABSENT)

helm_binary = repository_rule(
    implementation = _helm_binary_impl,
    doc = "Declares @helm//:helm, the program's file or nothing.",
    environ = ["DJINN_HELM"],
    local = True,
)
