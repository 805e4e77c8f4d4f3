"""Names the backend "djinn" where torch.compile's default backend cannot make code."""

import functools

import torch
from torch.utils import _pytree

from djinn import _session

_DEVICE_TYPE = _session.device().type


def refuse():
    """Has Inductor refuse graphs of the device, in place of an assertion within it."""
    wrapper = torch._TorchCompileInductorWrapper
    compile_graph = wrapper.__call__

    @functools.wraps(compile_graph)
    def __call__(self, graph, inputs):
        made = [node.meta.get("example_value") for node in graph.graph.nodes]
        for tensor in _pytree.tree_leaves([inputs, made]):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == _DEVICE_TYPE:
                raise RuntimeError(
                    f"the backend {self.compiler_name!r} makes no code for {_DEVICE_TYPE}: use "
                    'torch.compile(..., backend="djinn")'
                )
        return compile_graph(self, graph, inputs)

    wrapper.__call__ = __call__
