"""Computes attention over jagged nested tensors on remote devices, one sequence at a time.

If PyTorch has no fused kernel, as on the CPU, it uses strided nested tensors for this. Remote
devices do not have these.
"""

import functools

import torch

_NAME = torch._C._get_privateuse1_backend_name()


def _sequences(tensor):
    """Returns the sequences of a tensor [batch, heads, jagged, width] as [heads, length, width]."""
    offsets = tensor._offsets.tolist()
    lengths = [end - begin for begin, end in zip(offsets, offsets[1:])]
    values = tensor.transpose(1, 2).values()
    return [part.transpose(0, 1) for part in values.split(lengths)]


def _attention(query, key, value, dropout_p, scale):
    from torch.nested._internal.nested_tensor import nested_view_from_values_offsets_lengths
    results = [
        torch._scaled_dot_product_attention_math(*parts, None, dropout_p, False, scale=scale)[0]
        for parts in zip(_sequences(query), _sequences(key), _sequences(value), strict=True)]
    return nested_view_from_values_offsets_lengths(
        torch.cat([part.transpose(0, 1) for part in results]), query.offsets(), query.lengths(),
        min_seqlen=query._maybe_min_seqlen, max_seqlen=query._maybe_max_seqlen).transpose(1, 2)


def teach(module):
    """Changes `torch.nested._internal.ops`, which PyTorch imports with the first nested tensor."""
    from torch.nested._internal import sdpa
    original = module.jagged_scaled_dot_product_attention

    @functools.wraps(original)
    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                  enable_gqa=False):
        jagged = all(isinstance(each, sdpa.NestedTensor) for each in (query, key, value))
        # The original refuses masks and causality. It computes plain attention if the jagged
        # dimension is one of batches.
        if (not jagged or query.device.type != _NAME or attn_mask is not None or is_causal
                or query._ragged_idx == 1 or not sdpa.math_sdp_enabled()):
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        query, key, value, _ = sdpa._autocast(query, key, value, None)
        sdpa._validate_sdpa_input(query, key, value, None, dropout_p, is_causal, scale)
        return _attention(query, key, value, dropout_p, scale)

    module.jagged_scaled_dot_product_attention = attention
