"""What is watched: things that stay in their places, and plain values.

Tensors are listed, plain values are read anew at every look, and of everything else it is
checked that it is where it was.
"""

import operator

from djinn._values import ABSENT, EQUAL_TO_OTHERS, detail, is_other_key, is_value_type


class Watch:
    """Places and what was there; whoever makes it adds them one by one."""

    def __init__(self):
        # Tensors, each once.
        self.tensors = []
        # Each entry says what must be as it was; see changed().
        self._items = []  # (dictionary, key, thing)
        self._class_items = []  # (what is in a class, key, thing)
        self._attributes = []  # (object, name, thing)
        self._objects = []
        self._kinds_of_objects = []
        self._kinds_of_tensors = []
        self._owners = []  # Of a __dict__
        self._dictionaries = []  # Those
        self._members = []  # (class, what is in it)
        self._references = []  # (weak reference, its object's class, and __dict__)
        self._cells = []  # (cell, thing)
        self._elements = []  # (list, index, thing)
        # Lists of the program's classes: (list, length, (index, thing) of each thing)
        self._lists = []
        self._keys = []  # (mapping or set, its keys in order)
        # The same of the program's classes: (mapping or set, its keys, what iterates it)
        self._orders = []
        self._lengths = []  # (collection, length)
        self._empty = []  # Collections
        self._hooks = []  # (tensor, attribute, hooks)
        # Where plain values are, which are part of the key.
        self._value_items = []  # (dictionary, key)
        self._value_class_items = []  # (what is in a class, key)
        self._value_elements = []  # (list, index)
        self._value_cells = []
        self._value_reads = []  # (function, what it is called with)
        self._kinds = None
        self._places = None
        # Of the values, those of which equal ones may not be the same.
        self._unequal = ()

    # What must stay as it is ----------------------------------------------------------

    def add_tensor(self, tensor):
        self.tensors.append(tensor)
        self._kinds_of_tensors.append(type(tensor))

    def add_hooks(self, tensor, name):
        """Those of the tensor's attribute, which it returns."""
        hooks = getattr(tensor, name)
        self._hooks.append((tensor, name, hooks))
        return hooks

    def add_class_of(self, thing):
        self._objects.append(thing)
        self._kinds_of_objects.append(type(thing))

    def add_dictionary_of(self, owner):
        """Its __dict__, which it returns: another one may be put in its place."""
        contents = owner.__dict__
        self._owners.append(owner)
        self._dictionaries.append(contents)
        return contents

    def add_attribute(self, owner, name, thing):
        self._attributes.append((owner, name, thing))

    def add_members(self, kind):
        """Of a class: all of them, in order."""
        self._members.append((kind, tuple(kind.__dict__.values())))

    def add_reference(self, reference, thing):
        """A weak one that leads to `thing`, which is not held."""
        self._references.append((reference, type(thing), thing.__dict__))

    def add_item(self, mapping, key, thing):
        """Of a dictionary; ABSENT if it has none of this key."""
        self._items.append((mapping, key, thing))

    def add_class_item(self, contents, key, thing):
        """The same in what is in a class."""
        self._class_items.append((contents, key, thing))

    def add_cell(self, cell, thing):
        self._cells.append((cell, thing))

    def add_element(self, sequence, index, thing):
        self._elements.append((sequence, index, thing))

    def add_list(self, sequence, things):
        """Of a class of the program's; `things`: those watched, each as (index, thing)."""
        self._lists.append((sequence, _count(sequence), things))

    def add_keys(self, collection, keys):
        self._keys.append((collection, keys))

    def add_order(self, collection, keys, iterate):
        """The same where the collection may iterate in another way than `iterate`."""
        self._orders.append((collection, keys, iterate))

    def add_length(self, collection):
        self._lengths.append((collection, len(collection)))

    def add_empty(self, collection):
        self._empty.append(collection)

    # Where plain values are -----------------------------------------------------------

    def add_value_item(self, mapping, key):
        self._value_items.append((mapping, key))

    def add_value_class_item(self, contents, key):
        self._value_class_items.append((contents, key))

    def add_value_element(self, sequence, index):
        self._value_elements.append((sequence, index))

    def add_value_cell(self, cell):
        self._value_cells.append(cell)

    def add_read(self, function, *args):
        """What `function` returns, called with these."""
        self._value_reads.append((function, *args))

    # What has become of it ------------------------------------------------------------

    def holds(self, place):
        """Whether this object, list or dictionary is part of it."""
        if self._places is None:
            places = self._objects + [reference() for reference, _, _ in self._references]
            places += [one for one, _ in self._keys + self._lengths] + self._empty
            places += [one for one, _, _ in self._orders + self._lists]
            self._places = frozenset(map(id, places))
        return id(place) in self._places

    def has_one_of(self, kinds):
        """Whether an object of these classes is part of it."""
        return any(isinstance(one, kinds) for one in self._objects)

    def is_like(self, other):
        """Whether it consists of the very things that `other`, alive, consists of."""
        return self._identity() == other._identity()

    def _identity(self):
        return (
            [(id(tensor), id(kind)) for tensor, kind in zip(self.tensors, self._kinds_of_tensors)],
            [(id(mapping), key, id(thing)) for mapping, key, thing in self._items],
            [(id(kind), key, id(thing)) for kind, key, thing in self._class_items],
            [(id(owner), name, id(thing)) for owner, name, thing in self._attributes],
            [(id(one), id(kind)) for one, kind in zip(self._objects, self._kinds_of_objects)],
            [(id(one), id(held)) for one, held in zip(self._owners, self._dictionaries)],
            [(id(kind), [id(member) for member in members]) for kind, members in self._members],
            [(id(reference), id(kind), id(held)) for reference, kind, held in self._references],
            [(id(cell), id(thing)) for cell, thing in self._cells],
            [(id(sequence), index, id(thing)) for sequence, index, thing in self._elements],
            [
                (id(one), length, [(index, id(thing)) for index, thing in things])
                for one, length, things in self._lists
            ],
            [(id(mapping), [id(key) for key in keys]) for mapping, keys in self._keys],
            [(id(mapping), [id(key) for key in keys]) for mapping, keys, _ in self._orders],
            [(id(collection), length) for collection, length in self._lengths],
            [id(collection) for collection in self._empty],
            [(id(tensor), name, id(hooks)) for tensor, name, hooks in self._hooks],
            [(id(mapping), key) for mapping, key in self._value_items],
            [(id(kind), key) for kind, key in self._value_class_items],
            [(id(sequence), index) for sequence, index in self._value_elements],
            [id(cell) for cell in self._value_cells],
            [(id(function), *map(id, args)) for function, *args in self._value_reads],
        )

    def changed(self):
        """Whether something else has taken the place of something."""
        if any(self._empty):
            return True
        for mapping, key, thing in self._items:
            if _get(mapping, key, ABSENT) is not thing:
                return True
        for kind, key, thing in self._class_items:
            if kind.get(key, ABSENT) is not thing:
                return True
        if not (
            all(map(operator.is_, map(type, self._objects), self._kinds_of_objects))
            and all(map(operator.is_, map(type, self.tensors), self._kinds_of_tensors))
            and all(map(operator.is_, map(_dictionary_of, self._owners), self._dictionaries))
        ):
            return True
        for kind, members in self._members:
            if len(kind.__dict__) != len(members) or not all(
                map(operator.is_, kind.__dict__.values(), members)
            ):
                return True
        for owner, name, thing in self._attributes:
            if getattr(owner, name) is not thing:
                return True
        for collection, length in self._lengths:
            if len(collection) != length:
                return True
        for mapping, keys in self._keys:
            if len(mapping) != len(keys):
                return True
            if not all(map(operator.is_, mapping, keys)) and any(map(is_other_key, mapping, keys)):
                return True
        for mapping, keys, iterate in self._orders:
            now = tuple(iterate(mapping))
            if len(now) != len(keys) or any(map(is_other_key, now, keys)):
                return True
        for reference, kind, held in self._references:
            thing = reference()
            if type(thing) is not kind or thing.__dict__ is not held:
                return True
        for cell, thing in self._cells:
            if cell.cell_contents is not thing:
                return True
        for sequence, index, thing in self._elements:
            if sequence[index] is not thing:
                return True
        for sequence, length, things in self._lists:
            if _count(sequence) != length:
                return True
            if any(_element(sequence, index) is not thing for index, thing in things):
                return True
        for tensor, name, hooks in self._hooks:
            if getattr(tensor, name) is not hooks:
                return True
        return False

    def values(self):
        """Every plain value with its type: 1, 1.0 and True are not the same.

        None when one of them is no plain value any more, or gone.
        """
        values = [_get(mapping, key, ABSENT) for mapping, key in self._value_items]
        values += [kind.get(key, ABSENT) for kind, key in self._value_class_items]
        values += [sequence[index] for sequence, index in self._value_elements]
        values += [cell.cell_contents for cell in self._value_cells]
        values += [function(*args) for function, *args in self._value_reads]
        kinds = tuple(map(type, values))
        if kinds != self._kinds:
            if not all(map(is_value_type, kinds)):
                return None
            self._unequal = [i for i, kind in enumerate(kinds) if issubclass(kind, EQUAL_TO_OTHERS)]
            # Behind what goes with it: another thread may be looking.
            self._kinds = kinds
        details = tuple([detail(values[i]) for i in self._unequal])
        return tuple(values), kinds, details


# What classes of the program's may do in another way is not asked of them.
_get = dict.get
_count = list.__len__
_element = list.__getitem__
_dictionary_of = operator.attrgetter("__dict__")
