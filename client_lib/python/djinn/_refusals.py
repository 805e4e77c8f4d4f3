"""What a program is told when its calls cannot be replayed."""

import warnings

# Refusals that are no news: there is nothing to replay, or it is replayed later.
_SILENT = ("it calls nothing on the device", "an argument was never filled", "DJINN_EAGER")
_ADVICE = {
    "reads a value": "Return the tensor, and read it outside.",
    "tensor of this process": "Move the tensors to the device before the call.",
    " as well": "Compile what each device computes by itself.",
    "kernel in Python": "Give the operator a kernel in C++, or call it outside.",
    "allow_in_graph": "Let torch.compile trace the function.",
    "equals an earlier one": "Pad the sizes, so that fewer of them occur.",
    "autograd may": "Return the result detached, or call under torch.no_grad().",
}
_OTHER_ADVICE = 'torch.compile(..., backend="djinn") may replay it in parts.'


def is_silent(refusal):
    """Returns whether a refusal says nothing that a program could change."""
    return not refusal or any(part in refusal for part in _SILENT)


def warn(what, refusal, advice=_OTHER_ADVICE):
    """Warns that `what`, a function with its place, is not replayed, and says what to do."""
    advice = next((text for part, text in _ADVICE.items() if part in refusal), advice)
    warnings.warn(
        f"djinn does not replay {what}: {refusal}. Its operators are sent one by one. {advice}".rstrip(),
        stacklevel=2,
    )


def describe(function):
    """Returns the name and the place of a function, a method or a module."""
    code = getattr(function, "__code__", None) or getattr(
        getattr(type(function), "forward", None), "__code__", None
    )
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
