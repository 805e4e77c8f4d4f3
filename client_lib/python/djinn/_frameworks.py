"""Makes libraries that choose a device themselves choose this one, if they allow it.

A program that opens a session, or sets DJINN_COORDINATOR, wants to compute remotely. accelerate,
and with it transformers' Trainer, reads the device from an environment variable. Lightning gets
an accelerator and a strategy by name. If a library takes the CPU because it knows no other device,
one warning says what to set. docs/user/libraries.md has the lines for a program.
"""

import contextlib
import copy
import functools
import importlib.abc
import os
import sys
import warnings

import torch

from djinn import _checkpoints, _nested, _random_states, _switches
from djinn._device_module import is_available

_NAME = torch._C._get_privateuse1_backend_name()
_DEVICE = f"{_NAME}:0"
# accelerate and transformers read the device from here.
_VARIABLE = "ACCELERATE_TORCH_DEVICE"
# True if the variable is this module's, and not the user's.
_is_ours = False
_said = set()


def follow_session():
    """Sets or removes the environment variable. Called when a session opens or closes."""
    global _is_ours
    if is_available():
        _switches.check()
        if _VARIABLE not in os.environ:
            os.environ[_VARIABLE] = _DEVICE
            _is_ours = True
        _check_early_state()
    elif _is_ours:
        os.environ.pop(_VARIABLE, None)
        _is_ours = False


def _check_early_state():
    """Warns if accelerate, which chooses a device once for the process, has done so already."""
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    chosen = getattr(state, "_shared_state", {}).get("device")
    if _is_ours and chosen is not None and chosen.type == "cpu":
        _warn("accelerate chose the CPU before the session was opened", "open it first")


def _warn(what, remedy):
    if (what, remedy) in _said:
        return
    _said.add((what, remedy))
    warnings.warn(f"djinn: {what}: it computes in this process. To use {_NAME}, {remedy}.",
                  stacklevel=4)


def _teach_state(module):
    """Lets a program that asks accelerate for the CPU have it in spite of the variable."""
    original = module.PartialState.__init__

    @functools.wraps(original)
    def __init__(self, cpu=False, **kwargs):
        hidden = os.environ.pop(_VARIABLE, None) if cpu and _is_ours else None
        try:
            original(self, cpu, **kwargs)
        finally:
            if hidden is not None:
                os.environ[_VARIABLE] = hidden

    module.PartialState.__init__ = __init__


def _add_backend(module):
    """accelerate, and with it the Trainer, has a list of the backends of torch.compile."""
    kind = module.DynamoBackend
    if "DJINN" not in kind.__members__:
        member = str.__new__(kind, "DJINN")
        member._name_ = member._value_ = "DJINN"
        kind._member_map_["DJINN"] = kind._value2member_map_["DJINN"] = member
        kind._member_names_.append("DJINN")


def _teach_training_arguments(module):
    """Lets bf16=True, for which transformers wants a GPU that it knows, also work here."""
    original = module.is_torch_bf16_gpu_available
    module.is_torch_bf16_gpu_available = functools.wraps(original)(
        lambda: os.environ.get(_VARIABLE, "").startswith(_NAME) or original())


def _watch_pipelines(module):
    """Keeps a pipeline on its model's device, and warns if it takes the CPU."""
    original = module.Pipeline.__init__

    @functools.wraps(original)
    def __init__(self, model, *args, **kwargs):
        device = kwargs.get("device")
        if device is None and getattr(getattr(model, "device", None), "type", "") == _NAME:
            kwargs["device"] = device = model.device
        original(self, model, *args, **kwargs)
        asks = device is None or (isinstance(device, int) and device >= 0)
        if asks and self.device.type == "cpu" and is_available():
            _warn("transformers' pipeline takes the CPU", f'pass device="{_DEVICE}"')

    module.Pipeline.__init__ = __init__


def _watch_device_maps(module):
    """Warns if an automatic device map takes the CPU."""
    original = module._get_device_map

    @functools.wraps(original)
    def _get_device_map(model, device_map, *args, **kwargs):
        result = original(model, device_map, *args, **kwargs)
        if isinstance(device_map, str) and is_available():
            if all(str(device) in ("cpu", "disk") for device in result.values()):
                _warn(f'device_map="{device_map}" takes the CPU', f'pass device_map="{_DEVICE}"')
        return result

    module._get_device_map = _get_device_map


def _teach_generation(module):
    """Lets generate() compile its steps here if it is given a CompileConfig, as on a GPU.

    A CompileConfig names Inductor by default, which makes no code for this device.
    """
    kind = module.GenerationMixin
    original = kind._valid_auto_compile_criteria

    @functools.wraps(original)
    def _valid_auto_compile_criteria(self, model_kwargs, generation_config):
        if self.device.type == _NAME and generation_config.compile_config is not None:
            # The generation's configuration is a copy of the program's, but not this part of it.
            chosen = generation_config.compile_config = copy.copy(generation_config.compile_config)
            chosen._compile_all_devices = True
            if chosen.backend == "inductor":
                chosen.backend = "djinn"
        return original(self, model_kwargs, generation_config)

    kind._valid_auto_compile_criteria = _valid_auto_compile_criteria


def _watch_sentence_transformers(module):
    original = module.get_device_name

    @functools.wraps(original)
    def get_device_name():
        return _watched(original(), "sentence-transformers takes the CPU")

    module.get_device_name = get_device_name


def _watch_whisper(module):
    original = module.load_model

    @functools.wraps(original)
    def load_model(name, device=None, *args, **kwargs):
        model = original(name, device, *args, **kwargs)
        if device is None:
            _watched(model.device.type, "whisper.load_model takes the CPU")
        return model

    module.load_model = load_model


def _watch_torch_geometric(module):
    original = module.device

    @functools.wraps(original)
    def device(device):
        chosen = original(device)
        if device == "auto":
            _watched(chosen.type, 'torch_geometric.device("auto") is the CPU')
        return chosen

    _replace(module, "device", device)


def _watch_stable_baselines(module):
    original = module.get_device

    @functools.wraps(original)
    def get_device(device="auto"):
        chosen = original(device)
        if device == "auto":
            _watched(chosen.type, "stable-baselines3 takes the CPU")
        return chosen

    _replace(module, "get_device", get_device)


def _watch_flair(module):
    """Warns if flair, which chooses a device when it is imported, takes the CPU."""
    _watched(module.device.type, "flair takes the CPU", f'set flair.device = torch.device("{_DEVICE}")')


def _teach_suppression(module):
    """Suppresses many boxes class by class, as on the CPU. Elsewhere torchvision does so for more of them."""
    original = module.batched_nms
    most_elements = 4000

    @functools.wraps(original)
    def batched_nms(boxes, scores, idxs, iou_threshold):
        is_large = boxes.device.type == _NAME and boxes.numel() > most_elements
        if is_large and not module.torchvision._is_tracing():
            return module._batched_nms_vanilla(boxes, scores, idxs, iou_threshold)
        return original(boxes, scores, idxs, iou_threshold)

    # TorchScript compiles the original.
    batched_nms.__original_fn = original
    batched_nms.__script_if_tracing_wrapper = True
    _replace(module, "batched_nms", batched_nms)


def _watched(chosen, what, remedy=f'pass device="{_DEVICE}"'):
    """Returns the device's name, and warns if a library has chosen the CPU."""
    if chosen == "cpu" and is_available():
        _warn(what, remedy)
    return chosen


def _replace(module, name, function):
    """Replaces a module's function there and in modules of its library, which may have imported it."""
    original = getattr(module, name)
    library = module.__name__.partition(".")[0]
    for path, owner in list(sys.modules.items()):
        if path.partition(".")[0] == library and getattr(owner, "__dict__", {}).get(name) is original:
            setattr(owner, name, function)


def _register_accelerator(module):
    """Adds the accelerator to Lightning's registry; `module` is one of its two packages."""

    class RemoteAccelerator(module.Accelerator):
        """Computes on the session's device, which has no distributed strategy."""

        def setup_device(self, device):
            if device.type != _NAME:
                raise ValueError(
                    f'accelerator="{_NAME}" computes on {_DEVICE}, but the strategy on {device}:'
                    f' pass strategy="{_NAME}" as well')

        def teardown(self):
            pass

        def get_device_stats(self, device):
            return torch.accelerator.memory_stats(torch.device(device).index)

        @staticmethod
        def parse_devices(devices):
            return 1 if devices == "auto" else int(devices)

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device(_NAME, index) for index in range(devices)]

        @staticmethod
        def auto_device_count():
            return 1

        @staticmethod
        def is_available():
            return True

        @staticmethod
        def name():
            return _NAME

    _registry(module, "Accelerator").register(
        _NAME, RemoteAccelerator, description="Djinn's remote device")


def _register_strategy(module):
    _registry(module, "Strategy").register(
        _NAME, module.SingleDeviceStrategy, description="Djinn's remote device", device=_DEVICE)


def _registry(module, kind):
    """Returns a registry. Lightning's Trainer and its Fabric spell its name differently."""
    constant = f"{kind.upper()}_REGISTRY"
    return getattr(module, constant if hasattr(module, constant) else f"{kind}Registry")


def _teach_connector(module):
    connector = getattr(module, "_AcceleratorConnector", None) or module._Connector
    _watch_automatic_accelerator(connector)
    _teach_precision(module, connector)


def _teach_precision(module, connector):
    """Mixed precision is autocast of this device, where Lightning takes that of CUDA."""
    original = connector._check_and_init_precision

    @functools.wraps(original)
    def _check_and_init_precision(self):
        # The Trainer and Fabric spell the names differently.
        attributes = vars(self)
        given = attributes.get("_precision_plugin_flag") or attributes.get("_precision_instance")
        chosen = attributes.get("_precision_flag") or attributes.get("_precision_input")
        is_mixed = chosen in ("16-mixed", "bf16-mixed") and given is None
        if is_mixed and self.strategy.root_device.type == _NAME:
            return module.MixedPrecision(chosen, _NAME)
        return original(self)

    connector._check_and_init_precision = _check_and_init_precision


def _teach_isolation(module):
    """Lets isolate_rng(), in which the Trainer validates before a training, restore all generators."""
    original = module.isolate_rng

    @contextlib.contextmanager
    @functools.wraps(original)
    def isolate_rng(*args, **kwargs):
        with _random_states.forked(), original(*args, **kwargs):
            yield

    _replace(module, "isolate_rng", isolate_rng)


def _watch_automatic_accelerator(connector):
    original = connector._choose_auto_accelerator

    @functools.wraps(original)
    def _choose_auto_accelerator(*args):
        chosen = original(*args)
        if chosen == "cpu" and is_available():
            _warn('Lightning\'s accelerator="auto" takes the CPU',
                  f'pass accelerator="{_NAME}" and strategy="{_NAME}"')
        return chosen

    connector._choose_auto_accelerator = staticmethod(_choose_auto_accelerator)


_TEACHERS = {
    "accelerate.state": _teach_state,
    "accelerate.utils.dataclasses": _add_backend,
    "accelerate.checkpointing": _checkpoints.teach_accelerate,
    "transformers.trainer": _checkpoints.teach_trainer,
    "transformers.training_args": _teach_training_arguments,
    "transformers.generation.utils": _teach_generation,
    "transformers.pipelines.base": _watch_pipelines,
    "transformers.integrations.accelerate": _watch_device_maps,
    "sentence_transformers.base.model": _watch_sentence_transformers,
    "whisper": _watch_whisper,
    "torch_geometric.device": _watch_torch_geometric,
    "stable_baselines3.common.utils": _watch_stable_baselines,
    "flair": _watch_flair,
    "torchvision.ops.boxes": _teach_suppression,
    "torch.utils.checkpoint": _random_states.teach_checkpoint,
    "torch._decomp.decompositions": _switches.teach_interpolation,
    "torch.nested._internal.ops": _nested.teach,
}
for _trainer, _fabric in (("lightning.pytorch", "lightning.fabric"),
                          ("pytorch_lightning", "lightning_fabric")):
    _TEACHERS |= {
        f"{_trainer}.accelerators": _register_accelerator,
        f"{_fabric}.accelerators": _register_accelerator,
        f"{_trainer}.strategies": _register_strategy,
        f"{_fabric}.strategies": _register_strategy,
        f"{_trainer}.trainer.connectors.accelerator_connector": _teach_connector,
        f"{_fabric}.connector": _teach_connector,
        f"{_trainer}.utilities.seed": _teach_isolation,
    }


def _teach(module):
    """Changes a library's module. Warns if its version lacks the things to change."""
    try:
        _TEACHERS[module.__name__](module)
    except (AttributeError, TypeError, ValueError) as error:
        _warn(f"{module.__name__} is of a version that djinn does not know ({error})",
              "see docs/user/libraries.md")


class _Finder(importlib.abc.MetaPathFinder):
    """Teaches the modules as soon as they are imported."""

    def find_spec(self, fullname, path, target=None):
        if fullname not in _TEACHERS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is None:
                continue
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _teach(module)

            spec.loader.exec_module = exec_module
            return spec
        return None


def begin(more_teachers):
    """Prepares for libraries that are imported later, and changes those that already are.

    `more_teachers` are further functions that change a module, by its name.
    """
    _TEACHERS.update(more_teachers)
    sys.meta_path.insert(0, _Finder())
    for name in _TEACHERS.keys() & sys.modules.keys():
        _teach(sys.modules[name])
    follow_session()
