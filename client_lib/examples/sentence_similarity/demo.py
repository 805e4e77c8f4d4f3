"""Runs a Hugging Face sentence encoder on a Djinn cluster and locally, and compares.

`./djinn demo --python` runs this. The program names a device of Djinn in the place of
"cuda" and is PyTorch and transformers for the rest.
"""

import sys
import time

import djinn
import torch
import transformers

SENTENCES = [
    "The new movie is awesome",
    "The cat sits outside",
    "A man is playing guitar",
    "The new movie is so great",
    "The dog plays in the garden",
    "A woman watches TV",
]


def encode(model, tokens):
    """Returns the mean of each sentence's token vectors, of length 1, and the seconds."""
    begin = time.perf_counter()
    with torch.inference_mode():
        tokens = {name: value.to(model.device) for name, value in tokens.items()}
        mask = tokens["attention_mask"].unsqueeze(-1).float()
        hidden = model(**tokens).last_hidden_state
        mean = (hidden * mask).sum(1) / mask.sum(1)
        embeddings = torch.nn.functional.normalize(mean).cpu()
    return embeddings, time.perf_counter() - begin


def main():
    folder = sys.argv[1]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    local = transformers.AutoModel.from_pretrained(folder).eval()
    remote = transformers.AutoModel.from_pretrained(folder).eval()
    tokens = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with djinn.local(workers=2):
        remote = remote.to(djinn.device())
        for run in ("first", "second"):
            expected, local_seconds = encode(local, tokens)
            actual, remote_seconds = encode(remote, tokens)
            print(f"{run} run: locally {local_seconds * 1e3:.1f} ms, "
                  f"on {djinn.where_is().worker_id} {remote_seconds * 1e3:.1f} ms")
        print(f"sent {djinn.statistics()['bytes_up'] / 1e6:.1f} MB in all; "
              f"largest difference {(expected - actual).abs().max().item():g}")
    alike = actual @ actual.T - 2 * torch.eye(len(SENTENCES))
    for sentence, best in zip(SENTENCES, alike.argmax(1)):
        print(f"  {sentence!r} is most like {SENTENCES[best]!r}")
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


if __name__ == "__main__":
    main()
