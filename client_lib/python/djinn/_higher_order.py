"""Teaches PyTorch's higher order operators (torch.cond, while_loop) of the key of captures.

They have kernels for the keys that PyTorch knows, and raise at another one. What is to be
seen by it are the operators that they call: they themselves are passed by.
"""

import torch
from torch import _ops

# The one that capture_scope.cc uses.
_KEY = torch._C._dispatch_key_parse("TESTING_ONLY_GenericMode")


def teach():
    """Those that there are, and will be."""
    _ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(_KEY)
    for operator in _ops._higher_order_ops.values():
        operator.fallthrough(_KEY)
