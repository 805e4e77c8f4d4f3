"""What `import torch` runs once this package is installed.

A module of its own: torch may be imported by djinn, which is then not whole yet.
"""


def load():
    import djinn  # noqa: F401
