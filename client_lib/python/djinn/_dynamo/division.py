"""Divides a graph that also uses tensors of this process.

The first part only uses tensors of this process and numbers, and sends what later ones need. The
second part is captured. The third one is what follows where a value was read or where an operator
takes tensors of both kinds; its operators are sent one by one.
"""

import torch
from torch.fx.passes.split_module import split_module

from djinn._dynamo.nodes import is_remote, is_tensor, name_of, tensors_of, value_of
from djinn._dynamo.rewrites import send_operands

HOST, CAPTURED, LATE = range(3)
# The functions in graphs that change the modes of the thread.
_MODES = ("autocast", "set_grad_enabled", "inference_mode", "vmap", "functorch")
# The functions in graphs that do the same in each mode.
_MODELESS = frozenset("as_tensor item scalar_tensor tensor to _to_copy".split())
_NUMBERS = (bool, int, float, complex, torch.SymBool, torch.SymFloat, torch.SymInt)


class Division:
    """A graph that was divided.

    The graph `whole` calls the parts, which are modules of it. `refusal` says why operators on the
    device are not captured, or is empty.
    """

    def __init__(self, whole, refusal):
        self.whole = whole
        self.refusal = refusal

    def part(self, number):
        """Returns one part, or None if there is none."""
        return getattr(self.whole, name_of_part(number), None)


def name_of_part(number):
    return f"submod_{number}"


def divide(graph):
    """Returns the Division of a graph. Returns None if all of it can be captured."""
    _insert_known_sizes(graph)
    parts, refusal = _parts_of(graph)
    if set(parts.values()) <= {CAPTURED}:
        return None
    others = [node for node, part in parts.items() if part != CAPTURED]
    if any(map(_depends_on_modes, others)) and any(
        mode in name_of(node.target) for node in parts for mode in _MODES
    ):
        # The modes of one part do not apply to another one.
        return None
    # The nodes of the first part come before all others, so that each part only depends on those
    # before it.
    last = (graph.graph.find_nodes(op="placeholder") or [graph.graph._root])[-1]
    for node in list(graph.graph.nodes):
        if node.op == "get_attr" or parts.get(node) == HOST:
            last.append(node)
            last = node
    return Division(
        split_module(graph, None, parts.__getitem__, keep_original_order=True), refusal
    )


def _insert_known_sizes(graph):
    """Replaces the nodes of integers that the graph's guards fix, such as sizes of results."""
    for node in graph.graph.nodes:
        value = value_of(node)
        if isinstance(value, torch.SymInt):
            value = value.node.maybe_as_int()
        if node.op.startswith("call") and type(value) is int:
            for user in list(node.users):
                insert = lambda one: value if one is node else one
                user.args, user.kwargs = torch.fx.map_arg((user.args, user.kwargs), insert)


def _parts_of(graph):
    """Returns the part of each node, and why operators on the device are not captured, or ""."""
    numbers = _numbers_of_this_process(graph)
    local, parts, refusal, is_late = set(), {}, "", False
    for node in list(graph.graph.nodes):
        if node.op in ("placeholder", "get_attr"):
            if any(map(_is_local, tensors_of(node))):
                local.add(node)
            continue
        if node.op == "output":
            continue
        if not is_late:
            for sent in send_operands(node, local):
                parts[sent] = HOST
        inputs = node.all_input_nodes
        remote = any(any(map(is_remote, tensors_of(one))) for one in inputs)
        results = tensors_of(node)
        # Another number that is made here becomes a constant of what is captured.
        is_host = (
            node in numbers or any(one in local for one in inputs) or _makes_tensor_here(node)
        )
        makes_local = any(map(_is_local, results))
        if not is_late:
            made = any(parts.get(one) == CAPTURED for one in inputs)
            reads = remote and makes_local
            is_late = reads or (is_host and (remote or made))
            if is_late:
                cause = _describe(node, reads, remote)
        if is_late and any(map(is_remote, results)):
            refusal = cause
        parts[node] = LATE if is_late else HOST if is_host else CAPTURED
        if parts[node] != CAPTURED and makes_local:
            local.add(node)
    return parts, refusal


def _describe(node, reads, remote):
    """Returns why a node and those after it are not captured."""
    name = name_of(node.target).partition(".")[0]
    if reads:
        return f"it reads a value from the device: aten::{name}"
    if remote:
        return f"aten::{name} uses a tensor of this process and one of the device"
    return f"aten::{name} makes a tensor of this process from a size of a result"


def _numbers_of_this_process(graph):
    """Returns the nodes of numbers and local tensors that the graph returns or makes tensors of.

    They do not depend on the device. As a part of what is captured, they would be the same in each
    replay, and each value of a counter would make another capture.
    """
    known = {
        node
        for node in graph.graph.find_nodes(op="placeholder")
        if not any(map(is_remote, tensors_of(node)))
    }
    (output,) = graph.graph.find_nodes(op="output")
    needed, pending = set(), []
    for node in graph.graph.nodes:
        if node.op.startswith("call") and known.issuperset(node.all_input_nodes):
            value = value_of(node)
            if isinstance(value, _NUMBERS) or is_tensor(value) and _is_local(value):
                known.add(node)
                if output in node.users or _makes_tensor_here(node):
                    pending.append(node)
    while pending:
        node = pending.pop()
        if node.op.startswith("call") and node not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    return needed


def _makes_tensor_here(node):
    """Returns whether a node makes a local tensor that is more than a number, or varies."""
    results = tensors_of(node)
    return any(map(_is_local, results)) and (
        any(one.dim() for one in results) or _is_seeded(node.target)
    )


def _depends_on_modes(node):
    return (
        not isinstance(value_of(node), _NUMBERS)
        and name_of(node.target).partition(".")[0] not in _MODELESS
    )


def _is_seeded(target):
    """Returns whether a function draws random numbers."""
    name = name_of(target).partition(".")[0]
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and any(
        torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags
        for overload in packet.overloads()
    )


def _is_local(tensor):
    return tensor.device.type == "cpu"
