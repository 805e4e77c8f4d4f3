"""Watches dictionaries, lists and sets: their keys, their order and their contents.

Unless it says otherwise, each function returns the contents that are no plain values, which the
caller looks through.
"""

import collections

from djinn._registered.outside import Unwatchable
from djinn._registered.values import ABSENT, is_value

MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
SEQUENCES = (list, tuple)
SETS = (set, frozenset)
# Collections that are true exactly if they are not empty.
COLLECTIONS = frozenset((dict, collections.OrderedDict, list, set))


def watch_dictionary_of(watch, owner):
    """Watches an object's __dict__ and its contents."""
    return watch_items(watch, watch.add_dictionary_of(owner))


def watch_items(watch, dictionary):
    if type(dictionary) in COLLECTIONS and not dictionary:
        watch.add_empty(dictionary)
        return []
    found = []
    for key in watch_keys(watch, dictionary):
        if not is_value(key):
            found.append(key)
        found += watch_item(watch, dictionary, key)
    return found


def watch_item(watch, dictionary, key):
    """Watches an item of a dictionary, or its absence."""
    thing = dict.get(dictionary, key, ABSENT)
    if is_value(thing):
        watch.add_value_item(dictionary, key)
        return []
    watch.add_item(dictionary, key, thing)
    return [] if thing is ABSENT else [thing]


def watch_class_item(watch, contents, key):
    """Watches an item of a class's __dict__, or its absence."""
    thing = contents.get(key, ABSENT)
    if is_value(thing):
        watch.add_value_class_item(contents, key)
        return []
    watch.add_class_item(contents, key, thing)
    return [] if thing is ABSENT else [thing]


def watch_keys(watch, dictionary):
    """Watches that the keys stay the same, and returns them."""
    kind = type(dictionary)
    if kind in MAPPINGS:
        keys = tuple(dictionary)
        watch.add_keys(dictionary, keys)
    else:
        # A class of the program may define how it is iterated.
        ordered = issubclass(kind, collections.OrderedDict)
        iterate = (collections.OrderedDict if ordered else dict).__iter__
        keys = tuple(iterate(dictionary))
        watch.add_order(dictionary, keys, iterate)
    return keys


def watch_elements(watch, sequence):
    """Watches the elements of a list. Those of a tuple cannot change."""
    if not isinstance(sequence, list):
        return [thing for thing in tuple.__iter__(sequence) if not is_value(thing)]
    if type(sequence) is not list:
        return _watch_elements_of_subclass(watch, sequence)
    if not sequence:
        watch.add_empty(sequence)
        return []
    watch.add_length(sequence)
    found = []
    for index, thing in enumerate(sequence):
        if is_value(thing):
            watch.add_value_element(sequence, index)
        else:
            watch.add_element(sequence, index, thing)
            found.append(thing)
    return found


def _watch_elements_of_subclass(watch, sequence):
    """Watches a list whose class may define how its elements are read."""
    things = []
    for index, thing in enumerate(list.__iter__(sequence)):
        if is_value(thing):
            watch.add_read(list.__getitem__, sequence, index)
        else:
            things.append((index, thing))
    watch.add_list(sequence, things)
    return [thing for _, thing in things]


def watch_set(watch, collection):
    """Watches a set of plain values. Returns nothing, and refuses other elements."""
    kind = type(collection)
    iterate = next(base for base in SETS if issubclass(kind, base)).__iter__
    keys = tuple(iterate(collection))
    if not all(map(is_value, keys)):
        raise Unwatchable("it refers to a set of objects, which cannot be watched")
    if not keys and kind is set:
        watch.add_empty(collection)
    elif kind in SETS:
        watch.add_keys(collection, keys)
    else:
        watch.add_order(collection, keys, iterate)
