"""The virtual environment of the tests of deploy/.

It is $DJINN_DEPLOY_PYTHON, which `./djinn setup deploy_python` sets once it has made it. A
build does not need it, so without it the file says nothing and the tests say what to do.
"""

def _deploy_python_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_DEPLOY_PYTHON", "")
    repository_ctx.file("folder.txt", folder + "\n")
    files = ["folder.txt"]
    if folder:
        # A test runs again when something else was installed.
        repository_ctx.symlink(folder + ".stamp", "stamp.txt")
        files.append("stamp.txt")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", """
filegroup(
    name = "deploy_python",
    srcs = {files},
    visibility = ["//visibility:public"],
)
""".format(files = files))

deploy_python = repository_rule(
    implementation = _deploy_python_impl,
    doc = "Declares @deploy_python: the environment's folder, in a file.",
    environ = ["DJINN_DEPLOY_PYTHON"],
    local = True,
)
