"""Makes small language models of transformers from configurations."""

import transformers


SIZES = {
    "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64,
}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def made_from(model, config, *, attention=None, experts=None, **sizes):
    def make():
        settings = getattr(transformers, config)(**sizes)
        if attention is not None:
            settings._attn_implementation = attention
        if experts is not None:
            settings._experts_implementation = experts
        return getattr(transformers, model)(settings)

    return make


def llama(attention=None):
    return made_from("LlamaForCausalLM", "LlamaConfig", attention=attention,
                      num_key_value_heads=2, **SIZES, **TOKENS)


def mixtral():
    return made_from("MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2,
                      num_local_experts=4, num_experts_per_tok=2, experts="eager",
                      **SIZES, **TOKENS)


def bert_classifier():
    return made_from("BertForSequenceClassification", "BertConfig", num_labels=3, **SIZES)


def neox():
    return made_from("GPTNeoXForCausalLM", "GPTNeoXConfig", **SIZES, **TOKENS)


def phi():
    return made_from("PhiForCausalLM", "PhiConfig", **SIZES, **TOKENS)


def mpnet():
    return made_from("MPNetModel", "MPNetConfig", pad_token_id=1, bos_token_id=0,
                      eos_token_id=2, **SIZES)


def albert():
    return made_from("AlbertModel", "AlbertConfig", embedding_size=24, **SIZES)


def bart():
    return made_from(
        "BartForConditionalGeneration", "BartConfig", vocab_size=96, d_model=48,
        encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
        max_position_embeddings=64, decoder_start_token_id=2, forced_eos_token_id=None,
        **TOKENS)


def falcon():
    return made_from(
        "FalconForCausalLM", "FalconConfig", vocab_size=96, hidden_size=48,
        num_hidden_layers=2, num_attention_heads=4, ffn_hidden_size=96,
        max_position_embeddings=64, **TOKENS)


def bloom():
    return made_from("BloomForCausalLM", "BloomConfig", vocab_size=96, hidden_size=48,
                      n_layer=2, n_head=4, **TOKENS)


def gemma():
    return made_from("Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2,
                      head_dim=12, sliding_window=32, **SIZES, **TOKENS)


def olmoe():
    return made_from("OlmoeForCausalLM", "OlmoeConfig", num_experts=4,
                      num_experts_per_tok=2, experts="eager", **SIZES, **TOKENS)


def gptj():
    return made_from("GPTJForCausalLM", "GPTJConfig", vocab_size=96, n_embd=48, n_layer=2,
                      n_head=4, n_inner=96, n_positions=64, rotary_dim=8, **TOKENS)


def pegasus():
    return made_from(
        "PegasusForConditionalGeneration", "PegasusConfig", vocab_size=96, d_model=48,
        encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
        max_position_embeddings=64, scale_embedding=True, decoder_start_token_id=0,
        forced_eos_token_id=None, **TOKENS)


def electra():
    return made_from("ElectraForSequenceClassification", "ElectraConfig",
                      embedding_size=24, num_labels=3, **SIZES)


def nemotron():
    return made_from("NemotronForCausalLM", "NemotronConfig", num_key_value_heads=2,
                      **SIZES, **TOKENS)


def codegen():
    return made_from("CodeGenForCausalLM", "CodeGenConfig", vocab_size=96, n_embd=48,
                      n_layer=2, n_head=4, n_inner=96, n_positions=64, n_ctx=64,
                      rotary_dim=8, **TOKENS)


def t5gemma():
    def make():
        side = {**SIZES, **TOKENS, "num_key_value_heads": 2, "head_dim": 12,
                "sliding_window": 32}
        return transformers.T5GemmaForConditionalGeneration(transformers.T5GemmaConfig(
            encoder=side, decoder=side, vocab_size=96, decoder_start_token_id=1, **TOKENS))

    return make


def glm():
    return made_from("GlmForCausalLM", "GlmConfig", num_key_value_heads=2, head_dim=12,
                      **SIZES, **TOKENS)


def olmo2():
    return made_from("Olmo2ForCausalLM", "Olmo2Config", num_key_value_heads=2, **SIZES,
                      **TOKENS)


def gpt_neo():
    return made_from("GPTNeoForCausalLM", "GPTNeoConfig", vocab_size=96, hidden_size=48,
                      num_layers=2, num_heads=4, intermediate_size=96, window_size=4,
                      attention_types=[[["global", "local"], 1]],
                      max_position_embeddings=64, **TOKENS)


def qwen3():
    return made_from("Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2,
                      head_dim=12, **SIZES, **TOKENS)


def starcoder2():
    return made_from("Starcoder2ForCausalLM", "Starcoder2Config", num_key_value_heads=2,
                      **SIZES, **TOKENS)


def stablelm():
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    return made_from("StableLmForCausalLM", "StableLmConfig", num_key_value_heads=2,
                      rope_parameters=rope, **SIZES, **TOKENS)


def biogpt():
    return made_from("BioGptForCausalLM", "BioGptConfig", **SIZES, **TOKENS)


def megatron_bert():
    return made_from("MegatronBertForSequenceClassification", "MegatronBertConfig",
                      num_labels=3, **SIZES)


def gpt_bigcode():
    return made_from("GPTBigCodeForCausalLM", "GPTBigCodeConfig", vocab_size=96, n_embd=48,
                      n_layer=2, n_head=4, n_inner=96, n_positions=64, **TOKENS)


def xglm():
    return made_from("XGLMForCausalLM", "XGLMConfig", vocab_size=96, d_model=48,
                      num_layers=2, attention_heads=4, ffn_dim=96,
                      max_position_embeddings=64, **TOKENS)


def ernie():
    return made_from("ErnieForSequenceClassification", "ErnieConfig", num_labels=3,
                      **SIZES)
