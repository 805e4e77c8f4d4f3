"""Tests which device libraries choose by themselves, and the warning for the CPU."""

import unittest

from tests.python.remote_case import run_program

_LOCAL = "import torch, djinn; cluster = djinn.local(worker_threads=1)\n"
_PIPELINE = """
import transformers
config = transformers.GPT2Config(vocab_size=32, n_embd=16, n_layer=1, n_head=2)
model = transformers.GPT2Model(config)
class Pipeline(transformers.Pipeline):
    def _sanitize_parameters(self): return {}, {}, {}
    def preprocess(self, ids): return {"input_ids": torch.tensor([ids])}
    def _forward(self, inputs): return self.model(**inputs)
    def postprocess(self, outputs): return outputs.last_hidden_state.shape
"""
_LIGHTNING = """
import importlib, sys
lightning = importlib.import_module(sys.argv[1])
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        result = self.layer(batch)
        print(batch.device, result.dtype)
        return result.float().sum()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
def fit(**options):
    trainer = lightning.Trainer(
        max_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **options)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(4, 4), batch_size=4))
"""


# Maps a library to code whose make() lets the library choose a device, and to the
# warning.
_SILENT = {
    "sentence_transformers": ("""
import sentence_transformers
from sentence_transformers.models import BoW
def make(**options):
    modules = [BoW(vocab=["a", "b"]), torch.nn.Linear(2, 2)]
    return sentence_transformers.SentenceTransformer(modules=modules, **options).device
""", "sentence-transformers takes the CPU"),
    "whisper": ("""
import dataclasses, os, tempfile, whisper
dimensions = whisper.model.ModelDimensions(80, 20, 16, 2, 1, 64, 8, 16, 2, 1)
folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "model.pt")
torch.save({"dims": dataclasses.asdict(dimensions),
            "model_state_dict": whisper.model.Whisper(dimensions).state_dict()}, path)
def make(**options): return whisper.load_model(path, **options).device
""", "whisper.load_model takes the CPU"),
    "torch_geometric": ("""
import torch_geometric
def make(device="auto"): return torch_geometric.device(device)
""", 'torch_geometric.device("auto") is the CPU'),
}


def _warnings(program):
    return [line for line in program.stderr.splitlines() if ": djinn: " in line]


class ChoicesTest(unittest.TestCase):
    def assert_prints(self, source, *lines, warns=(), **environment):
        """The program prints the lines and warns of djinn in these words, in order."""
        program = run_program(source, timeout=300, **environment)
        self.assertEqual(program.stdout.split("\n")[:-1], list(lines), program.stderr)
        said = _warnings(program)
        self.assertEqual(len(said), len(warns), program.stderr)
        for line, words in zip(said, warns, strict=True):
            self.assertIn(words, line)

    def test_accelerate_takes_the_device_of_an_open_session(self):
        self.assert_prints(
            _LOCAL + "from accelerate import Accelerator; print(Accelerator().device)",
            "remote_accelerator:0")

    def test_accelerate_takes_the_cpu_if_the_program_says_so(self):
        self.assert_prints(
            _LOCAL + "from accelerate import Accelerator; print(Accelerator(cpu=True).device)",
            "cpu")
        self.assert_prints(
            _LOCAL + "from accelerate import Accelerator; print(Accelerator().device)",
            "cpu", ACCELERATE_TORCH_DEVICE="cpu")

    def test_accelerate_takes_the_device_of_a_configured_session(self):
        self.assert_prints(
            "import torch, djinn\nfrom accelerate import Accelerator; print(Accelerator().device)",
            "remote_accelerator:0", DJINN_COORDINATOR="127.0.0.1:1")

    def test_accelerate_takes_the_cpu_without_a_session_or_after_it(self):
        self.assert_prints(
            "import torch, djinn\nfrom accelerate import Accelerator; print(Accelerator().device)",
            "cpu")
        self.assert_prints(
            _LOCAL + "cluster.close()\n"
            "from accelerate import Accelerator; print(Accelerator().device)", "cpu")

    def test_a_session_that_opens_after_the_choice_warns(self):
        self.assert_prints(
            "import torch, djinn\nfrom accelerate import Accelerator; Accelerator()\n"
            "djinn.local(worker_threads=1)", warns=["open it first"])

    def test_accelerate_and_trainer_compile_with_the_backend(self):
        self.assert_prints(
            _LOCAL + """
import tempfile, transformers
from accelerate import Accelerator
accelerator = Accelerator(dynamo_backend="djinn")
print(accelerator.state.dynamo_plugin.to_kwargs()["backend"], end=" ")
model = accelerator.prepare(torch.nn.Linear(4, 2))
for _ in range(3): result = model(torch.ones(2, 4, device=accelerator.device))
print(type(model).__name__, result.device)
config = transformers.BertConfig(
    vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(
        folder, max_steps=2, save_strategy="no", report_to=[], torch_compile=True,
        torch_compile_backend="djinn", disable_tqdm=True, logging_strategy="no")
    examples = [{"input_ids": torch.arange(8), "labels": torch.tensor(i % 2)} for i in range(8)]
    trainer = transformers.Trainer(
        transformers.BertForSequenceClassification(config), arguments, train_dataset=examples)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
print(trainer.model.device)
""",
            "djinn OptimizedModule remote_accelerator:0", "remote_accelerator:0")

    def test_training_resumed_from_a_checkpoint_draws_the_same_numbers(self):
        self.assert_prints(
            _LOCAL + """
import tempfile, transformers
from accelerate import Accelerator
config = transformers.BertConfig(
    vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    hidden_dropout_prob=0.5)
examples = [{"input_ids": torch.arange(8), "labels": torch.tensor(i % 2)} for i in range(32)]
def train(folder, checkpoint):
    transformers.set_seed(0)
    arguments = transformers.TrainingArguments(
        folder, max_steps=4, save_steps=2, report_to=[], logging_strategy="no", disable_tqdm=True)
    trainer = transformers.Trainer(
        transformers.BertForSequenceClassification(config), arguments, train_dataset=examples)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=checkpoint)
    return [parameter.detach().cpu() for parameter in trainer.model.parameters()]
with tempfile.TemporaryDirectory() as folder:
    print(all(map(torch.equal, train(folder, None), train(folder, f"{folder}/checkpoint-2"))), end=" ")
    accelerator = Accelerator()
    accelerator.save_state(f"{folder}/state")
    drawn = torch.rand(4, device=accelerator.device).cpu()
    accelerator.load_state(f"{folder}/state")
    print(torch.equal(torch.rand(4, device=accelerator.device).cpu(), drawn))
""", "True True")

    def test_trainer_on_the_cpu_stays_there(self):
        self.assert_prints(
            _LOCAL + "from transformers import TrainingArguments\n"
            "arguments = TrainingArguments('unused', use_cpu=True, report_to=[])\n"
            "print(arguments.device, arguments.distributed_state.device)", "cpu cpu")

    def test_pipelines_that_take_the_cpu_warn_once(self):
        self.assert_prints(
            _LOCAL + _PIPELINE + """
for device in (0, None): print(Pipeline(model, device=device).device)
for device in ("cpu", -1): print(Pipeline(model, device=device).device)
print(Pipeline(model, device=djinn.device()).device)
print(Pipeline(model).device)
""",
            "cpu", "cpu", "cpu", "cpu", "remote_accelerator:0", "remote_accelerator:0",
            warns=['pass device="remote_accelerator:0"'])

    def test_device_maps_that_take_the_cpu_warn(self):
        self.assert_prints(
            _LOCAL + _PIPELINE + """
import tempfile
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    for device_map in ("auto", "cpu", "remote_accelerator:0"):
        print(transformers.GPT2Model.from_pretrained(folder, device_map=device_map).device)
""",
            "cpu", "cpu", "remote_accelerator:0",
            warns=['pass device_map="remote_accelerator:0"'])

    def test_libraries_that_take_the_cpu_warn_once(self):
        for name, (source, warning) in _SILENT.items():
            with self.subTest(name):
                self.assert_prints(
                    _LOCAL + source + "print(make().type)\nmake()\n"
                    "print(make(device='cpu').type, make(device=djinn.device()).type)",
                    "cpu", "cpu remote_accelerator", warns=[warning])

    def test_nothing_warns_without_a_session(self):
        self.assert_prints(
            "import torch, djinn\n" + _PIPELINE + "print(Pipeline(model, device=0).device)", "cpu")
        for name, (source, _) in _SILENT.items():
            with self.subTest(name):
                self.assert_prints("import torch, djinn\n" + source + "print(make().type)", "cpu")

    def test_lightning_has_an_accelerator_and_a_strategy(self):
        for package in ("lightning.pytorch", "pytorch_lightning"):
            with self.subTest(package):
                source = _LIGHTNING.replace("sys.argv[1]", repr(package))
                self.assert_prints(_LOCAL + source + """
fit(accelerator="remote_accelerator", strategy="remote_accelerator")
fit(accelerator="remote_accelerator", strategy="remote_accelerator", precision="bf16-mixed")
fit(accelerator="remote_accelerator", strategy="remote_accelerator", precision="16-mixed")
fit(accelerator="cpu")
fit(accelerator="cpu", precision="bf16-mixed")
fit()
try: fit(accelerator="remote_accelerator")
except ValueError as error: print("and strategy" if 'pass strategy="' in str(error) else error)
""",
                    "remote_accelerator:0 torch.float32", "remote_accelerator:0 torch.bfloat16",
                    "remote_accelerator:0 torch.float16", "cpu torch.float32",
                    "cpu torch.bfloat16", "cpu torch.float32", "and strategy",
                    warns=['pass accelerator="remote_accelerator" and strategy='])

    def test_fabric_has_an_accelerator_and_a_strategy(self):
        self.assert_prints(
            _LOCAL + """
from lightning.fabric import Fabric
fabric = Fabric(accelerator="remote_accelerator", strategy="remote_accelerator")
model = torch.nn.Linear(4, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
fabric.backward(model(torch.ones(2, 4, device=fabric.device)).sum())
optimizer.step()
print(model.weight.device)
fabric = Fabric(
    accelerator="remote_accelerator", strategy="remote_accelerator", precision="bf16-mixed")
with fabric.autocast():
    print(torch.nn.functional.linear(*[torch.ones(2, 2, device=fabric.device)] * 2).dtype)
print(Fabric().device)
""",
            "remote_accelerator:0", "torch.bfloat16", "cpu",
            warns=['pass accelerator="remote_accelerator" and strategy='])
