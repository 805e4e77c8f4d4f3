"""kube-apiserver, to which a test applies what deploy/helm makes.

Its folder is $DJINN_KUBE_APISERVER, which `./djinn test --full` sets once it has built it. A
build does not need it, so without it the target is empty and the test says what to do.
"""

_ABSENT = """
filegroup(
    name = "kube_apiserver",
    visibility = ["//visibility:public"],
)
"""

def _kube_apiserver_binary_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_KUBE_APISERVER", "")
    if folder:
        repository_ctx.symlink(folder + "/kube_apiserver", "kube_apiserver")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", 'exports_files(["kube_apiserver"])\n' if folder else _ABSENT)

kube_apiserver_binary = repository_rule(
    implementation = _kube_apiserver_binary_impl,
    doc = "Declares @kube_apiserver//:kube_apiserver, the program's file or nothing.",
    environ = ["DJINN_KUBE_APISERVER"],
    local = True,
)
