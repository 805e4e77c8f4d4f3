"""Registered callables: capture a function once, then carry its calls out as a whole."""

import functools

import torch
from torch.utils import _pytree

from djinn import _djinn
from djinn._environment import Environment, is_value


class CompiledCallable:
    """What djinn.compile() returns; called as the function is."""

    def __init__(self, function):
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._callable = _djinn.RegisteredCallable()
        self._environment = None
        # Counts the environments that were not like the one before.
        self._environments = 0
        # A short key for every combination of values that was met.
        self._keys = {}
        # How to give the outputs of a recording their form.
        self._forms = {}
        self._refusal = ""

    def __call__(self, *args, **kwargs):
        call = self._prepare(args, kwargs)
        if call is None:
            return self._function(*args, **kwargs)
        found = self._callable.replay(*call)
        if found is not None:
            return self._forms[found[0]](found[1])
        if not self._callable.begin(*call):
            return self._function(*args, **kwargs)
        try:
            result = self._function(*args, **kwargs)
            outputs, form = _take_apart(result)
        except BaseException:
            self._callable.abandon()
            raise
        if form is None:
            self._callable.abandon()
            self._refusal = "it returns something other than tensors and plain values"
            return result
        recording = self._callable.end(outputs)
        if recording:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
                self._callable = _djinn.RegisteredCallable()
            else:
                self._forms[recording] = form
        # What the call left behind, as an optimizer's state, is around the next one.
        self._look_around()
        return result

    def statistics(self):
        """Calls carried out again, calls captured, and why the last was refused."""
        replays, captures, refusal = self._callable.statistics()
        return {
            "replays": replays,
            "captures": captures,
            "refusal": self._refusal or refusal,
        }

    def _prepare(self, args, kwargs):
        """Key, tensors given, tensors used besides; None if it cannot be registered."""
        environment = self._environment
        if environment is None or environment.changed():
            environment = self._look_around()
        values = environment.values()
        if values is None:
            environment = self._look_around()
            values = environment.values()
        if not kwargs and all(type(arg) is torch.Tensor for arg in args):
            tensors, form = list(args), len(args)
        else:
            tensors, form = self._flatten(args, kwargs)
            if tensors is None:
                return None
        modes = _modes()
        if modes is None:
            self._refusal = "a TorchDispatchMode sees every call"
            return None
        combination = (form, self._environments, values, modes)
        key = self._keys.get(combination)
        if key is None:
            if len(self._keys) >= _MAX_KEYS:
                self._keys.clear()
            key = self._keys[combination] = str(next(_numbers))
        return key, tensors, environment.tensors

    def _look_around(self):
        environment = Environment(self._function)
        if self._environment is None or not environment.is_like(self._environment):
            self._environments += 1
        self._environment = environment
        return environment

    def _flatten(self, args, kwargs):
        leaves, spec = _pytree.tree_flatten((args, kwargs))
        tensors, values = [], []
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                tensors.append(leaf)
                values.append(torch.Tensor)
            elif is_value(leaf):
                # 0.0 and -0.0 are equal, but not the same.
                values.append((type(leaf), leaf, str(leaf) if leaf == 0 else ""))
            else:
                self._refusal = f"an argument is a {type(leaf).__name__}"
                return None, None
        return tensors, (spec, tuple(values))


# Numbers are never used again: recordings outlive the dictionaries of keys.
_numbers = iter(range(1, 1 << 62))
_MAX_KEYS = 1024
_MAX_FORMS = 1024


def _modes():
    """The modes of torch functions around the call; None if operators have some, too."""
    if torch._C._len_torch_dispatch_stack():
        return None
    count = torch._C._len_torch_function_stack()
    if not count:
        return ()
    modes = [torch._C._get_function_stack_at(i) for i in range(count)]
    return tuple((type(mode), getattr(mode, "device", None)) for mode in modes)


def _take_apart(result):
    """The tensors of a result, and what gives others of their kind its form."""
    if type(result) is torch.Tensor:
        return [result], _first
    leaves, spec = _pytree.tree_flatten(result)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if not all(isinstance(leaf, torch.Tensor) or is_value(leaf) for leaf in leaves):
        return [], None
    tensors = [leaves[i] for i in places]
    # No tensor of this call may live on in the next ones.
    constants = [None if isinstance(x, torch.Tensor) else x for x in leaves]

    def form(outputs):
        filled = list(constants)
        for place, output in zip(places, outputs):
            filled[place] = output
        return _pytree.tree_unflatten(filled, spec)

    return tensors, form


def _first(outputs):
    return outputs[0]


def compile(function):
    """Registers a function or module whose calls repeat; returns what to call instead.

    Its calls are captured; once two in succession were captured alike, further ones
    are carried out on the worker as a whole, without its Python code running.

        @djinn.compile
        def step(inputs, labels):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            return loss.detach()

    The function must do nothing but call operators on one device, depending on its
    arguments and on what it refers to: modules, optimizers, tensors and plain values in
    its closure, its defaults and the globals that it names are looked through, and a
    change of them, such as another learning rate or eval(), is another call. What Djinn
    sees that it cannot repeat (a value that is read, a shape that depends on data, a
    tensor of this process that is used) leaves the function to be called as ever;
    statistics()["refusal"] says why. What it cannot see, such as a print, does not
    happen again.
    """
    if not callable(function):
        raise TypeError(f"djinn.compile() takes something callable, not {function!r}")
    return CompiledCallable(function)
