"""Modules that code names, imports or is given.

They are not looked through as a whole, but for what the code that comes by them names.
"""

import sys
import types

from djinn._registered.contents import watch_item
from djinn._registered.outside import Unwatchable
from djinn._registered.stable import is_stable_class, is_stable_module
from djinn._registered.values import ABSENT


class Modules:
    """Adds to `watch` what of modules must stay, and to `pending` what is meant in them.

    `libraries` looks at those that a library has.
    """

    def __init__(self, watch, pending, libraries):
        self._watch = watch
        self._pending = pending
        self._libraries = libraries
        # The modules that were watched, each with the names with which it was.
        self._seen = set()
        # Modules of libraries that are stored somewhere, so that any code may use them.
        self._kept = []

    def look_at(self, module, names):
        if is_stable_module(module):
            self._libraries.look_at_module(module, names)
            return
        if (id(module), names) in self._seen:
            return
        self._seen.add((id(module), names))
        self._watch.add_class_of(module)
        if names.searches:
            how = min(names.searches)
            raise Unwatchable(f"it looks through the module {module.__name__} ({how})")
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
        """Of a dictionary: at a module that is there by these names."""
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
        """One that is an attribute, an element, a default: any code may take it from there."""
        if not is_stable_module(module):
            raise Unwatchable(f"it refers to the module {module.__name__} as a whole")
        self._kept.append(module)

    def look_at_kept(self, names):
        """At all in them that has one of these names, which are those that any code uses."""
        for module in self._kept:
            self.look_at(module, names)

    def count_of_kept(self):
        return len(self._kept)
