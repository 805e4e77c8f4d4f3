"""Lets a program differentiate the gradients of a compiled graph, as a gradient penalty does.

AOTAutograd makes a graph for the backward pass and none for a backward pass through it. A backward
pass with create_graph=True therefore calls the graph's operators once more, and differentiates
these. Where that would have other effects than the first call, an error says so.
"""

import contextlib

import torch
from torch.utils.checkpoint import _get_autocast_kwargs

from djinn._dynamo.nodes import DEVICE_TYPE, is_tensor

# The number of nodes in which the graph's own backward node is looked for.
_MAX_NODES = 16


class SecondOrder:
    """A graph whose gradients AOTAutograd computes.

    `run` executes it, with its backward pass in another graph. `as_it_is` calls its operators, some
    of which draw random numbers if `is_random`. Thread-safe as far as these are.
    """

    def __init__(self, run, as_it_is, place, is_random):
        self._run = run
        self._as_it_is = as_it_is
        self._place = place
        self._is_random = is_random
        # Why it cannot be called once more, or an empty string. None before the first call.
        self._refusal = None

    def __call__(self, *args):
        results = self._run(*args)
        node = _node_of(results) if torch.is_grad_enabled() else None
        if node is not None:
            if self._refusal is None:
                self._refusal = self._teach(node._forward_cls, len(args))
            if not self._refusal:
                node._djinn_call = _Call(self._as_it_is, args)
        return results

    def _teach(self, kind, number_of_args):
        """Replaces the backward pass of AOTAutograd's function. Returns the refusal, or ""."""
        refusal = self._refusal_of(kind, number_of_args)
        first_order = kind.backward

        def backward(ctx, *gradients):
            call = getattr(ctx, "_djinn_call", None)
            if not torch.is_grad_enabled():
                if not torch._C._autograd._get_current_graph_task_keep_graph():
                    ctx._djinn_call = None
                return first_order(ctx, *gradients)
            if call is not None:
                return call.differentiate(ctx.needs_input_grad, gradients)
            with torch.no_grad():
                results = first_order(ctx, *gradients)
            error = (
                f"djinn cannot differentiate the gradients of {self._place.describe('')}, which is "
                f"compiled: {refusal}. Call it without torch.compile."
            )
            return _Refusing.apply(error, torch.zeros((), requires_grad=True), *results)

        kind.backward = staticmethod(backward)
        return refusal

    def _refusal_of(self, kind, number_of_args):
        metadata = kind.metadata
        if self._is_random:
            return "it draws random numbers"
        if any(one.mutates_data or one.mutates_metadata for one in metadata.input_info):
            return "it writes to its inputs"
        if metadata.num_intermediate_bases:
            return "its results share memory"
        if metadata.tokens or kind.maybe_subclass_metadata is not None:
            return "it has effects, or takes tensor subclasses"
        if number_of_args != len(metadata.input_info):
            return "its inputs share memory"
        return ""


class _Call:
    """A call of a graph, with the tensors that it was given."""

    def __init__(self, as_it_is, args):
        self._as_it_is = as_it_is
        self._args = args
        self._versions = _versions_of(args)
        self._autocast = _get_autocast_kwargs(DEVICE_TYPE)

    def differentiate(self, needed, gradients):
        """Returns the gradients of the inputs, which a program can differentiate."""
        if self._versions != _versions_of(self._args):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: an input of a compiled graph"
            )
        # An input may be computed from another one. This call's gradients are only those of views.
        inputs = [one.view_as(one) if need else one for one, need in zip(self._args, needed)]
        there, here = self._autocast
        with (
            torch.autocast(DEVICE_TYPE, **there) if there else contextlib.nullcontext(),
            torch.autocast("cpu", **here),
        ):
            results = self._as_it_is(*inputs)
        followed = [
            (one, gradient)
            for one, gradient in zip(results, gradients)
            if gradient is not None and is_tensor(one) and one.requires_grad
        ]
        if not followed:
            return (None,) * len(inputs)
        found = torch.autograd.grad(
            [one for one, _ in followed],
            [one for one, need in zip(inputs, needed) if need],
            [gradient for _, gradient in followed],
            create_graph=True,
            allow_unused=True,
        )
        remaining = iter(found)
        return tuple(next(remaining) if need else None for need in needed)


class _Refusing(torch.autograd.Function):
    """Passes gradients on, and refuses to differentiate them."""

    @staticmethod
    def forward(ctx, error, needs_gradient, *results):
        ctx.error = error
        return results

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(ctx.error)


def draws(graph):
    """Returns whether a graph of PyTorch's operators draws random numbers."""
    return any(
        isinstance(one, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in one.tags
        for node in graph.graph.nodes
        for one in (node.target, *node.args)
    )


def _versions_of(things):
    return [one._version for one in things if is_tensor(one)]


def _node_of(results):
    """Returns the backward node of AOTAutograd's function behind the results, or None."""
    pending = [one.grad_fn for one in results if is_tensor(one) and one.grad_fn is not None]
    for node in pending:
        if hasattr(getattr(node, "_forward_cls", None), "compiled_bw"):
            return node
        if len(pending) < _MAX_NODES:
            pending += [one for one, _ in node.next_functions if one is not None]
    return None
