"""Makes torch.compile's default backend name the backend "djinn" in its error for this device."""

import functools

import torch
from torch.utils import _pytree

from djinn._dynamo.nodes import DEVICE_TYPE, is_remote


def refuse():
    """Makes Inductor refuse the device's graphs. Without this, an assertion within it fails."""
    wrapper = torch._TorchCompileInductorWrapper
    compile_graph = wrapper.__call__

    @functools.wraps(compile_graph)
    def __call__(self, graph, inputs):
        made = [node.meta.get("example_value") for node in graph.graph.nodes]
        for tensor in _pytree.tree_leaves([inputs, made]):
            if is_remote(tensor):
                raise RuntimeError(
                    f"the backend {self.compiler_name!r} makes no code for {DEVICE_TYPE}: use "
                    'torch.compile(..., backend="djinn")'
                )
        return compile_graph(self, graph, inputs)

    wrapper.__call__ = __call__
