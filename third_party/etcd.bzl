"""etcd, for the tests of coordinators that share a store.

Its folder is $DJINN_ETCD, which `./djinn test` sets once it has unpacked it. A build
does not need it, so without it the target is empty and the test says what to do.
"""

_ABSENT = """
filegroup(
    name = "etcd",
    visibility = ["//visibility:public"],
)
"""

def _etcd_binary_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_ETCD", "")
    if folder:
        repository_ctx.symlink(folder + "/etcd", "etcd")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", 'exports_files(["etcd"])\n' if folder else _ABSENT)

etcd_binary = repository_rule(
    implementation = _etcd_binary_impl,
    doc = "Declares @etcd//:etcd, the program's file or nothing.",
    environ = ["DJINN_ETCD"],
    local = True,
)
