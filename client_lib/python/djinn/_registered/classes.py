"""Watches the classes of the objects that a function refers to.

Constructors are looked through only if code may call them.
"""

import torch

from djinn._registered.contents import watch_class_item
from djinn._stable import is_stable_class

# Attributes that describe how a class was created. They are not watched.
OF_CREATION = frozenset(
    "__abstractmethods__ __annotations__ __dataclass_fields__ __dataclass_params__ __dict__ "
    "__doc__ __match_args__ __module__ __orig_bases__ __parameters__ __slots__ __weakref__ "
    "_abc_impl".split()
)
_CONSTRUCTORS = frozenset(("__init__", "__new__", "__init_subclass__"))


class Classes:
    """Adds classes to `watch`, and their members to `pending`.

    `libraries` watches the classes of libraries.
    """

    def __init__(self, watch, pending, libraries):
        self._watch = watch
        self._pending = pending
        self._libraries = libraries
        # The watched classes, by id. Of the classes of tensors, only the names
        # that code uses are watched (tensors.py).
        self._seen = {id(kind): kind for kind in (torch.Tensor, torch.nn.Parameter)}
        # Ids of the classes whose constructors were looked through.
        self._called = set()
        # The classes that their own methods receive as an argument, and may call. Methods may
        # also call classes that derive from them.
        self._given = set()

    def look_at(self, kind):
        """Watches a class, and looks through its members, but not through its constructors."""
        if id(kind) in self._seen:
            return
        self._seen[id(kind)] = kind
        if is_stable_class(kind):
            self._libraries.look_at_class(kind)
            return
        self._watch.add_attribute(kind, "__bases__", kind.__bases__)
        self._watch.add_attribute(kind, "__class__", type(kind))
        for one in (type(kind), *kind.__bases__):
            self.look_at(one)
        contents = kind.__dict__
        if issubclass(kind, type) or any(map(_is_given_its_class, contents.items())):
            self._given.add(kind)
        self._watch.add_length(contents)
        for name, member in list(contents.items()):
            if name in _CONSTRUCTORS:
                self._watch.add_class_item(contents, name, member)
            elif name not in OF_CREATION:
                self._pending.things += watch_class_item(self._watch, contents, name)

    def look_at_constructors(self, kind):
        for base in kind.__mro__:
            if not is_stable_class(base):
                contents = base.__dict__
                self._pending.things += [contents[n] for n in _CONSTRUCTORS & contents.keys()]

    def look_at_those_called(self, any_class):
        """Looks through the constructors of the watched classes that code may call.

        If `any_class`, code may call each of them. Returns whether there were any that it had not
        looked through before.
        """
        kinds = [
            kind
            for number, kind in self._seen.items()
            if number not in self._called and (any_class or self._may_be_called(kind))
        ]
        for kind in kinds:
            self.look_at_constructors(kind)
        self._called.update(map(id, kinds))
        return bool(kinds)

    def _may_be_called(self, kind):
        return not self._given.isdisjoint((*kind.__mro__, *type(kind).__mro__))


def _is_given_its_class(item):
    name, thing = item
    return isinstance(thing, classmethod) or name == "__class_getitem__"
