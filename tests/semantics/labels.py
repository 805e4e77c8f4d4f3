"""Says beside every call what it truly is, by the classes of the modules around it.

A label is "role/modality/phase", put where the module's path would stand in the notes;
the analysis that is tested is given none. A field that the classes do not decide is
"?": it is not counted.
"""

import contextlib
import functools
import re
import weakref
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

# The innermost module that an entry describes decides the label. If several
# entries match its "class:name", the first one counts.
ROLES = (
    ("?", r"^Residual$"),
    ("conv", r"^(ConvActivation|ImagePooling)$"),
    ("mlp", r"^MlpActivation$"),
    ("embedding", r"^EmbeddingSum$"),
    ("kv_cache", r"^KvCache"),
    ("loss", r"^Loss"),
    ("optimizer", r"^Optimizer"),
    ("conv", r"^BatchNorm"),
    # These normalize a weight, not a value.
    ("?", r"^ParametrizationList:|^_WeightNorm:"),
    ("norm", r"^\w*Norm(\d*d|1P)?:"),
    ("embedding", r"^Conv\dd:patch_conv$"),
    # These models call their first convolution embeddings.
    ("conv", r"^(EfficientNet|AlignVision)(Embeddings|Encoder|\w+Layer):"),
    # CLIP's projections lead to the space in which text and images are
    # compared. FLAVA's projections lead to the encoder that reads both.
    ("fusion", r"^(\w*MultiModalProjector|Idefics3Connector|DeepseekVLAligner|SmolVLMConnector"
               r"|Fusion|DotInteraction)"
               r"|:modality_projection$"
               r"|:(visual|text)_projection$|:(image|text)_to_mm_projection$"),
    # This part of the text's modules projects to the space in which text and
    # images are compared.
    ("?", r"^SiglipTextModel:|^Linear:transformation$"),
    ("conv", r"PositionalConvEmbedding:"),
    ("embedding", r"^\w*Embedding(s|Bag)?:|^\w*PatchEmbed"),
    ("moe", r"Experts?:|MoE|SparseMoe|Router"),
    ("attention", r"Attention:|Attention$|SelfOutput|EfficientSelfAttention"
                  r"|^Aimv2AttentionPoolingHead:"
                  r"|^(LayoutLMv3|MPNet)Encoder:|:rel_pos"),
    ("?", r"^SegformerMLP"),
    ("mlp", r"MLP|Mlp|Intermediate|FeedForward|LayerFF|DenseAct|FFN:"
            r"|^(?!\w*SelfOutput)\w+Output:|:(fc1|fc2|pwconv1|pwconv2|ffn|ffn_output)$"),
    # These weigh channels by convolutions of their means.
    ("conv", r"^\w*SELayer:|SqueezeExcite"),
    ("conv", r"^(Conv|ConvTranspose)\dd|ConvLayer|^(Max|Avg|AdaptiveAvg)Pool|ShortCut"
             r"|DWConv|DepthWiseConv"),
    ("recurrent", r"^(LSTM|GRU|RNN):"),
)

# An activation directly after one of these belongs to it, no matter which
# module calls the activation.
BEFORE_ACTIVATIONS = (
    ("ConvActivation", r"^\w*Conv(Transpose)?\dd:|^\w*BatchNorm\dd:"),
    ("MlpActivation", r"^Linear:(fc1|pwconv1|ffn)$"),
)
ACTIVATIONS = (
    (torch.nn.functional, ("relu", "silu", "gelu")),
    (torch, ("sigmoid", "tanh")),
)
# Packages in which activations are modules.
ACTIVATION_MODULES = ("torch.nn.modules.activation", "transformers.activations")

# Calls that these modules make themselves, outside of their submodules, may
# count for either modality: the sums around a block, or an activation that is
# not a module.
UNDECIDED = (r"^\w*Output:|(Whisper|Qwen2Audio|Voxtral|AudioFlamingo3|GlmAsr)Encoder:"
             r"|Layer:|Block:|LayerScale:"
             r"|^T5Layer(Self|Cross|FF)|^LayoutLMv3Model:"
             r"|^((Chinese|Alt)?CLIP|CLIPSeg|Siglip|MetaClip2|Blip|Align|OwlViT"
             r"|VisionTextDualEncoder|Aimv2)Model:"
             # These modules compute which of the images are more than padding,
             # and where their patches are.
             r"|^MPNetAttention:|^(Idefics3|SmolVLM|LlavaOnevision|LlavaNext)Model:"
             r"|^PixtralVisionModel:")

# Some of the calls that these modules make themselves are for the images,
# others for the language model.
PHASE_UNDECIDED = r"^(Idefics3|SmolVLM|LlavaOnevision|LlavaNext)Model:"

# The call by which each model joins its modalities belongs to no module. An
# entry names the function, the innermost module around the call, and where the
# same function is called within one modality.
JOINS = (
    (torch.Tensor, "masked_scatter",
     r"^(Llava|InternVL|AyaVision|PaliGemma|Qwen2Audio|VipLlava|Gemma3|Voxtral|Idefics3"
     r"|Mistral3|Cohere2Vision|GotOcr2|DeepseekVL|LlavaOnevision|AudioFlamingo3"
     r"|LlavaNext|SmolVLM|GlmAsr|LightOnOcr|VideoLlava)Model:", None),
    (torch, "cat", r"^ViltEmbeddings:", (modeling_vilt.ViltEmbeddings, "visual_embed")),
    (torch, "cat", r"^LayoutLMv3Model:",
     (modeling_layoutlmv3.LayoutLMv3Model, "forward_image")),
    (torch, "matmul", r"^((Chinese|Alt)?CLIP|CLIPSeg|Siglip|MetaClip2|Blip|Align|OwlViT"
             r"|VisionTextDualEncoder|Aimv2)Model:", None),
    (torch, "cat", r"^FlavaModel:", None),
)

MODALITIES = (
    ("fusion", r"MultiModalProjector|^(Idefics3|SmolVLM)Connector|^DeepseekVLAligner"
               r"|^Fusion"
               r"|ViltEncoder|ViltPooler|ViltLayer|^(Chinese|Alt)?CLIPModel"
               r"|^(MetaClip2|Blip|Align|CLIPSeg|OwlViT|VisionTextDualEncoder|Aimv2)Model"
               r"|^LayoutLMv3Encoder|^SiglipModel|^Flava(Multimodal)?Model"),
    ("vision", r"(?<!Aya)(?<!Cohere2)Vision(Model|Transformer|Embeddings)"
               r"|^GotOcr2Vision"
               r"|^(ViT|ResNet|RegNet|ConvNext|MobileNet|Segformer|EfficientNet|Swin"
               r"|PoolFormer|Dinov2|DepthAnything|FlavaImage|GLPN|DeiT|Beit)"
               r"|PatchEmbed|^Pixel|^Autoencoder"),
    ("audio", r"WhisperEncoder:|^(Qwen2Audio|Voxtral|AudioFlamingo3)Encoder|^Hubert"
              r"|^Wav2Vec2|^GlmAsr(?!Model|For|Multi)"),
    ("text", r"^(Bert|GPT2|Llama|T5|Mixtral|OPT|DistilBert|Qwen2(?!Audio)|WhisperDecoder"
             r"|(Chinese)?CLIPText|TextEmbeddings|LSTMTagger|Roberta|GPTNeo"
             r"|LayoutLMv3Text|MPNet|Phi"
             r"|Albert|Bart|Falcon|Bloom|Gemma(?!3(Model|For))|Olmo|GPTJ|Pegasus|Electra"
             r"|GRUTagger|Cohere(?!2Vision)|SiglipText|FlavaText|Nemotron|CodeGen"
             r"|Glm(?!Asr)|Mistral(?!3)"
             r"|AltRoberta|AltCLIPText|MetaClip2Text|BlipText|AlignText|Qwen3|Starcoder2"
             r"|StableLm|BioGpt|MegatronBert|GPTBigCode|XGLM|Ernie|OwlViTText|CLIPSegText"
             r"|Aimv2Text)"),
)

PHASES = (
    ("multimodal_fusion", r"MultiModalProjector|^(Idefics3|SmolVLM)Connector"
                          r"|^DeepseekVLAligner"
                          r"|^Fusion|ViltEncoder|ViltPooler|^(Chinese|Alt)?CLIPModel"
                          r"|^(MetaClip2|Blip|Align|CLIPSeg|OwlViT|Aimv2)Model"
                          r"|^VisionTextDualEncoderModel"
                          r"|^LayoutLMv3Encoder|^SiglipModel|^Flava(Multimodal)?Model"),
    ("vision_decoding", r"DecodeHead|PixelDecoder|^DepthAnything(?!For)"
                        r"|^GLPN(Decoder|DepthEstimationHead)"),
    ("vision_encoding", r"(?<!Aya)(?<!Cohere2)Vision(Model|Transformer)|^GotOcr2Vision"
                        r"|^(ViT|ViTMSN|ResNet|RegNet|ConvNext|MobileNetV[12]|Segformer"
                        r"|EfficientNet|Swin|PoolFormer|FlavaImage|GLPN|DeiT)Model"
                        r"|PatchEmbed|PixelEncoder|^Dinov2Backbone"),
    ("forward", r"WhisperEncoder:|^T5GemmaEncoder:|T5Stack:encoder|T5EncoderModel|^T5Stack:$"
                r"|CLIPText|SiglipText|FlavaText|MetaClip2Text|BlipText|AlignText|AltRoberta"
                r"|OwlViTText|CLIPSegText|Aimv2Text"
                r"|TextEmbeddings|^Bert|^Roberta|^DistilBert|^MPNet|^LSTMTagger|^ClickModel"
                r"|^Albert|^BartEncoder:|^PegasusEncoder:|^Electra|^GRUTagger|^Hubert"
                r"|^(Qwen2Audio|Voxtral|AudioFlamingo3|GlmAsr)Encoder|^Wav2Vec2"),
)


def _decide(table, chain):
    for part in reversed(chain):
        # A convolution that cuts out patches does not decide. A convolution with
        # overlapping patches decides as other modules do.
        if re.match(r"Conv\dd:", part) and any(
                re.search(r"(?<!Overlap)PatchEmbeddings:|VisionEmbeddings:"
                          r"|^Conv\dd:patch_embeddings?$", outer)
                for outer in chain):
            continue
        for label, pattern in table:
            if re.search(pattern, part):
                return label
    return None


class Labels:
    """While it is open, one program at a time."""

    def __enter__(self):
        # The "class:name" of each module around the call, and the parts named
        # by hand.
        self._chain = []
        self._modules = []
        # The first argument of each module's call.
        self._begun = []
        self._names = {}
        self._phase = None
        self._generating = None
        # Call sites show which calls belong to a backward pass. The module
        # paths in them are replaced.
        djinn.set_call_sites(True)
        self._handles = (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        )
        self._patches = contextlib.ExitStack()
        # A cache is not a module.
        for layer in (cache_utils.DynamicLayer, cache_utils.DynamicSlidingWindowLayer,
                      cache_utils.StaticLayer):
            self._patch(layer, "update", lambda *_: self.part("KvCache"))
        # The results of embeddings, and the results of each entry of
        # BEFORE_ACTIVATIONS.
        self._embedded = weakref.WeakValueDictionary()
        self._before = {name: weakref.WeakValueDictionary()
                        for name, _ in BEFORE_ACTIVATIONS}
        for owner, names in ACTIVATIONS:
            for name in names:
                self._patch(owner, name, self._around_activation)
        self._patch(torch.Tensor, "mean", self._around_mean)
        self._patch_sums()
        # Whether the call is within one modality.
        self._alone = False
        for owner, name, module, alone in JOINS:
            self._patch(owner, name, functools.partial(self._around_join, module))
            if alone is not None:
                self._patch(*alone, lambda *_: self._one_side())
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
        """Sets the phase from the next forward of a language model on."""
        self._generating = phase
        self._tell()

    def _patch(self, owner, name, around):
        """Has each call of a function take place within `around(its arguments)`."""
        plain = getattr(owner, name)

        def labelled(*args, **kwargs):
            with around(*args):
                return plain(*args, **kwargs)

        self._patches.enter_context(mock.patch.object(owner, name, labelled))

    def _part_of_activation(self, operand):
        return next((part for part, made in self._before.items() if id(operand) in made),
                    None)

    def _around_activation(self, operand=None, *_):
        part = self._part_of_activation(operand)
        return contextlib.nullcontext() if part is None else self.part(part)

    def _around_mean(self, operand, dimensions=None, *_):
        """Labels a mean over an image's rows and columns as pooling."""
        pools = (operand.dim() == 4 and isinstance(dimensions, (list, tuple))
                 and sorted(k % 4 for k in dimensions) == [2, 3])
        return self.part("ImagePooling") if pools else contextlib.nullcontext()

    def _patch_sums(self):
        """Labels sums and products of tensors.

        A sum with the input of an enclosing module is a residual connection. A sum of
        embeddings alone is an embedding, and so is an embedding times a number.
        """
        def patch(name, find_part):
            plain = getattr(torch.Tensor, name)

            def labelled(first, second):
                part = find_part(first, second)
                if part is None:
                    return plain(first, second)
                with self.part(part):
                    made = plain(first, second)
                if part == "EmbeddingSum":
                    self._embedded[id(made)] = made
                return made

            self._patches.enter_context(mock.patch.object(torch.Tensor, name, labelled))

        def sum_part(first, second):
            if self._is_residual(first, second):
                return "Residual"
            both = id(first) in self._embedded and id(second) in self._embedded
            return "EmbeddingSum" if both else None

        def product_part(first, second):
            scales = id(first) in self._embedded and isinstance(second, (int, float))
            return "EmbeddingSum" if scales else None

        patch("__add__", sum_part)
        patch("__mul__", product_part)
        plain_add = torch.Tensor.__iadd__

        def add_in_place(first, second):
            # The value that exists now is not the result of a convolution.
            for made in self._before.values():
                made.pop(id(first), None)
            return plain_add(first, second)

        self._patches.enter_context(
            mock.patch.object(torch.Tensor, "__iadd__", add_in_place))

    def _is_residual(self, first, second):
        if not torch.is_tensor(second) or first.shape != second.shape:
            return False
        if (not self._modules
                or type(self._modules[-1]).__module__ in ACTIVATION_MODULES):
            return False
        # Some modules pass the other term of the sum as a second argument.
        return any(
            one() is term
            for begun in self._begun for one in begun for term in (first, second)
            if begun[0]() is not None and begun[0]().shape == first.shape)

    def _around_join(self, module, first, *_):
        tensor = first if torch.is_tensor(first) else first[0]
        joins = (self._chain and re.search(module, self._chain[-1]) and not self._alone
                 # Masks and positions are joined, too.
                 and tensor.is_floating_point()
                 and (tensor is first or tensor.dim() > 2))
        return self.part("Fusion") if joins else contextlib.nullcontext()

    @contextlib.contextmanager
    def _one_side(self):
        self._alone = True
        try:
            yield
        finally:
            self._alone = False

    def _enter(self, module, arguments):
        name = ""
        if self._modules:
            name = self._names.get(id(module), "")
        else:
            self._names = {}
            for parent in module.modules():
                for child_name, child in parent.named_children():
                    self._names[id(child)] = child_name
        self._modules.append(module)
        self._begun.append([weakref.ref(one) for one in arguments if torch.is_tensor(one)])
        part = None
        if arguments and type(module).__module__ in ACTIVATION_MODULES:
            part = self._part_of_activation(arguments[0])
        self._chain.append(part or f"{type(module).__name__}:{name}")
        self._tell()

    def _leave(self, module, _, made):
        if not self._modules or self._modules[-1] is not module:
            return
        name = f"{type(module).__name__}:{self._names.get(id(module), '')}"
        self._modules.pop()
        self._begun.pop()
        self._chain.pop()
        self._tell()
        if not torch.is_tensor(made):
            return
        for part, pattern in BEFORE_ACTIVATIONS:
            if re.search(pattern, name):
                self._before[part][id(made)] = made
        if _decide(ROLES, [name]) == "embedding":
            self._embedded[id(made)] = made

    def _tell(self):
        if not self._chain:
            _djinn.exchange_module_path("?/?/" + (self._phase or "?"))
            return
        role = _decide(ROLES, self._chain) or "none"
        if re.search(UNDECIDED, self._chain[-1]):
            role = "?"
        # A norm belongs to the modules around it.
        around = [part for part in self._chain if not re.match(r"\w*Norm:", part)]
        modality = _decide(MODALITIES, around) or "?"
        phase = (self._phase or _decide(PHASES, self._chain) or self._generating or "?")
        if re.search(PHASE_UNDECIDED, self._chain[-1]):
            phase = "?"
        _djinn.exchange_module_path(f"{role}/{modality}/{phase}")


_open = None


def label_part(name):
    return _open.part(name)


def label_phase(phase):
    return _open.phase(phase)


def label_generating(phase):
    _open.generating(phase)
