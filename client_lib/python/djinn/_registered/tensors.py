"""Watches the tensors that a function refers to, and changes of a program to their classes."""

import torch

from djinn._registered.contents import watch_class_item, watch_dictionary_of, watch_items
from djinn._stable import is_of_library, is_of_library_throughout

# The contents of the classes of tensors, and PyTorch's own members in them when djinn was
# imported.
_OF_TENSORS = [
    (contents, {name: one for name, one in contents.items() if is_of_library_throughout(one)})
    for contents in (torch.Tensor.__dict__, torch.nn.Parameter.__dict__)
]


class Tensors:
    """Adds tensors and members of their classes to `watch`, and their attributes to `pending`."""

    def __init__(self, watch, pending):
        self._watch = watch
        self._pending = pending
        self._put_there = [_names_that_differ(*pair) for pair in _OF_TENSORS]
        self._seen_members = set()
        for contents, _ in _OF_TENSORS:
            watch.add_length(contents)

    def look_at(self, tensor):
        self._watch.add_tensor(tensor)
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            self._pending.kinds.append(type(tensor))
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if name == "_post_accumulate_grad_hooks" and not tensor.is_leaf:
                continue
            hooks = self._watch.add_hooks(tensor, name)
            if hooks is not None:
                self._pending.things += watch_items(self._watch, hooks)
        self._pending.things += watch_dictionary_of(self._watch, tensor)

    def look_at_classes(self, attributes, searches):
        """Watches the members of tensors' classes that code may use and a program may change.

        The code names `attributes`. If `searches`, it may use others, too.
        """
        for (contents, own), names in zip(_OF_TENSORS, self._put_there):
            if not searches:
                # Libraries also use a replacement of one of PyTorch's members.
                names = {n for n in names if n in own or hasattr(torch._C.TensorBase, n)}
            for name in sorted(names | attributes & contents.keys()):
                if (id(contents), name) in self._seen_members:
                    continue
                self._seen_members.add((id(contents), name))
                for member in watch_class_item(self._watch, contents, name):
                    if member is not own.get(name) and not is_of_library(member):
                        self._pending.things.append(member)


def _names_that_differ(contents, former):
    names = {name for name, thing in contents.items() if thing is not former.get(name, former)}
    return names | former.keys() - contents.keys()
