"""The entry point that `import torch` calls if this package is installed.

It is a separate module, because djinn itself may be importing torch and be incomplete.
"""


def load():
    import djinn  # noqa: F401
