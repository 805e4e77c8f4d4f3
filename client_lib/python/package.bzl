"""The Python package as a folder to put on PYTHONPATH."""

def _python_package_impl(ctx):
    folder = ctx.label.package + "/djinn/"
    outputs = []
    for target in ctx.attr.srcs:
        for file in target.files.to_list():
            path = file.short_path
            path = path[len(folder):] if path.startswith(folder) else file.basename
            output = ctx.actions.declare_file("%s/djinn/%s" % (ctx.label.name, path))
            ctx.actions.symlink(output = output, target_file = file)
            outputs.append(output)
    entry_points = ctx.actions.declare_file(ctx.label.name + "/djinn.dist-info/entry_points.txt")
    ctx.actions.write(entry_points, ctx.attr.entry_points)
    outputs.append(entry_points)
    return [DefaultInfo(
        files = depset(outputs),
        runfiles = ctx.runfiles(files = outputs),
    )]

python_package = rule(
    implementation = _python_package_impl,
    doc = "Links the files of the folder djinn, and all others beside them, into NAME/djinn, and writes entry points.",
    attrs = {
        "entry_points": attr.string(doc = "The text of entry_points.txt, as installers write it."),
        "srcs": attr.label_list(allow_files = True),
    },
)
