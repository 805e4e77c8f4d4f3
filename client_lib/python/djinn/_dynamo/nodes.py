"""Reads the values, tensors and names of the nodes in a graph of Dynamo's."""

import torch
from torch.utils import _pytree

from djinn import _session

DEVICE_TYPE = _session.device().type


def value_of(node):
    """Returns the example of a node's result. Returns None if it has none, or is not a node."""
    if not isinstance(node, torch.fx.Node):
        return None
    return node.meta.get("example_value", node.meta.get("val"))


def tensors_of(node):
    """Returns the tensors among the example of a node's result."""
    return list(filter(is_tensor, _pytree.tree_leaves(value_of(node))))


def name_of(target):
    """Returns the name of what a node calls."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def is_tensor(thing):
    return isinstance(thing, torch.Tensor)


def is_remote(thing):
    return is_tensor(thing) and thing.device.type == DEVICE_TYPE
