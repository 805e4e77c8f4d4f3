"""Tells Dynamo what operators return that have no kernel for metadata.

PyTorch calls such an operator with zeros on the device. It makes these by zeros_like() of a
tensor without memory, which is a captured operator here. It refuses sizes that vary altogether,
so the operator of transformer layers, which many models call in inference, has its own kernel.

TransformerEncoder removes the padding that a mask names if the mask's values allow that, but not
while Dynamo traces it. Its results would be others then, so djinn.compile() does not trace it
with such a mask. torch.compile() does, as it does on other devices.

On accelerators, PyTorch makes one fused operator of a recurrent cell. The CPU has no kernel for it,
and metadata have none or one that wants biases. On remote devices, a cell consists of the operators
that it calls on the CPU.
"""

import sys

import torch
from torch._guards import TracingContext
from torch._subclasses import fake_impls, fake_tensor
from torch.nn.functional import linear
from torch.utils._mode_utils import no_dispatch

from djinn._dynamo.nodes import is_remote

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
# The number of merge_masks() for a mask of padding alone.
_MASK_OF_PADDING = 1
_ENCODER = torch.nn.TransformerEncoder.forward.__code__
_LINES = [line for *_, line in _ENCODER.co_lines() if line]


def teach():
    """Registers the kernel, and serves remote devices where there is none."""
    layer = torch.ops.aten._transformer_encoder_layer_fwd.default
    fake_impls.register_op_impl(layer)(_encoder_layer)
    fake_tensor.run_fallback_kernel = _on_zeros(fake_tensor.run_fallback_kernel)
    _take_apart(torch.ops.aten.gru_cell.default, _gru_cell)
    _take_apart(torch.ops.aten.lstm_cell.default, _lstm_cell)


def _take_apart(operator, cell):
    """Makes an operator consist of those that `cell` calls, where its tensors are remote."""

    def run(source, *args):
        if is_remote(source):
            return cell(source, *args)
        return operator._op_dk(_COMPOSITE, source, *args)

    operator.py_impl(_COMPOSITE)(run)


def _gru_cell(source, state, weights, state_weights, biases=None, state_biases=None):
    inputs = linear(source, weights, biases).unsafe_chunk(3, 1)
    states = linear(state, state_weights, state_biases).unsafe_chunk(3, 1)
    reset = (states[0] + inputs[0]).sigmoid()
    keep = (states[1] + inputs[1]).sigmoid()
    update = (inputs[2] + states[2] * reset).tanh()
    return (state - update) * keep + update


def _lstm_cell(source, states, weights, state_weights, biases=None, state_biases=None):
    state, memory = states
    gates = linear(state, state_weights, state_biases) + linear(source, weights, biases)
    write, keep, update, read = gates.unsafe_chunk(4, 1)
    memory = keep.sigmoid() * memory + write.sigmoid() * update.tanh()
    return read.sigmoid() * memory.tanh(), memory


def _on_zeros(run):
    def run_on_zeros(mode, func, args, spec, error):
        with no_dispatch():
            args = [_zeros(one) if mode.is_our_fake(one) else one for one in args]
        return run(mode, func, args, spec, error)

    return run_on_zeros


def _zeros(fake):
    """Returns zeros with a fake tensor's metadata, or the tensor if it is not remote."""
    if not is_remote(fake):
        return fake
    options = {"dtype": fake.dtype, "device": fake.fake_device}
    return torch.empty_strided(fake.shape, fake.stride(), **options).zero_()


def _encoder_layer(mode, func, /, *args, **kwargs):
    given = _given(func, args, kwargs)
    source = given["src"]
    if not is_remote(source):
        return NotImplemented
    if given["mask_type"] == _MASK_OF_PADDING and _is_in_encoder():
        raise RuntimeError("TransformerEncoder reads the values of src_key_padding_mask")
    with mode:
        return source.new_empty(source.shape)


def _removes_padding(module):
    return getattr(module, "use_nested_tensor", False)


def _given(func, args, kwargs):
    """Returns the arguments of an operator's call by name."""
    arguments = func._schema.arguments
    given = {one.name: one.default_value for one in arguments if one.has_default_value()}
    return {**given, **{one.name: arg for one, arg in zip(arguments, args)}, **kwargs}


def _is_in_encoder():
    """Returns whether djinn.compile() is tracing an encoder that may remove padding."""
    backend = sys.modules.get("djinn._dynamo.backend")
    if backend is None or backend.thread.call is None or TracingContext.try_get() is None:
        return False
    called = backend.thread.call.called
    if isinstance(called, torch.nn.Module) and not any(map(_removes_padding, called.modules())):
        return False
    return any(
        frame.filename == _ENCODER.co_filename and min(_LINES) <= frame.lineno <= max(_LINES)
        for frame in TracingContext.extract_stack()
    )
