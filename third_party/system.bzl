"""Debian's development packages as Bazel targets.

Their headers lie in /usr/include, which the C++ toolchain searches by itself, so
a target here is a list of link options.
"""

_ABSL_SKIPPED = [
    # Test helpers: they would pull GoogleTest or override the environment.
    "absl_random_internal_distribution_test_util",
    "absl_scoped_set_env",
]

_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

# Abseil is dozens of small shared libraries and a caller must name each one whose
# symbols it uses; --as-needed keeps only those in the binary.
cc_library(
    name = "absl",
    linkopts = ["-Wl,--push-state,--as-needed", {absl}, "-Wl,--pop-state"],
)

cc_library(
    name = "protobuf",
    linkopts = ["-lprotobuf", "-lpthread"],
)

cc_library(
    name = "grpc",
    linkopts = ["-lgrpc++", "-lgrpc", "-lgpr"],
    deps = [":absl", ":protobuf"],
)

# Its static initialiser registers the service: nothing refers to the library.
cc_library(
    name = "grpc_reflection",
    linkopts = ["-Wl,--push-state,--no-as-needed", "-lgrpc++_reflection", "-Wl,--pop-state"],
    deps = [":grpc"],
)

cc_library(
    name = "grpc_channelz",
    linkopts = ["-lgrpcpp_channelz"],
    deps = [":grpc"],
)

cc_library(
    name = "yaml",
    linkopts = ["-lyaml-cpp"],
)

# Headers alone.
cc_library(
    name = "cli11",
)

# Debian builds spdlog against its own libfmt.
cc_library(
    name = "spdlog",
    defines = ["SPDLOG_SHARED_LIB", "SPDLOG_COMPILED_LIB", "SPDLOG_FMT_EXTERNAL"],
    linkopts = ["-lspdlog", "-lfmt"],
)

cc_library(
    name = "xxhash",
    linkopts = ["-lxxhash"],
)

cc_library(
    name = "crypto",
    linkopts = ["-lcrypto"],
)

cc_library(
    name = "ssl",
    linkopts = ["-lssl"],
    deps = [":crypto"],
)

cc_library(
    name = "sqlite",
    linkopts = ["-lsqlite3"],
)

cc_library(
    name = "prometheus",
    linkopts = ["-lprometheus-cpp-core"],
)

# Debian's library was built with these, and its header must agree.
cc_library(
    name = "httplib",
    defines = [
        "CPPHTTPLIB_BROTLI_SUPPORT",
        "CPPHTTPLIB_OPENSSL_SUPPORT",
        "CPPHTTPLIB_ZLIB_SUPPORT",
    ],
    linkopts = ["-lcpp-httplib"],
    deps = [":ssl"],
)

cc_library(
    name = "gtest",
    testonly = True,
    linkopts = ["-lgmock", "-lgtest", "-lpthread"],
)

cc_library(
    name = "gtest_main",
    testonly = True,
    linkopts = ["-lgmock_main"],
    deps = [":gtest"],
)

cc_library(
    name = "benchmark",
    linkopts = ["-lbenchmark", "-lpthread"],
)

exports_files(["protoc", "grpc_cpp_plugin"])
"""

def _absl_libraries(repository_ctx):
    for folder in ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]:
        path = repository_ctx.path(folder)
        if not path.exists:
            continue
        names = []
        for entry in path.readdir():
            base = entry.basename
            if base.startswith("libabsl_") and base.endswith(".so"):
                name = base[len("lib"):-len(".so")]
                if name not in _ABSL_SKIPPED:
                    names.append(name)
        if names:
            return sorted(names)
    fail("Abseil's development package is missing: run ./djinn setup")

def _system_libraries_impl(repository_ctx):
    for tool in ["protoc", "grpc_cpp_plugin"]:
        path = repository_ctx.which(tool)
        if not path:
            fail("%s is missing: run ./djinn setup" % tool)
        repository_ctx.symlink(path, tool)
    absl = ", ".join(['"-l%s"' % name for name in _absl_libraries(repository_ctx)])
    repository_ctx.file("WORKSPACE", 'workspace(name = "%s")\n' % repository_ctx.name)
    repository_ctx.file("BUILD.bazel", _BUILD.format(absl = absl))

system_libraries = repository_rule(
    implementation = _system_libraries_impl,
    doc = "Declares @sys//:<library> for the packages in debian_packages.txt.",
    environ = ["PATH"],
    local = True,
)
