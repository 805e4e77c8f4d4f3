"""Networks of kinds that transformers does not have."""

import torch


class LSTMTagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(96, 32)
        self.lstm = torch.nn.LSTM(32, 48, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(48, 7)

    def forward(self, input_ids):
        hidden, _ = self.lstm(self.embedding(input_ids))
        return self.head(hidden[:, -1])


class GRUTagger(torch.nn.Module):
    """Reads both ways; a score for each token."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(96, 32)
        self.gru = torch.nn.GRU(32, 24, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(48, 7)

    def forward(self, input_ids):
        hidden, _ = self.gru(self.embedding(input_ids))
        return self.head(hidden)


class DotInteraction(torch.nn.Module):
    def forward(self, vectors):
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        rows, columns = torch.tril_indices(
            vectors.shape[1], vectors.shape[1], -1, device=vectors.device)
        return products[:, rows, columns]


class ClickMLP(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        layers = []
        for before, after in zip(sizes, sizes[1:]):
            layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*layers[:-1])

    def forward(self, x):
        return self.layers(x)


class ClickModel(torch.nn.Module):
    """A recommender: bags of categories, dense features, their products, a score."""

    def __init__(self):
        super().__init__()
        self.tables = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(200, 16, mode="sum") for _ in range(6))
        self.bottom = ClickMLP(13, 32, 16)
        self.interaction = DotInteraction()
        self.top = ClickMLP(16 + 21, 32, 1)

    def forward(self, dense, categories):
        bottom = self.bottom(dense)
        vectors = [bottom] + [
            table(categories[:, k]) for k, table in enumerate(self.tables)]
        products = self.interaction(torch.stack(vectors, 1))
        return torch.sigmoid(self.top(torch.cat([bottom, products], 1)))


class PixelEncoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, 2, 1), torch.nn.GroupNorm(4, 16), torch.nn.SiLU(),
            torch.nn.Conv2d(16, 32, 3, 2, 1), torch.nn.GroupNorm(4, 32), torch.nn.SiLU(),
            torch.nn.Conv2d(32, 4, 3, 1, 1))

    def forward(self, pixels):
        return self.layers(pixels)


class PixelDecoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(4, 32, 3, 1, 1)
        self.norm = torch.nn.GroupNorm(4, 32)
        self.second = torch.nn.Conv2d(32, 16, 3, 1, 1)
        self.up = torch.nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.last = torch.nn.Conv2d(8, 3, 3, 1, 1)

    def forward(self, latent):
        hidden = torch.nn.functional.silu(self.norm(self.first(latent)))
        hidden = torch.nn.functional.interpolate(hidden, scale_factor=2.0)
        hidden = torch.nn.functional.silu(self.second(hidden))
        return torch.tanh(self.last(torch.nn.functional.silu(self.up(hidden))))


class Autoencoder(torch.nn.Module):
    """Pixels to a latent and back, as in image generation."""

    def __init__(self):
        super().__init__()
        self.encoder = PixelEncoder()
        self.decoder = PixelDecoder()

    def forward(self, pixel_values):
        return self.decoder(self.encoder(pixel_values))
