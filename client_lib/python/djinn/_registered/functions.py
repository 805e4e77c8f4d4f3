"""Watches the program's functions: their closures and defaults, and the things that they name."""

import sys
import types

from djinn._registered.contents import watch_dictionary_of, watch_item
from djinn._registered.names import Enclosing, Import, Names, loads_enclosing, names_in
from djinn._registered.outside import Unwatchable
from djinn._stable import is_stable_function
from djinn._registered.values import ABSENT, is_value

# Attributes whose values cannot be watched on any object.
_UNWATCHED_ATTRIBUTES = frozenset(
    "__globals__ __subclasses__ _version ag_frame cr_frame data_ptr gi_frame initial_seed "
    "tb_frame".split()
)
_NO_NAMES = Names(*[frozenset()] * len(Names._fields))


class Functions:
    """Adds functions to `watch`, and the things that they refer to to `pending`.

    `libraries` watches the functions of libraries, and `modules` the modules that code names.
    """

    def __init__(self, watch, pending, libraries, modules):
        self._watch = watch
        self._pending = pending
        self._libraries = libraries
        self._modules = modules
        # The names that any of the functions uses.
        self.attributes = set()
        self._sought_attributes = set()
        # True if code looks up attributes that it does not name.
        self.searches = False

    def look_at(self, function):
        if is_stable_function(function):
            self._libraries.look_at_function(function)
            return
        names = names_in(function.__code__)
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self._watch.add_attribute(function, name, getattr(function, name))
        self._pending.things += [function.__defaults__, function.__kwdefaults__]
        self._pending.things += watch_dictionary_of(self._watch, function)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if name == "__class__" and not loads_enclosing(function.__code__, name):
                # super() needs this class to find the next one of an object.
                self._watch.add_cell(cell, cell.cell_contents)
            else:
                self._look_at_cell(cell, names)
        self._look_at_names(function, names)
        self._keep_passed_modules(function, names)

    def names(self):
        """Returns the attributes that any of the functions names, as Names."""
        return _NO_NAMES._replace(
            attributes=frozenset(self.attributes),
            sought_attributes=frozenset(self._sought_attributes),
        )

    def count_of_named(self):
        """Returns counts that grow if there are more names."""
        return len(self.attributes), len(self._sought_attributes), self.searches

    def _look_at_cell(self, cell, names):
        try:
            contents = cell.cell_contents
        except ValueError:
            raise Unwatchable("a variable that it refers to is not set yet") from None
        if is_value(contents):
            self._watch.add_value_cell(cell)
            return
        self._watch.add_cell(cell, contents)
        if isinstance(contents, types.ModuleType):
            # The cell's variable is named in the same way as a global.
            self._modules.look_at(contents, names)
        else:
            self._pending.things.append(contents)

    def _look_at_names(self, function, names):
        for name in sorted(_UNWATCHED_ATTRIBUTES & names.attributes):
            raise Unwatchable(f"it reads {name}, which is not watched")
        self.attributes |= names.attributes
        self._sought_attributes |= names.sought_attributes
        self.searches |= bool(names.searches)
        variables, standard = function.__globals__, function.__builtins__
        for name in names.globals:
            if name in variables:
                self._modules.look_at_item(variables, name, names)
                continue
            self._watch.add_item(variables, name, ABSENT)
            if name in standard:
                self._pending.things += watch_item(self._watch, standard, name)
        for statement in names.imports:
            self._modules.look_at_import(statement.resolve(variables), names)

    def _keep_passed_modules(self, function, names):
        """Keeps the modules that the code passes on: any code may then use them."""
        enclosing = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        for beginning, *attributes in names.passed_on:
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
                self._modules.keep(thing)
