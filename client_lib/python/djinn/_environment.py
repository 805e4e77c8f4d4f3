"""What a function refers to besides its arguments, found by looking through it.

It is watched, as _watch.py says. What cannot be watched is refused.
"""

import abc
import builtins
import collections
import collections.abc
import copy
import dataclasses
import datetime
import functools
import importlib
import inspect
import logging
import os
import re
import struct
import sys
import threading
import types
import weakref

import torch

from djinn import _device_module
from djinn._debug import ModulePaths
from djinn._names import Enclosing, Import, Names, names_in
from djinn._operators import OPERATORS, WHAT_CHANGES_OPERATORS, find_operators, implementations_of
from djinn._outside import Unwatchable, check_what_is_asked
from djinn._receivers import (
    classes_of,
    is_method_of_receiver,
    keeps_object_of,
    leads_elsewhere,
)
from djinn._stable import (
    BOUND,
    OF_PYBIND11,
    contents_of,
    is_a_librarys,
    is_a_librarys_throughout,
    is_anybodys,
    is_changeable,
    is_stable_class,
    is_stable_function,
    is_stable_module,
    package_of,
    package_of_module,
)
from djinn._watch import VALUES, Watch, is_value

# What calls of operators cannot depend on, or only by being another one.
_OPAQUE = (
    ModulePaths,
    logging.Handler,
    re.Pattern,
    torch.Generator,
    torch.utils.hooks.RemovableHandle,
    type(threading.Lock()),
    type(threading.RLock()),
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
# Through which code may come to anything, by id.
_BOUNDLESS = {
    id(thing): name
    for name, thing in {
        "globals()": builtins.globals,
        "eval()": builtins.eval,
        "exec()": builtins.exec,
        "__import__()": builtins.__import__,
        "importlib.import_module()": importlib.import_module,
        "importlib.__import__()": importlib.__import__,
        "sys.modules": sys.modules,
        "sys._getframe()": sys._getframe,
        "inspect.currentframe()": inspect.currentframe,
        "inspect.stack()": inspect.stack,
    }.items()
}
# Attributes whose values are not watched, whatever they are of.
_UNWATCHED_ATTRIBUTES = frozenset(("__subclasses__", "_version", "data_ptr", "initial_seed"))
_OF_LOGGERS = frozenset(
    "disabled filters getEffectiveLevel handlers hasHandlers isEnabledFor level propagate".split()
)
# What sets the state of a generator, which may have it already: nothing is seen then.
_SEEDING = frozenset(("manual_seed", "seed", "set_state"))
# What has unwatched results where the code names these as well, by id.
_UNWATCHED_TOGETHER = {
    id(datetime.date): ("datetime.date", frozenset(("today",))),
    id(datetime.datetime): ("datetime.datetime", frozenset(("now", "today", "utcnow"))),
    id(logging.getLogger): ("logging.getLogger", _OF_LOGGERS),
}
# Through which objects are made of classes that nobody names, by id.
_CONSTRUCTING = frozenset(map(id, (type, copy.copy, copy.deepcopy, dataclasses.replace)))
# Whose answers are plain values, to be asked for at every look, by id.
_ASKED = frozenset(
    map(
        id,
        (
            torch.is_warn_always_enabled,
            torch.__future__.get_overwrite_module_params_on_conversion,
            torch.__future__.get_swap_module_params_on_conversion,
        ),
    )
)
# What functions of the standard library read, by id.
_READS = {
    id(os.getenv): os.environ,
    id(os.getenvb): os.environb,
    id(os.path.expandvars): os.environ,
}
_NAMED = frozenset((*_BOUNDLESS, *_UNWATCHED_TOGETHER, *_CONSTRUCTING, *_ASKED, *_READS))
# Of a class' attributes, those that say how it was made.
_OF_MAKING = frozenset(
    "__abstractmethods__ __annotations__ __dataclass_fields__ __dataclass_params__ __dict__ "
    "__doc__ __match_args__ __module__ __orig_bases__ __parameters__ __slots__ __weakref__ "
    "_abc_impl".split()
)
_CONSTRUCTORS = frozenset(("__init__", "__new__", "__init_subclass__"))
# Of the classes of tensors, what is in them, and what of PyTorch's was when djinn came.
_OF_TENSORS = [
    (contents, {name: one for name, one in contents.items() if is_a_librarys_throughout(one)})
    for contents in (torch.Tensor.__dict__, torch.nn.Parameter.__dict__)
]
_GLOBAL_HOOKS = [
    hooks
    for module in (torch.nn.modules.module, sys.modules[torch.optim.Optimizer.__module__])
    for name, hooks in vars(module).items()
    if name.startswith("_global_") and isinstance(hooks, dict)
]
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
_SEQUENCES = (list, tuple)
_SETS = (set, frozenset)
# Modules of torch.backends, and the classes that all modules are of.
_WITH_SWITCHES = torch.backends.PropModule
_OF_MODULES = _WITH_SWITCHES.__mro__
# Modules that are part of a library's by another package's name.
_UNDER_OTHER_NAMES = (os.path, _device_module)
# Collections in a library's modules that are looked into.
_OF_LIBRARIES = (list, collections.abc.Mapping)
_OF_ATTRIBUTES_ONLY = (object, types.SimpleNamespace)
_STATES = frozenset((*_MAPPINGS, *_SEQUENCES, *_SETS, *_OF_ATTRIBUTES_ONLY, *VALUES))
# Whose objects in C++ have nothing that calls would find changed.
_OF_CALLS = ("torch", "djinn")
_POINTER = struct.calcsize("P")
# Whose truth is that they are not empty.
_COLLECTIONS = frozenset((dict, collections.OrderedDict, list, set))
_MAX_THINGS = 100_000


class Environment(Watch):
    """What `function` refers to, as it is now."""

    # Callables that stand for the function in this attribute of theirs.
    transparent = {}

    def __init__(self, function):
        super().__init__()
        self._look_at_everything(function)

    def _look_at_everything(self, function):
        # id -> thing, which keeps the id its own.
        seen = {}
        # Modules, each with the names by which it was looked at.
        self._seen_modules = set()
        # Classes of objects, whose constructors nobody may call.
        self._classes = {}
        # Libraries' own.
        self._collections = {}
        self._attributes_named = set()
        self._attributes_sought = set()
        # Whether code looks up attributes that it does not name.
        self._searches = False
        # Libraries' modules that are kept somewhere, for whatever code comes by them.
        self._modules_kept = []
        # Those that nothing but methods of theirs refers to so far, by id.
        self._receivers = {}
        self._members_of_receivers = set()
        # What is not watched where one of these is named, too.
        self._together = []
        self._calls_any_class = False
        # Classes that methods of theirs are given, and may call: so may be what derives from them.
        self._given_classes = set()
        # Whether code names any to which others may be registered, so that isinstance() differs.
        self._asks_abstract_classes = False
        self._weakly = []
        # Of this process: what a call does to one is seen by its state.
        self.generators = []
        self._pending = [function]
        # Those are looked at by the names that code uses.
        self._classes.update((id(kind), kind) for kind in (torch.Tensor, torch.nn.Parameter))
        self._members_of_tensors = set()
        self._lengths += [(contents, len(contents)) for contents, _ in _OF_TENSORS]
        self._put_on_tensors = [_names_that_differ(*pair) for pair in _OF_TENSORS]
        for hooks in _GLOBAL_HOOKS:
            self._look_at_items(hooks)
        self._look_at_pending(seen)
        constructed = set()
        named = None
        while True:
            kinds = [
                kind
                for number, kind in self._classes.items()
                if number not in constructed and self._may_be_called(kind)
            ]
            for kind in kinds:
                self._look_at_constructors(kind)
            constructed.update(map(id, kinds))
            if not kinds:
                if named == (named := self._count_of_named()):
                    break
                self._look_at_modules_kept()
                self._look_at_classes_of_tensors()
                for receiver in list(self._receivers.values()):
                    self._look_at_receiver(receiver)
            self._look_at_pending(seen)
        if self._asks_abstract_classes:
            self._value_reads.append((abc.get_cache_token,))
        if not set(map(id, self._weakly)) <= set(map(id, self.tensors)):
            raise Unwatchable("it refers weakly to a tensor, which cannot be watched")
        for name in sorted(_SEEDING & self._attributes_named if self.generators else ()):
            raise Unwatchable(f"it refers to a generator of this process, and uses {name}")
        for what, attributes in self._together:
            for name in sorted(attributes & self._attributes_named):
                raise Unwatchable(f"it uses {what} and {name}, whose results are not watched")
        del self._pending, self._seen_modules, self._classes, self._weakly
        del self._collections, self._attributes_named, self._together, self._given_classes
        del self._attributes_sought, self._modules_kept
        del self._members_of_tensors, self._put_on_tensors
        del self._receivers, self._members_of_receivers

    def _may_be_called(self, kind):
        return self._calls_any_class or not self._given_classes.isdisjoint(
            (*kind.__mro__, *type(kind).__mro__)
        )

    def _look_at_pending(self, seen):
        while self._pending:
            thing = self._pending.pop()
            if id(thing) in _CONSTRUCTING:
                self._calls_any_class = True
            if id(thing) in _UNWATCHED_TOGETHER:
                self._together.append(_UNWATCHED_TOGETHER[id(thing)])
            if id(thing) in seen:
                self._meet_again(thing)
                continue
            seen[id(thing)] = thing
            if len(seen) > _MAX_THINGS:
                raise Unwatchable("it refers to more things than can be watched")
            self._look_at(thing)

    def _meet_again(self, thing):
        """It was looked at, and is referred to by something else, too."""

    def _look_at(self, thing):
        check_what_is_asked(thing)
        self._asks_abstract_classes |= isinstance(thing, abc.ABCMeta)
        if isinstance(thing, torch.Tensor):
            self._look_at_tensor(thing)
        elif isinstance(thing, logging.Logger):
            self._look_at_logger(thing)
        elif is_value(thing) or isinstance(thing, _OPAQUE):
            if isinstance(thing, torch.Generator) and thing.device.type == "cpu":
                self.generators.append(thing)
        elif id(thing) in _BOUNDLESS:
            what = _BOUNDLESS[id(thing)]
            raise Unwatchable(f"it uses {what}, through which it may refer to anything")
        elif isinstance(thing, BOUND):
            self._look_at_owner(thing)
        elif isinstance(thing, weakref.ref):
            self._look_at_reference(thing)
        elif type(thing) in self.transparent:
            self._pending.append(getattr(thing, self.transparent[type(thing)]))
        elif isinstance(thing, functools.partial):
            self._pending += [thing.func, thing.args, thing.keywords]
            self._look_at_attributes(thing)
        elif isinstance(thing, types.MethodType):
            self._look_at_method(thing)
        elif id(thing) in _ASKED:
            self._value_reads.append((thing,))
        elif id(thing) in _READS:
            self._pending.append(_READS[id(thing)])
        elif isinstance(thing, types.FunctionType):
            self._look_at_function(thing)
        elif isinstance(thing, (staticmethod, classmethod)):
            self._pending.append(thing.__func__)
        elif isinstance(thing, property):
            self._look_at_class(type(thing))
            self._pending += [thing.fget, thing.fset]
        elif isinstance(thing, type):
            self._look_at_class(thing)
            self._look_at_constructors(thing)
        elif isinstance(thing, OPERATORS):
            self._look_at_operator(thing)
            self._look_at_object(thing)
        elif isinstance(thing, types.ModuleType):
            self._look_at_kept_module(thing)
        elif isinstance(thing, functools._lru_cache_wrapper):
            if not is_a_librarys(inspect.unwrap(thing)):
                raise Unwatchable("it refers to a cache of calls, which cannot be watched")
        else:
            self._look_at_object(thing)

    def _look_at_object(self, thing):
        kind = type(thing)
        state = what_holds_the_state(kind)
        if state in _MAPPINGS:
            if state is collections.defaultdict:
                self._attributes.append((thing, "default_factory", thing.default_factory))
                self._pending.append(thing.default_factory)
            self._look_at_items(thing)
        elif state in _SEQUENCES:
            self._look_at_elements(thing)
        elif state in _SETS:
            self._look_at_set(thing)
        elif state in _OF_ATTRIBUTES_ONLY or state in VALUES:
            pass
        elif issubclass(state, torch._C.ScriptObject) or package_of(state) not in _OF_CALLS:
            raise Unwatchable(f"it refers to a {kind.__name__}, which cannot be watched")
        if kind not in _COLLECTIONS and kind is not tuple:
            self._look_at_attributes(thing)

    def _look_at_owner(self, function):
        """Of a builtin function or method, as `{}.get`."""
        if not is_anybodys(function.__self__):
            self._pending.append(function.__self__)

    def _look_at_method(self, method):
        receiver = method.__self__
        self._pending.append(method.__func__)
        if not is_method_of_receiver(method):
            self._pending.append(receiver)
        elif id(receiver) not in self._receivers:
            self._receivers[id(receiver)] = receiver
            self._objects.append(receiver)
            self._kinds_of_objects.append(type(receiver))
            self._owners.append(receiver)
            self._dictionaries.append(receiver.__dict__)
            self._look_at_keys(receiver.__dict__)
            for kind in classes_of(receiver):
                self._attributes.append((kind, "__bases__", kind.__bases__))
                self._members.append((kind, tuple(kind.__dict__.values())))

    def _look_at_receiver(self, receiver):
        """At all of it that has a name which any code uses."""
        if self._searches or leads_elsewhere(self._attributes_named):
            self._pending.append(receiver)
            return
        for name in sorted(self._attributes_named):
            if (id(receiver), name) in self._members_of_receivers:
                continue
            self._members_of_receivers.add((id(receiver), name))
            holder = next((k for k in classes_of(receiver) if name in k.__dict__), None)
            if holder is not None:
                member = holder.__dict__[name]
                if not is_value(member):
                    self._pending.append(member)
                if not keeps_object_of(member):
                    self._pending.append(receiver)
            if name in receiver.__dict__:
                self._look_at_item(receiver.__dict__, name)

    def _look_at_reference(self, reference):
        thing = reference()
        if thing is None:
            return  # and stays so
        if isinstance(thing, torch.Tensor):
            self._weakly.append(thing)
            return
        kind = type(thing)
        if isinstance(thing, (type, types.FunctionType)):
            self._pending.append(thing)
        elif (
            type(reference) in (weakref.ref, weakref.KeyedRef)
            and what_holds_the_state(kind) is object
            and hasattr(thing, "__dict__")
        ):
            self._look_at_attributes_of(reference, thing)
        else:
            raise Unwatchable(f"it refers weakly to a {kind.__name__}, which cannot be watched")

    def _look_at_attributes_of(self, reference, thing):
        """`reference` leads to it; it must be free to go: only its attributes are kept."""
        self._references.append((reference, type(thing), thing.__dict__))
        self._look_at_class(type(thing))
        self._look_at_items(thing.__dict__)

    def _look_at_logger(self, logger):
        """At what it lets pass: code may do more where somebody listens."""
        while logger is not None:
            contents = vars(logger)
            self._value_items += [(contents, name) for name in ("level", "disabled", "propagate")]
            self._items.append((contents, "parent", logger.parent))
            for name in ("handlers", "filters"):
                things = contents[name]
                self._items.append((contents, name, things))
                self._lengths.append((things, len(things)))
                self._elements += [(things, index, thing) for index, thing in enumerate(things)]
            self._value_items.append((vars(logger.manager), "_disable"))
            logger = logger.parent

    def _look_at_tensor(self, tensor):
        self.tensors.append(tensor)
        self._kinds_of_tensors.append(type(tensor))
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            self._look_at_class(type(tensor))
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if name == "_post_accumulate_grad_hooks" and not tensor.is_leaf:
                continue
            hooks = getattr(tensor, name)
            self._hooks.append((tensor, name, hooks))
            if hooks is not None:
                self._look_at_items(hooks)
        self._look_at_dictionary_of(tensor)

    def _look_at_function(self, function):
        if is_stable_function(function):
            for thing in contents_of(function):
                if not is_a_librarys(thing, inside=True):
                    self._pending.append(thing)
                elif type(thing) in (dict, list):
                    # As the functions are that a singledispatch chooses from.
                    self._look_at_librarys_collection(thing)
            return
        names = names_in(function.__code__)
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self._attributes.append((function, name, getattr(function, name)))
        self._pending += [function.__defaults__, function.__kwdefaults__]
        self._look_at_dictionary_of(function)
        for cell in function.__closure__ or ():
            try:
                contents = cell.cell_contents
            except ValueError:
                raise Unwatchable("a variable that it refers to is not set yet") from None
            if is_value(contents):
                self._value_cells.append(cell)
            else:
                self._cells.append((cell, contents))
                if isinstance(contents, types.ModuleType):
                    # It is named as one among the globals is.
                    self._look_at_module(contents, names)
                else:
                    self._pending.append(contents)
        self._look_at_names(function, names)
        self._look_at_what_is_handed_on(function, names)

    def _look_at_names(self, function, names):
        for name in sorted(_UNWATCHED_ATTRIBUTES & names.attributes):
            raise Unwatchable(f"it reads {name}, which is not watched")
        self._attributes_named |= names.attributes
        self._attributes_sought |= names.sought_attributes
        self._searches |= bool(names.searches)
        if "__class__" in names.attributes:
            self._calls_any_class = True
        variables, standard = function.__globals__, function.__builtins__
        # Modules are not looked through, but for the attributes that may be meant.
        for name in names.globals:
            thing = variables.get(name)
            if name not in variables:
                self._items.append((variables, name, None))
                if name in standard:
                    self._look_at_item(standard, name)
            elif isinstance(thing, types.ModuleType):
                self._items.append((variables, name, thing))
                self._look_at_module(thing, names)
            else:
                self._look_at_item(variables, name)
        for statement in names.imports:
            self._look_at_import(statement.resolve(variables), names)

    def _look_at_what_is_handed_on(self, function, names):
        """At modules among that: whoever is given one may take anything from it."""
        enclosing = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        for beginning, *attributes in names.handed_on:
            name = beginning.name
            if isinstance(beginning, Import):
                thing = sys.modules.get(beginning.resolve(function.__globals__).name)
            elif isinstance(beginning, Enclosing):
                thing = enclosing[name].cell_contents if name in enclosing else None
            else:
                thing = function.__globals__.get(name)
            for attribute in attributes:
                if not isinstance(thing, types.ModuleType):
                    break
                thing = thing.__dict__.get(attribute)
            if isinstance(thing, types.ModuleType):
                self._look_at_kept_module(thing)

    def _look_at_module(self, module, names):
        if is_stable_module(module):
            self._look_at_librarys_module(module, names)
            return
        if (id(module), names) in self._seen_modules:
            return
        self._seen_modules.add((id(module), names))
        self._look_at_kind_of(module)
        if names.searches:
            how = min(names.searches)
            raise Unwatchable(f"it looks through the module {module.__name__} ({how})")
        if not is_stable_class(type(module)):
            raise Unwatchable(f"it refers to {module.__name__}, a module with a class of its own")
        contents = module.__dict__
        if "__getattr__" in contents:
            self._look_at_item(contents, "__getattr__")
        for name in names.attributes:
            thing = contents.get(name)
            if name not in contents:
                if name in names.sought_attributes:
                    self._items.append((contents, name, None))
            elif isinstance(thing, types.ModuleType):
                self._items.append((contents, name, thing))
                self._look_at_module(thing, names)
            else:
                self._look_at_item(contents, name)

    def _look_at_kind_of(self, module):
        self._objects.append(module)
        self._kinds_of_objects.append(type(module))

    def _look_at_kept_module(self, module):
        """One that is an attribute, an element, a default: any code may take it from there."""
        if not is_stable_module(module):
            raise Unwatchable(f"it refers to the module {module.__name__} as a whole")
        self._modules_kept.append(module)

    def _look_at_modules_kept(self):
        """At all in them that has a name which any code uses."""
        nothing = frozenset()
        attributes = frozenset(self._attributes_named)
        sought = frozenset(self._attributes_sought)
        names = Names(nothing, nothing, attributes, sought, nothing, nothing, nothing)
        for module in self._modules_kept:
            self._look_at_module(module, names)

    def _count_of_named(self):
        named = len(self._attributes_named), len(self._attributes_sought), self._searches
        return len(self._modules_kept), len(self._receivers), *named

    def _look_at_classes_of_tensors(self):
        """At what a program has put there, but for what no code is going to use."""
        for (contents, own), names in zip(_OF_TENSORS, self._put_on_tensors):
            if not self._searches:
                # What takes the place of PyTorch's is used by libraries, too.
                names = {n for n in names if n in own or hasattr(torch._C.TensorBase, n)}
            for name in sorted(names | self._attributes_named & contents.keys()):
                if (id(contents), name) in self._members_of_tensors:
                    continue
                self._members_of_tensors.add((id(contents), name))
                member = contents.get(name)
                if is_value(member):
                    self._value_class_items.append((contents, name))
                    continue
                self._class_items.append((contents, name, member))
                if member is not own.get(name) and not is_a_librarys(member):
                    self._pending.append(member)

    def _look_at_librarys_module(self, module, names, *, trusted=False):
        """At what is named there: another thing may be put in its place.

        `trusted`: a library's own code names it.
        """
        if (id(module), names) in self._seen_modules:
            return
        self._seen_modules.add((id(module), names))
        self._look_at_kind_of(module)
        if not trusted:
            find_operators(module, names.attributes)
        contents = module.__dict__
        if isinstance(module, _WITH_SWITCHES):
            self._look_at_switches(module, names)
        for name in names.attributes:
            thing = contents.get(name)
            if name not in contents:
                if name in names.sought_attributes:
                    self._items.append((contents, name, None))
            elif not isinstance(thing, types.ModuleType):
                self._look_at_librarys_item(contents, name, trusted)
                if isinstance(thing, type) and not trusted:
                    self._look_at_librarys_attributes(thing, names)
            else:
                self._items.append((contents, name, thing))
                # What it uses itself is not what is meant.
                same = package_of_module(thing) == package_of_module(module)
                if same or thing in _UNDER_OTHER_NAMES:
                    self._look_at_librarys_module(thing, names, trusted=trusted)

    def _look_at_switches(self, module, names):
        """That it asks PyTorch for, as torch.backends.cudnn.allow_tf32 is."""
        for name in names.attributes:
            if any(name in vars(kind) for kind in type(module).__mro__[: -len(_OF_MODULES)]):
                if is_value(getattr(module, name)):
                    self._value_reads.append((getattr, module, name))

    def _look_at_librarys_attributes(self, kind, names):
        """At those of the class that are named."""
        for name in names.attributes:
            if not any(name in vars(base) for base in kind.__mro__):
                continue
            for base in filter(is_changeable, kind.__mro__):
                contents = base.__dict__
                member = contents.get(name)
                if name in contents and is_value(member):
                    self._value_class_items.append((contents, name))
                elif name not in _OF_MAKING:
                    self._class_items.append((contents, name, member))
                    if not is_a_librarys(member):
                        self._pending.append(member)
                if name in contents:
                    break

    def _look_at_librarys_item(self, contents, name, trusted):
        thing = contents[name]
        if is_value(thing):
            self._value_items.append((contents, name))
            return
        self._items.append((contents, name, thing))
        if not is_a_librarys(thing):
            self._pending.append(thing)
        elif trusted:
            if isinstance(thing, _OF_LIBRARIES):
                self._look_at_librarys_collection(thing)
        elif isinstance(thing, OPERATORS):
            self._look_at_operator(thing)
        else:
            check_what_is_asked(thing)
            # An alias of typing's stands for it.
            kind = getattr(thing, "__origin__", thing)
            self._asks_abstract_classes |= isinstance(kind, abc.ABCMeta)
            if id(thing) in _NAMED or isinstance(thing, (*_OF_LIBRARIES, set, logging.Logger)):
                self._pending.append(thing)

    def _look_at_operator(self, operator):
        """At what a program has given it in Python."""
        self._value_reads += WHAT_CHANGES_OPERATORS
        for implementation in implementations_of(operator):
            self._pending.append(implementation)

    def _look_at_librarys_collection(self, collection):
        """At the places in it, and at what a program has put there."""
        if id(collection) in self._collections:
            return
        self._collections[id(collection)] = collection
        if isinstance(collection, list):
            self._lengths.append((collection, len(collection)))
            for index, thing in enumerate(collection):
                self._elements.append((collection, index, thing))
                self._look_at_librarys_content(thing)
        elif isinstance(collection, dict):
            for key in self._look_at_keys(collection):
                self._asks_abstract_classes |= isinstance(key, abc.ABCMeta)
                thing = dict.get(collection, key)
                self._items.append((collection, key, thing))
                self._look_at_librarys_content(thing)
        if type(collection) is not list and type(collection) not in _MAPPINGS:
            # As transformers' interfaces are, which hold some themselves and some in a class.
            self._look_at_class(type(collection))
            for thing in list(getattr(collection, "__dict__", {}).values()):
                if isinstance(thing, (dict, list)):
                    self._look_at_librarys_collection(thing)

    def _look_at_librarys_content(self, thing):
        if isinstance(thing, _OF_LIBRARIES):
            self._look_at_librarys_collection(thing)
        elif not is_value(thing) and not is_a_librarys(thing):
            self._pending.append(thing)

    def _look_at_import(self, statement, names):
        for name in statement.modules():
            # Importing one that is not there yet changes that.
            module = sys.modules.get(name)
            self._items.append((sys.modules, name, module))
            if isinstance(module, types.ModuleType):
                self._look_at_module(module, names)
            elif module is not None:
                self._pending.append(module)

    def _look_at_class(self, kind):
        """But for its constructors, which are no part of what its objects do."""
        if id(kind) in self._classes:
            return
        self._classes[id(kind)] = kind
        if is_stable_class(kind):
            self._look_at_librarys_class(kind)
            return
        self._attributes += [(kind, "__bases__", kind.__bases__), (kind, "__class__", type(kind))]
        for one in (type(kind), *kind.__bases__):
            self._look_at_class(one)
        if issubclass(kind, type) or any(map(_is_given_its_class, kind.__dict__.items())):
            self._given_classes.add(kind)
        self._lengths.append((kind.__dict__, len(kind.__dict__)))
        for name, member in list(kind.__dict__.items()):
            if name in _CONSTRUCTORS:
                self._class_items.append((kind.__dict__, name, member))
            elif name not in _OF_MAKING:
                self._look_at_item(kind.__dict__, name)

    def _look_at_constructors(self, kind):
        for base in kind.__mro__:
            if not is_stable_class(base):
                self._pending += [base.__dict__[n] for n in _CONSTRUCTORS & base.__dict__.keys()]

    def _look_at_librarys_class(self, kind):
        """Methods may have been replaced, or be later."""
        if not is_changeable(kind):
            return
        self._members.append((kind, tuple(kind.__dict__.values())))
        for base in kind.__bases__:
            self._look_at_class(base)
        for member in kind.__dict__.values():
            if not is_a_librarys(member):
                self._pending.append(member)
        if issubclass(kind, collections.abc.Mapping):
            for name, member in kind.__dict__.items():
                if isinstance(member, (dict, list)) and name not in _OF_MAKING:
                    self._look_at_librarys_collection(member)
        if issubclass(kind, torch.nn.Module):
            forward = inspect.unwrap(kind.__dict__.get("forward"))
            if isinstance(forward, types.FunctionType) and is_stable_function(forward):
                self._look_at_librarys_names(forward)

    def _look_at_librarys_names(self, function):
        names = names_in(function.__code__)
        variables = function.__globals__
        for name in names.globals & variables.keys():
            thing = variables[name]
            if isinstance(thing, types.ModuleType):
                self._items.append((variables, name, thing))
                self._look_at_librarys_module(thing, names, trusted=True)
            else:
                self._look_at_librarys_item(variables, name, trusted=True)

    def _look_at_attributes(self, thing):
        self._objects.append(thing)
        self._kinds_of_objects.append(type(thing))
        self._look_at_class(type(thing))
        if isinstance(getattr(thing, "__dict__", None), dict):
            self._look_at_dictionary_of(thing)

    def _look_at_dictionary_of(self, owner):
        """Another dictionary may be put in its place."""
        contents = owner.__dict__
        self._owners.append(owner)
        self._dictionaries.append(contents)
        self._look_at_items(contents)

    def _look_at_items(self, dictionary):
        if type(dictionary) in _COLLECTIONS and not dictionary:
            self._empty.append(dictionary)
            return
        for key in self._look_at_keys(dictionary):
            if not is_value(key):
                self._pending.append(key)
            self._look_at_item(dictionary, key)

    def _look_at_keys(self, dictionary):
        kind = type(dictionary)
        if kind in _MAPPINGS:
            keys = tuple(dictionary)
            self._keys.append((dictionary, keys))
        else:
            # A class of one's own may iterate in another way.
            ordered = issubclass(kind, collections.OrderedDict)
            iterate = (collections.OrderedDict if ordered else dict).__iter__
            keys = tuple(iterate(dictionary))
            self._orders.append((dictionary, keys, iterate))
        return keys

    def _look_at_item(self, mapping, key):
        is_dictionary = isinstance(mapping, dict)
        thing = dict.get(mapping, key) if is_dictionary else mapping[key]
        if is_value(thing):
            (self._value_items if is_dictionary else self._value_class_items).append((mapping, key))
        else:
            items = self._items if is_dictionary else self._class_items
            items.append((mapping, key, thing))
            self._pending.append(thing)

    def _look_at_elements(self, sequence):
        if not isinstance(sequence, list):
            things = tuple.__iter__(sequence)
            self._pending += [thing for thing in things if not is_value(thing)]
            return
        if type(sequence) is not list:
            things = []
            for index, thing in enumerate(list.__iter__(sequence)):
                if is_value(thing):
                    self._value_reads.append((list.__getitem__, sequence, index))
                else:
                    things.append((index, thing))
                    self._pending.append(thing)
            self._lists.append((sequence, list.__len__(sequence), things))
            return
        if not sequence:
            self._empty.append(sequence)
            return
        self._lengths.append((sequence, len(sequence)))
        for index, thing in enumerate(sequence):
            if is_value(thing):
                self._value_elements.append((sequence, index))
            else:
                self._elements.append((sequence, index, thing))
                self._pending.append(thing)

    def _look_at_set(self, collection):
        kind = type(collection)
        iterate = next(base for base in _SETS if issubclass(kind, base)).__iter__
        keys = tuple(iterate(collection))
        if not all(map(is_value, keys)):
            raise Unwatchable("it refers to a set of objects, which cannot be watched")
        if not keys and kind is set:
            self._empty.append(collection)
        elif kind in _SETS:
            self._keys.append((collection, keys))
        else:
            self._orders.append((collection, keys, iterate))


def _names_that_differ(contents, former):
    names = {name for name, thing in contents.items() if thing is not former.get(name, former)}
    return names | former.keys() - contents.keys()


def _is_given_its_class(member):
    name, thing = member
    return isinstance(thing, classmethod) or name == "__class_getitem__"


def what_holds_the_state(kind):
    """The class whose instances have more than attributes in a __dict__: those of `kind` do."""
    while kind is not object and kind not in _STATES and is_changeable(kind):
        base = kind.__base__
        if package_of(base) == OF_PYBIND11:
            return kind
        size = kind.__basicsize__ - base.__basicsize__
        # Where a dictionary is not before the object.
        if not base.__dictoffset__ and (kind.__dictoffset__ > 0 or kind.__itemsize__):
            size -= _POINTER * bool(kind.__dictoffset__)
        if not base.__weakrefoffset__:
            size -= _POINTER * bool(kind.__weakrefoffset__)
        if size or kind.__itemsize__ != base.__itemsize__:
            return kind
        kind = base
    return kind
