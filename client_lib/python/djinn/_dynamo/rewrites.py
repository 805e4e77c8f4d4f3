"""Rewrites a graph of Dynamo's, so that its calls can be replayed.

The lists in `x[[0, 1]]` and `torch.tensor([1, 2], device=x.device)` are constants of the graph.
PyTorch sends them to the device at each call, and a call that sends a tensor is not replayed. Each
of them gets two nodes of its own, which make the tensor here and send it, so that the rest of the
graph can be captured. A tensor of this process that an operator on the device takes is sent by a
node of its own, too: an index, a tensor without dimensions or elements, and what is copied.

When they are compiled, Hugging Face's models with experts call an operator with a kernel in Python,
because Inductor has none for most dtypes. Devices have PyTorch's own operator for it.
"""

import torch
from torch.utils._python_dispatch import _disable_current_modes

from djinn._dynamo.nodes import (
    DEVICE_TYPE,
    is_remote,
    is_tensor,
    name_of,
    tensors_of,
    value_of,
)

_GROUPED_PRODUCT = "transformers::grouped_mm_fallback"
# Operators whose second and later operands may be tensors of this process.
_BY_INDEX = frozenset("copy copy_ getitem index index_put index_put_ setitem".split())
# Operators that read a tensor of this process, and would read one on the device as well.
_READ = ("tensor_split",)
_TRUTHS = (torch.bool, torch.uint8)
# Operators that autocast leaves alone. It converts a tensor on the device, but none of this
# process.
_NOT_CONVERTED = frozenset(
    f"{prefix}{name}{suffix}"
    for name in ("add", "sub", "mul", "div", "truediv")
    for prefix, suffix in (("", ""), ("i", ""), ("", "_"))
)


def rewrite(graph):
    """Changes a torch.fx.GraphModule in place. Its results stay the same."""
    is_changed = False
    for node in list(graph.graph.nodes):
        if node.op == "call_function":
            is_changed |= _rewrite_node(node)
    if is_changed:
        graph.recompile()


def _rewrite_node(node):
    """Rewrites the call of a node, and returns whether it changed anything."""
    name = getattr(node.target, "__name__", "").partition(".")[0]
    if name in ("getitem", "setitem"):
        return _separate_index(node)
    if name in ("tensor", "as_tensor", "_to_copy"):
        return _separate_tensor(node, name)
    packet = getattr(node.target, "_overloadpacket", node.target)
    if getattr(packet, "_qualified_op_name", "") == _GROUPED_PRODUCT:
        given = {**dict(zip(("input", "weight", "offs"), node.args)), **node.kwargs}
        if is_remote(value_of(given["input"])):
            node.target = torch.nn.functional.grouped_mm
            node.args, node.kwargs = (given["input"], given["weight"]), {"offs": given["offs"]}
            return True
    return False


def _separate_index(node):
    base, index = node.args[:2]
    example = value_of(base)
    if not is_remote(example):
        return False
    parts = index if isinstance(index, tuple) else (index,)
    # PyTorch takes a list of lists for a tuple, unless it is a part of one.
    is_tuple = parts is not index and _is_list(index) and any(map(_is_list, index))
    if is_tuple or not any(map(_is_list, parts)):
        return False
    parts = tuple(_sent(node, one, {}, example) if _is_list(one) else one for one in parts)
    index = parts if isinstance(index, tuple) else parts[0]
    node.args = (base, index, *node.args[2:])
    return True


def _separate_tensor(node, name):
    example = value_of(node)
    if not is_remote(example) or node.kwargs.get("requires_grad"):
        return False
    if not any(isinstance(size, torch.SymInt) for size in example.shape) and not example.numel():
        # Nothing needs to be sent.
        options = {"dtype": example.dtype, "device": example.device}
        made = _before(node, torch.empty, (tuple(example.shape),), options, example)
    elif name != "_to_copy" and example.dim() and node.args and _is_list(node.args[0]):
        made = _sent(node, node.args[0], {"dtype": example.dtype}, example)
    else:
        return False
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
    return True


def send_operands(node, local):
    """Sends tensors of this process that an operator on the device takes.

    `local` are the nodes whose results are such tensors. Returns the nodes that were added.
    """
    name = name_of(node.target).partition(".")[0]
    results = tensors_of(node)
    inputs = node.all_input_nodes
    there = [one for operand in inputs for one in tensors_of(operand) if is_remote(one)]
    if (
        local.isdisjoint(inputs)
        or not there
        or not (results or name == "setitem")
        or not all(map(is_remote, results))
        or isinstance(node.target, torch._ops.HigherOrderOperator)
    ):
        return []
    if name in ("to", "type_as") and len(node.args) > 1 and is_remote(value_of(node.args[1])):
        # A tensor that goes to where another one is.
        node.op, node.target = "call_method", "to"
        node.args = (node.args[0], there[0].device, there[0].dtype, *node.args[2:])
        return []
    added = {}

    def send(operand):
        if operand not in added:
            here = value_of(operand)
            example = there[0].new_empty(here.shape, dtype=here.dtype)
            added[operand] = _before(node, "to", (operand, there[0].device), {}, example)
        return added[operand]

    def send_some(operand):
        return send(operand) if operand in local and may_be_sent(value_of(operand)) else operand

    if name in _BY_INDEX:
        indices = [value_of(one) for one in node.all_input_nodes[1:] if one in local]
        # PyTorch reads an index that is a single integer.
        if not is_remote(value_of(node.args[0])) or any(map(_is_integer, indices)):
            return []
        # The result of an index of truth values has a size that depends on them.
        is_read = name in ("getitem", "index")
        may_be_sent = lambda one: is_tensor(one) and not (is_read and one.dtype in _TRUTHS)
        node.args = (node.args[0], *torch.fx.map_arg(node.args[1:], send_some))
    elif name not in _READ and (name in _NOT_CONVERTED or not _autocasts(node)):
        may_be_sent = lambda one: is_tensor(one) and (not one.dim() or 0 in one.shape)
        node.args = tuple(_each_node(one, send_some) for one in node.args)
        node.kwargs = {key: _each_node(one, send_some) for key, one in node.kwargs.items()}
    return list(added.values())


def _is_integer(thing):
    """Returns whether a thing is a tensor of one integer without dimensions."""
    whole = is_tensor(thing) and not thing.dim() and thing.dtype not in _TRUTHS
    return whole and not thing.dtype.is_floating_point and not thing.dtype.is_complex


def _each_node(thing, function):
    return function(thing) if isinstance(thing, torch.fx.Node) else thing


def _autocasts(node):
    """Returns whether autocast may convert the operands of a node."""
    return torch.is_autocast_enabled(DEVICE_TYPE) or any(
        "autocast" in name_of(one.target) for one in node.graph.nodes if one.op == "call_function"
    )


def _sent(node, numbers, options, example):
    """Adds nodes before `node` that make a tensor of numbers here and send it to the device."""
    with _disable_current_modes():
        value = torch.tensor(_without_nodes(numbers), **options)
    if not value.numel():
        # As an index, PyTorch takes an empty list for integers.
        dtype = options.get("dtype", torch.long)
        options = {"dtype": dtype, "device": example.device}
        there = example.new_empty(value.shape, dtype=dtype)
        return _before(node, torch.empty, (tuple(value.shape),), options, there)
    options = {"dtype": value.dtype, "device": torch.device("cpu")}
    mode = example.fake_mode
    here = mode.from_tensor(value, static_shapes=True)
    with mode:
        there = here.to(example.device)
    local = _before(node, torch.tensor, (numbers,), options, here)
    return _before(node, "to", (local, example.device), {}, there)


def _before(node, target, args, kwargs, example):
    with node.graph.inserting_before(node):
        call = node.graph.call_method if isinstance(target, str) else node.graph.call_function
        added = call(target, args, kwargs)
    added.meta["example_value"] = example
    if "stack_trace" in node.meta:
        added.meta["stack_trace"] = node.meta["stack_trace"]
    return added


def _is_list(thing):
    """Returns whether a thing is a list of numbers, or of such lists."""
    return isinstance(thing, (list, tuple)) and all(
        _is_number(one) or _is_list(one) for one in thing
    )


def _is_number(thing):
    if isinstance(thing, torch.fx.Node):
        thing = value_of(thing)
    return isinstance(thing, (bool, int, float, complex, torch.SymInt, torch.SymFloat))


def _without_nodes(thing):
    """Returns the numbers with a number of the same type instead of each that is not known."""
    if isinstance(thing, (list, tuple)):
        return list(map(_without_nodes, thing))
    if not isinstance(thing, torch.fx.Node):
        return thing
    return 0.0 if isinstance(value_of(thing), (float, torch.SymFloat)) else 0
