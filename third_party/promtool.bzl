"""promtool, for the test of the metrics, and Prometheus, for the test of the alerts.

Their folders are $DJINN_PROMTOOL and $DJINN_PROMETHEUS, which `./djinn test` sets once it has
unpacked them. A build does not need them, so without them the targets are empty and the
tests say what to do.
"""

_ABSENT = """
filegroup(
    name = "%s",
    visibility = ["//visibility:public"],
)
"""

def _declare(repository_ctx, name, folder):
    if folder:
        repository_ctx.symlink(folder + "/" + name, name)
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file(
        "BUILD.bazel",
        'exports_files(["%s"])\n' % name if folder else _ABSENT % name,
    )

def _promtool_binary_impl(repository_ctx):
    _declare(repository_ctx, "promtool", repository_ctx.os.environ.get("DJINN_PROMTOOL", ""))

def _prometheus_binary_impl(repository_ctx):
    _declare(repository_ctx, "prometheus", repository_ctx.os.environ.get("DJINN_PROMETHEUS", ""))

promtool_binary = repository_rule(
    implementation = _promtool_binary_impl,
    doc = "Declares @promtool//:promtool, the program's file or nothing.",
    environ = ["DJINN_PROMTOOL"],
    local = True,
)

prometheus_binary = repository_rule(
    implementation = _prometheus_binary_impl,
    doc = "Declares @prometheus//:prometheus, the program's file or nothing.",
    environ = ["DJINN_PROMETHEUS"],
    local = True,
)
