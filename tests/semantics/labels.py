"""Says beside every call what it truly is, by the classes of the modules around it.

A label is "role/modality/phase", put where the module's path would stand in the notes;
the analysis that is tested is given none. A field that the classes do not decide is
"?": it is not counted.
"""

import contextlib
import functools
import re
from unittest import mock

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from transformers import cache_utils
from transformers.models.layoutlmv3 import modeling_layoutlmv3
from transformers.models.vilt import modeling_vilt

import djinn
from djinn import _djinn

# The innermost module that one of these describes decides; the first that fits its
# "class:name" does.
ROLES = (
    ("kv_cache", r"^KvCache"),
    ("loss", r"^Loss"),
    ("optimizer", r"^Optimizer"),
    ("conv", r"^BatchNorm"),
    ("norm", r"^\w*(Norm|Norm\dd)\d*d?:"),
    # What it calls embeddings is its first convolution.
    ("conv", r"^EfficientNet(Embeddings|Encoder|\w+Layer):"),
    # CLIP's projections lead to the space where both sides are compared.
    ("fusion", r"^(\w*MultiModalProjector|Fusion|DotInteraction)"
               r"|:(visual|text)_projection$"),
    ("embedding", r"^\w*Embedding(s|Bag)?:|^\w*PatchEmbed"),
    ("moe", r"Experts?:|MoE|SparseMoe|Router"),
    ("attention", r"Attention:|Attention$|SelfOutput|EfficientSelfAttention"
                  r"|^(LayoutLMv3|MPNet)Encoder:|:rel_pos"),
    ("?", r"^SegformerMLP"),
    ("mlp", r"MLP|Mlp|Intermediate|FeedForward|LayerFF|DenseAct|FFN:"
            r"|^(Bert|ViT|Vilt|Roberta|LayoutLMv3|MPNet|Swin)Output"
            r"|:(fc1|fc2|activation_fn|ffn|ffn_output)$|^\w*GELU\w*:activation$"),
    ("conv", r"^(Conv|ConvTranspose)\dd|ConvLayer|^(Max|Avg|AdaptiveAvg)Pool|ShortCut"
             r"|DWConv"),
    ("recurrent", r"^(LSTM|GRU|RNN):"),
)

# What these do themselves, outside the modules in them, may count as either side's: the
# sums around a block, an activation that is no module.
UNDECIDED = (r"^\w*Output:|WhisperEncoder:|Layer:|Block:|^T5Layer(Self|Cross|FF)|^CLIPModel:"
             r"|^LayoutLMv3Model:|^MPNetAttention:")

# The one call by which each model joins its modalities is no module's: the function, the
# innermost module around it, and where of one side alone the same is called there.
JOINS = (
    (torch.Tensor, "masked_scatter", r"^LlavaModel:", None),
    (torch, "cat", r"^ViltEmbeddings:", (modeling_vilt.ViltEmbeddings, "visual_embed")),
    (torch, "cat", r"^LayoutLMv3Model:",
     (modeling_layoutlmv3.LayoutLMv3Model, "forward_image")),
    (torch, "matmul", r"^CLIPModel:", None),
)

MODALITIES = (
    ("fusion", r"MultiModalProjector|^Fusion|ViltEncoder|ViltPooler|ViltLayer|^CLIPModel"
               r"|^LayoutLMv3Encoder"),
    ("vision", r"Vision(Model|Transformer|Embeddings)"
               r"|^(ViT|ResNet|RegNet|ConvNext|MobileNet|Segformer|EfficientNet|Swin)"
               r"|PatchEmbed|^Pixel|^Autoencoder"),
    ("audio", r"WhisperEncoder:"),
    ("text", r"^(Bert|GPT2|Llama|T5|Mixtral|OPT|DistilBert|Qwen2|WhisperDecoder|CLIPText|TextEmbeddings"
             r"|LSTMTagger|Roberta|GPTNeoX|LayoutLMv3Text|MPNet|Phi|Albert|Bart)"),
)

PHASES = (
    ("multimodal_fusion", r"MultiModalProjector|^Fusion|ViltEncoder|ViltPooler|^CLIPModel"
                          r"|^LayoutLMv3Encoder"),
    ("vision_decoding", r"DecodeHead|PixelDecoder"),
    ("vision_encoding", r"Vision(Model|Transformer)"
                        r"|^(ViT|ResNet|RegNet|ConvNext|MobileNetV2|Segformer|EfficientNet|Swin)Model"
                        r"|PatchEmbed|PixelEncoder"),
    ("forward", r"WhisperEncoder:|T5Stack:encoder|T5EncoderModel|^T5Stack:$|CLIPText"
                r"|TextEmbeddings|^Bert|^Roberta|^DistilBert|^MPNet|^LSTMTagger|^ClickModel"
                r"|^Albert|^BartEncoder:"),
)


def _decide(table, chain):
    for part in reversed(chain):
        # A convolution that cuts out patches; overlapping ones are a stage like others.
        if part.startswith("Conv") and any(
                re.search("(?<!Overlap)PatchEmbeddings:|VisionEmbeddings:", outer)
                for outer in chain):
            continue
        for label, pattern in table:
            if re.search(pattern, part):
                return label
    return None


class Labels:
    """While it is open, one program at a time."""

    def __enter__(self):
        # "class:name" of the modules around the call, and the parts named by hand.
        self._chain = []
        self._modules = []
        self._names = {}
        self._phase = None
        self._generating = None
        # Which calls are of a backward pass; the paths that it says are written over.
        djinn.set_call_sites(True)
        self._handles = (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        )
        self._patches = contextlib.ExitStack()
        # A cache is no module.
        for layer in (cache_utils.DynamicLayer, cache_utils.StaticLayer):
            self._patch(layer, "update", lambda _: self.part("KvCache"))
        # In what one side does alone.
        self._alone = False
        for owner, name, module, alone in JOINS:
            self._patch(owner, name, functools.partial(self._around_join, module))
            if alone is not None:
                self._patch(*alone, lambda _: self._one_side())
        global _open
        _open = self
        self._tell()
        return self

    def __exit__(self, *_):
        global _open
        _open = None
        for handle in self._handles:
            handle.remove()
        self._patches.close()
        _djinn.exchange_module_path("")

    @contextlib.contextmanager
    def part(self, name):
        self._chain.append(name)
        self._tell()
        try:
            yield
        finally:
            self._chain.pop()
            self._tell()

    @contextlib.contextmanager
    def phase(self, phase):
        outer, self._phase = self._phase, phase
        try:
            yield
        finally:
            self._phase = outer

    def generating(self, phase):
        """From the next forward of a language model on."""
        self._generating = phase
        self._tell()

    def _patch(self, owner, name, around):
        """Has each call of a function take place within `around(its first argument)`."""
        plain = getattr(owner, name)

        def labelled(first, *args, **kwargs):
            with around(first):
                return plain(first, *args, **kwargs)

        self._patches.enter_context(mock.patch.object(owner, name, labelled))

    def _around_join(self, module, first):
        tensor = first if torch.is_tensor(first) else first[0]
        joins = (self._chain and re.search(module, self._chain[-1]) and not self._alone
                 # Masks and places are joined, too.
                 and tensor.is_floating_point())
        return self.part("Fusion") if joins else contextlib.nullcontext()

    @contextlib.contextmanager
    def _one_side(self):
        self._alone = True
        try:
            yield
        finally:
            self._alone = False

    def _enter(self, module, _):
        name = ""
        if self._modules:
            name = self._names.get(id(module), "")
        else:
            self._names = {}
            for parent in module.modules():
                for child_name, child in parent.named_children():
                    self._names[id(child)] = child_name
        self._modules.append(module)
        self._chain.append(f"{type(module).__name__}:{name}")
        self._tell()

    def _leave(self, module, *_):
        if self._modules and self._modules[-1] is module:
            self._modules.pop()
            self._chain.pop()
            self._tell()

    def _tell(self):
        if not self._chain:
            _djinn.exchange_module_path("?/?/" + (self._phase or "?"))
            return
        role = _decide(ROLES, self._chain) or "none"
        if re.search(UNDECIDED, self._chain[-1]):
            role = "?"
        modality = _decide(MODALITIES, self._chain) or "?"
        phase = (self._phase or _decide(PHASES, self._chain) or self._generating or "?")
        _djinn.exchange_module_path(f"{role}/{modality}/{phase}")


_open = None


def label_part(name):
    return _open.part(name)


def label_phase(phase):
    return _open.phase(phase)


def label_generating(phase):
    _open.generating(phase)
