"""The Python package as a folder to put on PYTHONPATH."""

def _python_package_impl(ctx):
    outputs = []
    for target in ctx.attr.srcs:
        for file in target.files.to_list():
            output = ctx.actions.declare_file("%s/djinn/%s" % (ctx.label.name, file.basename))
            ctx.actions.symlink(output = output, target_file = file)
            outputs.append(output)
    return [DefaultInfo(
        files = depset(outputs),
        runfiles = ctx.runfiles(files = outputs),
    )]

python_package = rule(
    implementation = _python_package_impl,
    doc = "Links all files into NAME/djinn, whatever folders they come from.",
    attrs = {"srcs": attr.label_list(allow_files = True)},
)
