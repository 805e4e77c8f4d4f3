"""Fuzz targets."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

def djinn_fuzz_target(name, srcs, corpus, deps, size = "small"):
    """A fuzz target, as an ordinary test and for libFuzzer.

    NAME is a test that replays the corpus and small changes of it, with any
    compiler. NAME_libfuzzer links Clang's libFuzzer; `./djinn fuzz` builds it.

    Args:
      name: ends in _fuzz, as its source does.
      srcs: define LLVMFuzzerTestOneInput and, where bytes are a poor start,
        LLVMFuzzerCustomMutator.
      corpus: label of the files to start from, made by common/fuzz/corpus.
      deps: what is tested.
      size: of the test.
    """
    cc_library(
        name = name + "_entry",
        testonly = True,
        srcs = srcs,
        deps = deps + [
            "//common/fuzz:mutate_message",
            "//common/fuzz:require",
        ],
        # Nothing refers to it but a main that looks for its symbols.
        alwayslink = True,
    )
    cc_test(
        name = name,
        size = size,
        args = ["$(rootpaths %s)" % corpus],
        data = [corpus],
        deps = [
            ":" + name + "_entry",
            "//common/fuzz:replay",
        ],
    )
    cc_binary(
        name = name + "_libfuzzer",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":" + name + "_entry"],
    )
