"""Small models of random weights, of libraries that bring whole networks: equal to the CPU's."""

import copy
import pathlib
import tempfile
import warnings

import diffusers
import numpy
import sentence_transformers
import torch
import transformers
import whisper
from sentence_transformers.models import Normalize, Pooling, Transformer

from tests.python.remote_case import RemoteCase

_UNET = {
    "block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 4, "attention_head_dim": 4,
}
_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat", "on", "the", "mat"]


def _rounded(value):
    """The value, with five digits of each real number in it."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


class DiffusersTest(RemoteCase):
    def unet(self):
        torch.manual_seed(0)
        return diffusers.UNet2DModel(
            sample_size=16, in_channels=3, out_channels=3, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"), **_UNET)

    def test_pipelines_draw_the_same_images(self):
        schedulers = (diffusers.DDPMScheduler, diffusers.DDIMScheduler)
        pipelines = (diffusers.DDPMPipeline, diffusers.DDIMPipeline)
        for scheduler, kind in zip(schedulers, pipelines, strict=True):
            with self.subTest(kind.__name__):
                images = []
                for device in ("cpu", self.device):
                    pipeline = kind(self.unet(), scheduler()).to(device)
                    pipeline.set_progress_bar_config(disable=True)
                    images.append(pipeline(
                        generator=torch.Generator().manual_seed(1), num_inference_steps=3,
                        output_type="np").images)
                self.assertTrue(numpy.array_equal(*images))

    def test_a_conditional_network_trains(self):
        torch.manual_seed(0)
        local = diffusers.UNet2DConditionModel(
            sample_size=8, in_channels=4, out_channels=4, cross_attention_dim=8,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **_UNET)
        remote = copy.deepcopy(local).to(self.device)
        scheduler = diffusers.DDPMScheduler()
        latents, noise, text = torch.randn(2, 4, 8, 8), torch.randn(2, 4, 8, 8), torch.randn(2, 5, 8)
        steps = torch.tensor([10, 500])
        losses = []
        for model in (local, remote):
            device = model.device
            optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
            for _ in range(2):
                noisy = scheduler.add_noise(latents.to(device), noise.to(device), steps.to(device))
                made = model(noisy, steps.to(device), text.to(device)).sample
                loss = torch.nn.functional.mse_loss(made, noise.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        self.assertEqual(losses[:2], losses[2:])
        for one, other in zip(remote.parameters(), local.parameters(), strict=True):
            self.assert_same(one, other)

    def test_an_autoencoder(self):
        torch.manual_seed(0)
        local = diffusers.AutoencoderKL(
            block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, latent_channels=4).eval()
        remote = copy.deepcopy(local).to(self.device)
        image = torch.rand(1, 3, 16, 16)
        with torch.no_grad():
            latents = local.encode(image).latent_dist.mode()
            self.assert_same(remote.encode(image.to(self.device)).latent_dist.mode(), latents)
            self.assert_same(remote.decode(latents.to(self.device)).sample, local.decode(latents).sample)


class SentenceTransformersTest(RemoteCase):
    def test_sentences_have_the_same_embeddings(self):
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=len(_WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=32)
        with tempfile.TemporaryDirectory() as folder:
            transformers.BertModel(config).save_pretrained(folder)
            pathlib.Path(folder, "vocab.txt").write_text("\n".join(_WORDS))
            transformers.BertTokenizerFast(str(pathlib.Path(folder, "vocab.txt"))).save_pretrained(folder)
            models = []
            for device in ("cpu", self.device):
                words = Transformer(folder)
                models.append(sentence_transformers.SentenceTransformer(
                    modules=[words, Pooling(16), Normalize()], device=str(device)))
        sentences = ["the cat sat", "on the mat", "a cat", "the cat sat on the mat"]
        local, remote = (
            model.encode(sentences, batch_size=2, convert_to_tensor=True) for model in models)
        self.assert_same(remote, local)
        self.assert_same(models[1].similarity(remote, remote), models[0].similarity(local, local))


class WhisperTest(RemoteCase):
    def setUp(self):
        torch.manual_seed(0)
        dimensions = whisper.model.ModelDimensions(
            n_mels=80, n_audio_ctx=1500, n_audio_state=16, n_audio_head=2, n_audio_layer=1,
            n_vocab=51865, n_text_ctx=448, n_text_state=16, n_text_head=2, n_text_layer=2)
        self.local = whisper.model.Whisper(dimensions).eval()
        # whisper leaves this one to its checkpoints.
        torch.nn.init.normal_(self.local.decoder.positional_embedding)
        self.remote = copy.deepcopy(self.local).to(self.device)
        self.audio = torch.sin(torch.arange(16000 * 2) / 20) * torch.rand(16000 * 2)

    def test_speech_is_decoded_to_the_same_tokens(self):
        options = whisper.DecodingOptions(
            language="en", fp16=False, sample_len=8, without_timestamps=True)
        spectrogram = whisper.log_mel_spectrogram(whisper.pad_or_trim(self.audio))
        remote = whisper.log_mel_spectrogram(whisper.pad_or_trim(self.audio), device=self.device)
        self.assert_same(remote, spectrogram)
        with torch.no_grad():
            one = whisper.decode(self.local, spectrogram, options)
            other = whisper.decode(self.remote, remote, options)
        self.assertEqual(other.tokens, one.tokens)
        self.assertEqual(other.avg_logprob, one.avg_logprob)

    def test_speech_is_transcribed_with_the_same_times(self):
        results = []
        for model in (self.local, self.remote):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results.append(whisper.transcribe(
                    model, self.audio, language="en", fp16=False, sample_len=8, temperature=0.0,
                    no_speech_threshold=None, logprob_threshold=None,
                    compression_ratio_threshold=None, word_timestamps=True))
        # The last bits of the probabilities differ.
        self.assertEqual(_rounded(results[1]), _rounded(results[0]))
