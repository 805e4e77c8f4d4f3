"""Records things with the places where they are, and checks whether others took their places.

Tensors are listed, plain values are read again at every check, and every other thing must be the
same object in the same place.
"""

from djinn._djinn import places
from djinn._registered.values import ABSENT, EQUAL_TO_OTHERS, detail, is_other_key, is_value_type


class Values:
    """Plain values that compare with their types: 1, 1.0 and True differ."""

    __slots__ = ("all", "kinds", "_details", "_hash")

    def __init__(self, values, kinds, details):
        self.all = values
        self.kinds = kinds
        self._details = details
        self._hash = hash((values, kinds, details))

    def __hash__(self):
        return self._hash

    def __eq__(self, other):
        if self is other:
            return True
        if type(other) is not Values or self._hash != other._hash:
            return False
        return (self.kinds, self.all, self._details) == (other.kinds, other.all, other._details)


class Watch:
    """The places of things and of plain values, which a search adds one by one."""

    def __init__(self):
        # The watched tensors, each once.
        self.tensors = []
        # changed() compares each of these collections. Dictionaries are stored by id, as
        # (dictionary, keys, things), so that each is visited once.
        self._items = {}
        self._class_items = []  # (__dict__ of a class, key, thing)
        self._attributes = []  # (object, name, thing)
        self._objects = []
        self._kinds_of_objects = []
        self._kinds_of_tensors = []
        self._owners = []  # Objects whose __dict__ stays
        self._dictionaries = []  # The __dict__ of each of them
        self._members = []  # (class, names in its __dict__, values in its __dict__)
        self._references = []  # (weak reference, class of its object, __dict__ of its object)
        self._cells = []  # (cell, thing)
        self._elements = []  # (list, index, thing)
        # Lists whose classes the program defines, each as (list, length, [(index, thing)]).
        self._lists = []
        self._keys = []  # (mapping or set, keys in order)
        # Collections whose classes the program defines, each as (mapping or set, keys, function
        # that iterates it).
        self._orders = []
        self._lengths = []  # (collection, length)
        self._empty = []  # Collections
        self._hooks = []  # (tensor, attribute, hooks)
        # The places of plain values. The values are a part of the key.
        self._value_items = []  # (dictionary, key)
        self._value_class_items = []  # (__dict__ of a class, key)
        self._value_elements = []  # (list, index)
        self._value_cells = []
        self._value_reads = []  # (function, arguments...)
        self._last_values = None
        self._places = None

    # Places of things -----------------------------------------------------------------

    def add_tensor(self, tensor):
        self.tensors.append(tensor)
        self._kinds_of_tensors.append(type(tensor))

    def add_hooks(self, tensor, name):
        """Adds the hooks in this attribute of a tensor, and returns them."""
        hooks = getattr(tensor, name)
        self._hooks.append((tensor, name, hooks))
        return hooks

    def add_class_of(self, thing):
        self._objects.append(thing)
        self._kinds_of_objects.append(type(thing))

    def add_dictionary_of(self, owner):
        """Adds the __dict__ of an object, which a program may replace, and returns it."""
        contents = owner.__dict__
        self._owners.append(owner)
        self._dictionaries.append(contents)
        return contents

    def add_attribute(self, owner, name, thing):
        self._attributes.append((owner, name, thing))

    def add_members(self, kind):
        """Adds all members of a class, in order."""
        self._members.append((kind, tuple(kind.__dict__), tuple(kind.__dict__.values())))

    def add_reference(self, reference, thing):
        """Adds a weak reference to `thing`, which is not kept alive."""
        self._references.append((reference, type(thing), thing.__dict__))

    def add_item(self, mapping, key, thing):
        """Adds an item of a dictionary. `thing` is ABSENT if the key must stay missing."""
        _, keys, things = self._items.setdefault(id(mapping), (mapping, [], []))
        keys.append(key)
        things.append(thing)

    def add_class_item(self, contents, key, thing):
        """Adds an item of a class's __dict__, as add_item() does."""
        self._class_items.append((contents, key, thing))

    def add_cell(self, cell, thing):
        self._cells.append((cell, thing))

    def add_element(self, sequence, index, thing):
        self._elements.append((sequence, index, thing))

    def add_list(self, sequence, things):
        """Adds a list whose class the program defines, with (index, thing) of watched things."""
        self._lists.append((sequence, _count(sequence), things))

    def add_keys(self, collection, keys):
        self._keys.append((collection, keys))

    def add_order(self, collection, keys, iterate):
        """Adds the keys of a collection whose class may define how it is iterated.

        `iterate` is the function of the builtin class.
        """
        self._orders.append((collection, keys, iterate))

    def add_length(self, collection):
        self._lengths.append((collection, len(collection)))

    def add_empty(self, collection):
        self._empty.append(collection)

    # Places of plain values -----------------------------------------------------------

    def add_value_item(self, mapping, key):
        self._value_items.append((mapping, key))

    def leave_out(self, places):
        """Leaves out what is at these places, each the id of a dictionary and a key."""
        for identity, (mapping, keys, things) in self._items.items():
            kept = [pair for pair in zip(keys, things) if (identity, pair[0]) not in places]
            if len(kept) != len(keys):
                self._items[identity] = mapping, [key for key, _ in kept], [one for _, one in kept]
        self._value_items = [
            (mapping, key) for mapping, key in self._value_items if (id(mapping), key) not in places
        ]

    def add_value_class_item(self, contents, key):
        self._value_class_items.append((contents, key))

    def add_value_element(self, sequence, index):
        self._value_elements.append((sequence, index))

    def add_value_cell(self, cell):
        self._value_cells.append(cell)

    def add_read(self, function, *args):
        """Adds the result of a call of `function`."""
        self._value_reads.append((function, *args))

    # Checks ---------------------------------------------------------------------------

    def holds(self, place):
        """Returns whether this object, list or dictionary is watched."""
        if self._places is None:
            places = self._objects + [reference() for reference, _, _ in self._references]
            places += [one for one, _ in self._keys + self._lengths] + self._empty
            places += [one for one, _, _ in self._orders + self._lists]
            self._places = frozenset(map(id, places))
        return id(place) in self._places

    def is_held_elsewhere(self, things, holders):
        """Returns whether something other than these dictionaries and lists holds one of them."""
        wanted, known = set(map(id, things)), set(map(id, holders))
        held = [(mapping, one) for mapping, _, others in self._items.values() for one in others]
        held += [(owner, one) for owner, _, one in self._class_items + self._attributes]
        held += [(sequence, one) for sequence, _, one in self._elements]
        held += [(one, one.cell_contents) for one, _ in self._cells]
        held += [(sequence, one) for sequence, _, others in self._lists for _, one in others]
        return any(id(one) in wanted and id(holder) not in known for holder, one in held)

    def places_of_programs(self, is_a_librarys):
        """Returns the cells, and the dictionaries but of objects whose class is a library's."""
        others = {
            id(held) for one, held in zip(self._owners, self._dictionaries) if is_a_librarys(type(one))
        }
        places = [cell for cell, _ in self._cells]
        return places + [one for one, _, _ in self._items.values() if id(one) not in others]

    def has_one_of(self, kinds):
        """Returns whether an object of these classes is watched."""
        return any(isinstance(one, kinds) for one in self._objects)

    def is_like(self, other):
        """Returns whether both watch the same objects in the same places."""
        return self._identity() == other._identity()

    def _identity(self):
        return (
            [(id(tensor), id(kind)) for tensor, kind in zip(self.tensors, self._kinds_of_tensors)],
            [(place, keys, [*map(id, things)]) for place, (_, keys, things) in self._items.items()],
            [(id(kind), key, id(thing)) for kind, key, thing in self._class_items],
            [(id(owner), name, id(thing)) for owner, name, thing in self._attributes],
            [(id(one), id(kind)) for one, kind in zip(self._objects, self._kinds_of_objects)],
            [(id(one), id(held)) for one, held in zip(self._owners, self._dictionaries)],
            [(id(kind), names, [*map(id, members)]) for kind, names, members in self._members],
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
        """Returns whether something has taken the place of a watched thing."""
        if not (places.are_empty(self._empty) and places.hold_items(self._items, ABSENT)):
            return True
        # Classes come before attributes, because a class may define how attributes are read.
        for kind, key, thing in self._class_items:
            if kind.get(key, ABSENT) is not thing:
                return True
        if not (
            places.are_of(self._objects, self._kinds_of_objects)
            and places.are_of(self.tensors, self._kinds_of_tensors)
            and places.hold_dictionaries(self._owners, self._dictionaries)
            and places.hold_members(self._members)
            and places.hold_attributes(self._attributes)
            and places.hold_keys(self._keys, is_other_key)
            and places.hold_attributes(self._hooks)
        ):
            return True
        for collection, length in self._lengths:
            if len(collection) != length:
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
        return False

    def values(self):
        """Returns the Values at all places, or None if something else is at one of them."""
        last = self._last_values
        others = [kind.get(key, ABSENT) for kind, key in self._value_class_items]
        others += [sequence[index] for sequence, index in self._value_elements]
        others += [cell.cell_contents for cell in self._value_cells]
        others += [function(*args) for function, *args in self._value_reads]
        # In most calls the values are the same objects as before.
        if last is not None and places.hold_values(
            self._value_items, others, last.all, last.kinds, ABSENT
        ):
            return last
        values = (*places.values_of(self._value_items, ABSENT), *others)
        kinds = tuple(map(type, values))
        if not all(map(is_value_type, kinds)):
            return None
        details = tuple(
            [detail(value) for value in values if isinstance(value, EQUAL_TO_OTHERS)]
        )
        now = Values(values, kinds, details)
        # Another thread may do the same. It does not matter whose values are kept.
        self._last_values = now
        return now


# These bypass methods that a class of the program may override.
_count = list.__len__
_element = list.__getitem__
