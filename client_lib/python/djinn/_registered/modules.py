"""Watches the modules that code names, imports or is given.

Only the attributes that this code names are watched, and not whole modules.
"""

import sys
import types

from djinn._registered.contents import watch_item
from djinn._registered.outside import Unwatchable
from djinn._stable import is_stable_class, is_stable_module
from djinn._registered.values import ABSENT


class Modules:
    """Adds attributes of modules to `watch`, and their values to `pending`.

    `libraries` watches the modules of libraries.
    """

    def __init__(self, watch, pending, libraries):
        self._watch = watch
        self._pending = pending
        self._libraries = libraries
        # The watched modules, each with the names of the code that uses it.
        self._seen = set()
        # Modules of libraries that are stored somewhere, so that any code may use them.
        self._kept = []

    def look_at(self, module, names):
        """Watches the attributes of a module that have these names."""
        if is_stable_module(module):
            self._libraries.look_at_module(module, names)
            return
        if (id(module), names) in self._seen:
            return
        self._seen.add((id(module), names))
        self._watch.add_class_of(module)
        if names.searches:
            function = min(names.searches)
            raise Unwatchable(f"it looks through the module {module.__name__} ({function})")
        if not is_stable_class(type(module)):
            raise Unwatchable(f"it refers to {module.__name__}, a module with a class of its own")
        contents = module.__dict__
        if "__getattr__" in contents:
            self._pending.things += watch_item(self._watch, contents, "__getattr__")
        for name in names.attributes:
            if name in contents:
                self.look_at_item(contents, name, names)
            elif name in names.sought_attributes:
                self._watch.add_item(contents, name, ABSENT)

    def look_at_item(self, variables, name, names):
        """Watches a variable. If it is a module, watches the attributes with these names."""
        thing = variables[name]
        if isinstance(thing, types.ModuleType):
            self._watch.add_item(variables, name, thing)
            self.look_at(thing, names)
        else:
            self._pending.things += watch_item(self._watch, variables, name)

    def look_at_import(self, statement, names):
        for name in statement.modules():
            # An import of a module that is not loaded yet would change this.
            module = sys.modules.get(name, ABSENT)
            self._watch.add_item(sys.modules, name, module)
            if isinstance(module, types.ModuleType):
                self.look_at(module, names)
            elif module is not ABSENT and module is not None:
                self._pending.things.append(module)

    def keep(self, module):
        """Keeps a module that is an attribute, an element or a default: any code may use it."""
        if not is_stable_module(module):
            raise Unwatchable(f"it refers to the module {module.__name__} as a whole")
        self._kept.append(module)

    def look_at_kept(self, names):
        """Watches the attributes of kept modules that any code names."""
        for module in self._kept:
            self.look_at(module, names)

    def count_of_kept(self):
        return len(self._kept)
