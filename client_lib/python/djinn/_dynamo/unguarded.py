"""What the graphs of a traced call depend on, and Dynamo does not guard.

These are the members of classes, the defaults of functions, the environment's variables, PyTorch's
own functions, and the hooks of all modules.
"""

import collections
import functools
import gc
import os
import types
import weakref

import torch

from djinn._djinn import places
from djinn._stable import contents_of, is_changeable

# The functions that PyTorch's modules call, and the hooks of all modules.
_DICTIONARIES = (
    vars(torch),
    vars(torch.nn.functional),
    torch.nn.modules.module._global_backward_hooks,
    torch.nn.modules.module._global_backward_pre_hooks,
    torch.nn.modules.module._global_forward_hooks,
    torch.nn.modules.module._global_forward_pre_hooks,
)
_version_of = torch._C._dynamo.guards.dict_version
# Code that reads the environment names one of these.
_READ_ENVIRONMENT = frozenset("environ environb getenv getenvb expandvars".split())
_COLLECTIONS = (list, tuple, set, frozenset, collections.deque)
# Types whose values refer to no object whose class is watched.
_PLAIN = (
    str, bytes, int, float, complex, type(None), type(...), range, slice, torch.Tensor, torch.dtype,
    torch.device, torch.Size, types.CodeType, types.BuiltinFunctionType, types.FunctionType,
    types.ModuleType,
)


class Unguarded:
    """The state of all that when the object was made.

    `function` is the traced function or module, `arguments` are those of a call, `codes` are all
    code objects that were traced, and `before` is what was known of earlier calls, or None.
    """

    def __init__(self, function, arguments, codes, before=None):
        functions = _functions_of(codes)
        search = _Search(codes)
        search.visit(getattr(function, "__self__", function))
        search.visit(arguments)
        if before is not None:
            for kind, _, _ in before._members:
                search.visit(kind)
        for one in functions:
            search.visit_function(one)
        self._members = [
            (kind, tuple(vars(kind)), tuple(vars(kind).values())) for kind in search.finish()
        ]
        self._versions = list(map(_version_of, _DICTIONARIES))
        self._defaults = [(weakref.ref(one), one.__defaults__) for one in functions if one.__defaults__]
        self._contents = [
            (one, list(one)) for _, things in self._defaults for one in _lists_in(things)
        ]
        reads = search.found_environment or any(
            not _READ_ENVIRONMENT.isdisjoint(code.co_names) for code in codes
        )
        self._variables = dict(os.environ) if reads else None
        self._version_of_variables = _version_of(os.environ._data)

    def is_as_it_was(self):
        return (
            list(map(_version_of, _DICTIONARIES)) == self._versions
            and places.hold_members(self._members)
            and self._defaults_are_as_they_were()
            and (self._variables is None or self._variables_are_as_they_were())
        )

    def _defaults_are_as_they_were(self):
        for reference, defaults in self._defaults:
            function = reference()
            if function is not None and function.__defaults__ is not defaults:
                return False
        for one, contents in self._contents:
            if len(one) != len(contents) or any(a is not b for a, b in zip(one, contents)):
                return False
        return True

    def _variables_are_as_they_were(self):
        version = _version_of(os.environ._data)
        if version == self._version_of_variables:
            return True
        self._version_of_variables = version
        return dict(os.environ) == self._variables


def _lists_in(things):
    """Returns the lists among these things, and the lists and tuples in them at any depth."""
    found, pending = {}, list(things)
    while pending:
        thing = pending.pop()
        if type(thing) in (list, tuple) and id(thing) not in found:
            found[id(thing)] = thing
            pending += thing
    return [one for one in found.values() if type(one) is list]


def _functions_of(codes):
    """Returns the functions that have one of these code objects."""
    if not codes:
        return []
    # gc.get_referrers() compares each reference of each object with each code object.
    wanted = set(map(id, codes))
    kind = types.FunctionType
    return [one for one in gc.get_objects() if type(one) is kind and id(one.__code__) in wanted]


class _Search:
    """Finds the classes whose members traced code may use.

    They are those of modules and their submodules, of what the code names in globals, closures and
    defaults, and of what is in attributes that any of the code names.
    """

    def __init__(self, codes):
        self._kinds = {torch.Tensor: None}
        self._names = set()
        for code in codes:
            self._names.update(code.co_names)
            self._names.update(one for one in code.co_consts if type(one) is str)
        self._slots = {}
        self._pending = []
        # Objects may be equal or not hashable.
        self._seen = {}
        # Code that names the environment otherwise.
        self.found_environment = any(code is os.environ.encodekey.__code__ for code in codes)

    def visit(self, thing):
        self._pending.append(thing)

    def visit_function(self, function):
        """Visits what a function that was traced refers to."""
        self._pending += contents_of(function)
        self._pending += function.__defaults__ or ()
        self._pending += (function.__kwdefaults__ or {}).values()
        names = function.__code__.co_names
        modules = [function.__globals__]
        for variables in modules:
            for name in names:
                thing = variables.get(name)
                if isinstance(thing, types.ModuleType):
                    if not any(vars(thing) is one for one in modules):
                        modules.append(vars(thing))
                else:
                    self._pending.append(thing)

    def finish(self):
        """Returns the classes."""
        while self._pending:
            thing = self._pending.pop()
            if isinstance(thing, _PLAIN) or id(thing) in self._seen:
                continue
            self._seen[id(thing)] = thing
            self.found_environment |= thing is os.environ
            if isinstance(thing, type):
                self._add_class(thing)
            else:
                self._add_class(type(thing))
                self._visit_contents(thing)
        return self._kinds

    def _add_class(self, kind):
        for base in kind.__mro__:
            if base in self._kinds or not is_changeable(base):
                continue
            self._kinds[base] = None
            self._visit_named(vars(base))

    def _visit_named(self, attributes):
        names = self._names
        self._pending += [thing for name, thing in list(attributes.items()) if name in names]

    def _visit_contents(self, thing):
        if isinstance(thing, torch.nn.Module):
            self._pending += thing._modules.values()
        elif isinstance(thing, types.MethodType):
            self._pending.append(thing.__self__)
        elif isinstance(thing, functools.partial):
            self._pending += (thing.func, thing.args, thing.keywords)
        elif isinstance(thing, dict):
            self._pending += dict.values(thing)
        elif isinstance(thing, _COLLECTIONS):
            self._pending += thing
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict):
            self._visit_named(attributes)
        for name in self._slots_of(type(thing)):
            if hasattr(thing, name):
                self._pending.append(getattr(thing, name))

    def _slots_of(self, kind):
        if kind not in self._slots:
            self._slots[kind] = [
                name
                for base in kind.__mro__
                if is_changeable(base)
                for name, member in vars(base).items()
                if isinstance(member, types.MemberDescriptorType) and name in self._names
            ]
        return self._slots[kind]
