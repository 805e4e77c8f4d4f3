"""Tests in Python: with torch, on an embedded cluster of processes."""

def python_test(name, srcs, data = [], module = None, **kwargs):
    """Runs the unittest cases of NAME.py, or of MODULE.py, with the environment's interpreter."""
    native.sh_test(
        name = name,
        srcs = ["//tests/python:run_test.sh"],
        args = [native.package_name().replace("/", ".") + "." + (module or name)],
        data = srcs + data + [
            "//client_lib/python:package",
            "//coordinator:djinn-coordinator",
            "//gpu_worker:djinn-worker",
            "//tests/python:support",
            "@python_environment",
        ],
        **kwargs
    )

def python_tests(exclude = [], **kwargs):
    """Makes each *_test.py a test of its own: tests that share a cluster would depend on each other."""
    for source in native.glob(["*_test.py"], exclude = exclude):
        python_test(name = source[:-len(".py")], size = "large", srcs = [source], **kwargs)
