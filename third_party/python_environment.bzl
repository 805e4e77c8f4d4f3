"""The virtual environment of the tests in Python.

It is $DJINN_PYTHON, which `./djinn setup python` sets once it has made it. A build does
not need it, so without it the file says nothing and the tests say what to do.
"""

def _python_environment_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_PYTHON", "")
    repository_ctx.file("folder.txt", folder + "\n")
    files = ["folder.txt"]
    if folder:
        # A test runs again when something else was installed.
        repository_ctx.symlink(folder + ".stamp", "stamp.txt")
        files.append("stamp.txt")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", """
filegroup(
    name = "python_environment",
    srcs = {files},
    visibility = ["//visibility:public"],
)
""".format(files = files))

python_environment = repository_rule(
    implementation = _python_environment_impl,
    doc = "Declares @python_environment: the environment's folder, in a file.",
    environ = ["DJINN_PYTHON"],
    local = True,
)
