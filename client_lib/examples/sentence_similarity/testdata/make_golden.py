"""Makes golden.json: what the C++ code beside this folder must compute.

An independent reference: token ids come from Hugging Face's `tokenizers`
package, embeddings from the few lines of float64 numpy below, which share
nothing with PyTorch. Run it again only when the sentences change:

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install numpy tokenizers
    /tmp/golden/bin/python make_golden.py MODEL_FOLDER > golden.json
"""

import json
import math
import pathlib
import sys

import numpy
import tokenizers

# Text and the most tokens it may have.
TOKENIZER_CASES = [
    ("The cat sits outside", 256),
    ("", 256),
    ("  \t tabs,\r\nlines\u00a0and\u2003wide \u3000 spaces\u2028 ", 256),
    ("Café déjà vu: Ångström, naïve façade, El Niño!", 256),
    ("e\u0301clair and é are the same word", 256),
    ("Straße İSTANBUL ǅungla ΌΔΟΣ", 256),
    ("我喜欢机器学习，真的。深度學習 㐀 𠀀", 256),
    ("東京タワーへ行きました。ガ", 256),
    ("안녕하세요 세계", 256),
    ("Привет, мир! Ёлка и йод", 256),
    ("مَرْحَبًا بالعالم ও हिन्दी ไทย", 256),
    ("don't (stop) — $5.00+10% <tag> a_b `x` ~ ^|\\ «quote» …¿?", 256),
    ("I ♥ C++ 🙂👩‍👩‍👧 ☃️ 🏳️‍🌈", 256),
    ("unaffordable antidisestablishmentarianism "
     "Donaudampfschifffahrtsgesellschaft", 256),
    ("a" * 100 + " " + "b" * 101, 256),
    ("zero\u200bwidth soft\u00adhyphen nul\u0000byte bad\ufffdchar "
     "priv\ue000ate \ufeffbom", 256),
    ("[CLS] [MASK] tokens [SEP] written out", 256),
    ("ﬁne ½ ² ① Ⅷ ｆｕｌｌｗｉｄｔｈ ㎏", 256),
    ("the quick brown fox jumps over the lazy dog", 6),
    ("unaffordable antidisestablishmentarianism", 5),
    ("the quick brown fox", 2),
    ("word " * 600, 256),
    ("word " * 600, 512),
]

EMBEDDED_SENTENCES = [
    "The new movie is awesome",
    "Café déjà vu, said 東京: 5 > 3!",
    "A distributed system is one in which the failure of a computer you did "
    "not even know existed can render your own computer unusable.",
]


def read_safetensors(path):
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + header_bytes])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = (8 + header_bytes + offset
                      for offset in entry["data_offsets"])
        values = numpy.frombuffer(data[begin:end], dtype="<f4")
        tensors[name] = values.reshape(entry["shape"]).astype(numpy.float64)
    return tensors


def embed(weights, config, ids):
    """The embedding of one sentence, without padding."""

    def linear(name, x):
        return x @ weights[name + ".weight"].T + weights[name + ".bias"]

    def layer_norm(name, x):
        centred = x - x.mean(-1, keepdims=True)
        deviation = numpy.sqrt(
            (centred**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return (centred / deviation * weights[name + ".weight"] +
                weights[name + ".bias"])

    def softmax(x):
        powers = numpy.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    gelu = numpy.vectorize(
        lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))

    table = "embeddings.%s_embeddings.weight"
    x = layer_norm(
        "embeddings.LayerNorm",
        weights[table % "word"][ids] + weights[table % "token_type"][0] +
        weights[table % "position"][:len(ids)])
    heads = config["num_attention_heads"]
    width = config["hidden_size"] // heads
    for layer in range(config["num_hidden_layers"]):
        name = "encoder.layer.%d." % layer
        query, key, value = (
            linear(name + "attention.self." + part, x)
            for part in ("query", "key", "value"))
        mixed = []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            scores = query[:, part] @ key[:, part].T / math.sqrt(width)
            mixed.append(softmax(scores) @ value[:, part])
        attended = layer_norm(
            name + "attention.output.LayerNorm",
            linear(name + "attention.output.dense",
                   numpy.concatenate(mixed, -1)) + x)
        x = layer_norm(
            name + "output.LayerNorm",
            linear(name + "output.dense",
                   gelu(linear(name + "intermediate.dense", attended))) +
            attended)
    mean = x.mean(0)
    return mean / numpy.linalg.norm(mean)


def main():
    folder = pathlib.Path(sys.argv[1])
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    # A "[SEP]" in a sentence is text, not a separator: see wordpiece.h.
    tokenizer.encode_special_tokens = True
    config = json.loads((folder / "config.json").read_text())
    weights = read_safetensors(folder / "model.safetensors")

    def encode(text, max_tokens):
        tokenizer.enable_truncation(max_tokens)
        return tokenizer.encode(text).ids

    tokens = [{"text": text, "max_tokens": limit, "ids": encode(text, limit)}
              for text, limit in TOKENIZER_CASES]
    embeddings = [{
        "text": text,
        "embedding": [float("%.8f" % value)
                      for value in embed(weights, config, encode(text, 256))]
    } for text in EMBEDDED_SENTENCES]

    # One case per line, so that a change shows as a small difference.
    def lines(cases):
        return ",\n".join(json.dumps(case, separators=(",", ":"))
                          for case in cases)

    print('{"tokens": [\n%s\n],\n"embeddings": [\n%s\n]}' %
          (lines(tokens), lines(embeddings)))


if __name__ == "__main__":
    main()
