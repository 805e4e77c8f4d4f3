"""Makes PyTorch's higher-order operators (torch.cond, while_loop) pass the capture key.

They have kernels for the dispatch keys that PyTorch knows, and raise an error for another
one. The key's kernel observes the operators that they call, not the operators themselves.
"""

import torch
from torch import _ops

# The key that capture_scope.cc uses.
_KEY = torch._C._dispatch_key_parse("TESTING_ONLY_GenericMode")


def teach():
    """Registers the fallthrough for all present and future higher-order operators."""
    _ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(_KEY)
    for operator in _ops._higher_order_ops.values():
        operator.fallthrough(_KEY)
