"""promtool, for the test of the metrics.

Its folder is $DJINN_PROMTOOL, which `./djinn test` sets once it has unpacked it. A build
does not need it, so without it the target is empty and the test says what to do.
"""

_ABSENT = """
filegroup(
    name = "promtool",
    visibility = ["//visibility:public"],
)
"""

def _promtool_binary_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_PROMTOOL", "")
    if folder:
        repository_ctx.symlink(folder + "/promtool", "promtool")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", 'exports_files(["promtool"])\n' if folder else _ABSENT)

promtool_binary = repository_rule(
    implementation = _promtool_binary_impl,
    doc = "Declares @promtool//:promtool, the program's file or nothing.",
    environ = ["DJINN_PROMTOOL"],
    local = True,
)
