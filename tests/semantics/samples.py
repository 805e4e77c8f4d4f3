"""Makes the inputs of the zoo's programs, each time from the same seeds."""

import torch

from tests.hugging_face import models


def waves():
    generator = torch.Generator().manual_seed(7)
    return {"input_values": torch.randn(2, 800, generator=generator)}


def patched_prompt(patches):
    """Text around as many tokens as an image, or a sound, becomes."""
    def make():
        text = models._tokens(1, 6, vocabulary=90)
        other = torch.full((1, patches), 95)
        ids = torch.cat([text[:, :2], other, text[:, 2:]], 1)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return make


def heard():
    return {**patched_prompt(10)(), "input_features": models._sound()[:1],
            "feature_attention_mask": torch.ones(1, 40, dtype=torch.long)}


def seen(patches):
    return lambda: {**patched_prompt(patches)(), "pixel_values": models._pixels(1, 32)}


def seen_in_rows(patches):
    """Several images a row may have; each has one."""
    def make():
        inputs = seen(patches)()
        return {**inputs, "pixel_values": inputs["pixel_values"][:, None]}

    return make


def seen_with_sizes(patches):
    return lambda: {**seen(patches)(), "image_sizes": torch.tensor([[32, 32]])}


def seen_larger(patches):
    return lambda: {**patched_prompt(patches)(), "pixel_values": models._pixels(1, 64)}


def seen_in_tiles(patches):
    """An image as a whole and its only tile."""
    def make():
        inputs = patched_prompt(patches)()
        return {**inputs, "pixel_values": models._pixels(2, 32)[None],
                "image_sizes": torch.tensor([[32, 32]])}

    return make


def seen_beside_videos(patches):
    def make():
        inputs = seen(patches)()
        inputs["pixel_values_images"] = inputs.pop("pixel_values")
        return inputs

    return make


def read_and_seen(side=32):
    return lambda: {**models._text(), "pixel_values": models._pixels(2, side)}


def heard_with_mask(tokens):
    return lambda: {**patched_prompt(tokens)(), "input_features": models._sound()[:1],
                    "input_features_mask": torch.ones(1, 40, dtype=torch.long)}


def heard_whole():
    return {**patched_prompt(10)(), "input_features": models._sound()[:1]}


def seen_by_types():
    inputs = seen(16)()
    return {**inputs, "token_type_ids": torch.zeros_like(inputs["input_ids"])}


def page():
    """Words, where on the page they stand, and the page."""
    text = models._text()
    rows, columns = text["input_ids"].shape
    corner = models._tokens(rows, columns * 2, vocabulary=30, seed=6).view(rows, columns, 2)
    return {**text, "bbox": torch.cat([corner, corner + 8], -1),
            "pixel_values": models._pixels(rows, 32)}


def image_prompt():
    text = models._tokens(1, 6, vocabulary=90)
    image = torch.full((1, 16), 95)
    ids = torch.cat([text[:, :2], image, text[:, 2:]], 1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids),
            "pixel_values": models._pixels(1, 32)}


def unpadded():
    return {"input_ids": models._tokens(1, 9)}


def pixels(rows, side):
    return lambda: {"pixel_values": models._pixels(rows, side)}


def clicks():
    generator = torch.Generator().manual_seed(5)
    return {"dense": torch.rand(8, 13, generator=generator),
            "categories": torch.randint(0, 200, (8, 6, 3), generator=generator)}
