#include <pybind11/pybind11.h>

#include "client_lib/python/bindings.h"

namespace djinn::python {
namespace {

namespace py = pybind11;

// Returns the element at `index` of an entry, as a borrowed reference. The
// entry must be a tuple with at least `index` + 1 elements.
PyObject* Part(PyObject* entry, Py_ssize_t index) {
  if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) <= index) {
    throw py::type_error("not a place");
  }
  return PyTuple_GET_ITEM(entry, index);
}

// Returns the borrowed result of dict.get(), even if the dictionary's class
// overrides its methods.
PyObject* ItemOf(PyObject* dictionary, PyObject* key, PyObject* absent) {
  if (!PyDict_Check(dictionary)) throw py::type_error("not a dictionary");
  PyObject* const item = PyDict_GetItemWithError(dictionary, key);
  if (item != nullptr) return item;
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return absent;
}

bool IsTrue(py::handle thing) {
  const int is_true = PyObject_IsTrue(thing.ptr());
  if (is_true < 0) throw py::error_already_set();
  return is_true == 1;
}

// Returns whether all collections are empty.
bool AreEmpty(const py::list& collections) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(collections.ptr()); ++i) {
    if (IsTrue(PyList_GET_ITEM(collections.ptr(), i))) return false;
  }
  return true;
}

// Returns whether dictionaries have the same items as before. `items` lists
// (dictionary, keys, things).
bool HoldItems(const py::dict& items, py::handle absent) {
  Py_ssize_t position = 0;
  PyObject* entry = nullptr;
  while (PyDict_Next(items.ptr(), &position, /*key=*/nullptr, &entry) != 0) {
    PyObject* const keys = Part(entry, 1);
    PyObject* const things = Part(entry, 2);
    if (!PyList_Check(keys) || !PyList_Check(things) ||
        PyList_GET_SIZE(keys) != PyList_GET_SIZE(things)) {
      throw py::type_error("not a place");
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); ++i) {
      if (ItemOf(Part(entry, 0), PyList_GET_ITEM(keys, i), absent.ptr()) !=
          PyList_GET_ITEM(things, i)) {
        return false;
      }
    }
  }
  return true;
}

// Returns the contents of a class, whatever its metaclass says.
py::object ContentsOf(PyTypeObject* kind) {
#if PY_VERSION_HEX >= 0x030C0000
  return py::reinterpret_steal<py::object>(PyType_GetDict(kind));
#else
  return py::reinterpret_borrow<py::object>(kind->tp_dict);
#endif
}

// Returns whether classes have the same members as before, in the same order.
// `classes` lists (class, names, members).
bool HoldMembers(const py::list& classes) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(classes.ptr()); ++i) {
    PyObject* const entry = PyList_GET_ITEM(classes.ptr(), i);
    PyObject* const kind = Part(entry, 0);
    PyObject* const names = Part(entry, 1);
    PyObject* const members = Part(entry, 2);
    if (!PyType_Check(kind) || !PyTuple_Check(names) ||
        !PyTuple_Check(members) ||
        PyTuple_GET_SIZE(names) != PyTuple_GET_SIZE(members)) {
      throw py::type_error("not a class and its members");
    }
    const py::object held = ContentsOf(reinterpret_cast<PyTypeObject*>(kind));
    if (PyDict_GET_SIZE(held.ptr()) != PyTuple_GET_SIZE(members)) return false;
    Py_ssize_t position = 0, index = 0;
    PyObject* name = nullptr;
    PyObject* member = nullptr;
    while (PyDict_Next(held.ptr(), &position, &name, &member) != 0) {
      if (name != PyTuple_GET_ITEM(names, index) ||
          member != PyTuple_GET_ITEM(members, index)) {
        return false;
      }
      ++index;
    }
  }
  return true;
}

// Returns whether dictionaries have exactly the same values as before. `places`
// lists (dictionary, key); `others` holds further values that follow those of
// `places`.
bool HoldValues(const py::list& places, const py::list& others,
                const py::tuple& values, const py::tuple& kinds,
                py::handle absent) {
  const Py_ssize_t count = PyList_GET_SIZE(places.ptr());
  const Py_ssize_t total = count + PyList_GET_SIZE(others.ptr());
  if (PyTuple_GET_SIZE(values.ptr()) != total ||
      PyTuple_GET_SIZE(kinds.ptr()) != total) {
    return false;
  }
  for (Py_ssize_t i = 0; i < total; ++i) {
    PyObject* now = nullptr;
    if (i < count) {
      PyObject* const place = PyList_GET_ITEM(places.ptr(), i);
      now = ItemOf(Part(place, 0), Part(place, 1), absent.ptr());
    } else {
      now = PyList_GET_ITEM(others.ptr(), i - count);
    }
    if (now != PyTuple_GET_ITEM(values.ptr(), i) ||
        reinterpret_cast<PyObject*>(Py_TYPE(now)) !=
            PyTuple_GET_ITEM(kinds.ptr(), i)) {
      return false;
    }
  }
  return true;
}

py::tuple ValuesOf(const py::list& places, py::handle absent) {
  const Py_ssize_t count = PyList_GET_SIZE(places.ptr());
  py::tuple values(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const place = PyList_GET_ITEM(places.ptr(), i);
    PyObject* const value =
        ItemOf(Part(place, 0), Part(place, 1), absent.ptr());
    PyTuple_SET_ITEM(values.ptr(), i, Py_NewRef(value));
  }
  return values;
}

// Returns whether the objects are of these classes, in order.
bool AreOf(const py::list& objects, const py::list& classes) {
  const Py_ssize_t count = PyList_GET_SIZE(objects.ptr());
  if (PyList_GET_SIZE(classes.ptr()) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(PyList_GET_ITEM(
            objects.ptr(), i))) != PyList_GET_ITEM(classes.ptr(), i)) {
      return false;
    }
  }
  return true;
}

// Returns whether attributes have the same values as before. The list holds
// (object, name, thing).
bool HoldAttributes(const py::list& attributes) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(attributes.ptr()); ++i) {
    PyObject* const attribute = PyList_GET_ITEM(attributes.ptr(), i);
    PyObject* const thing = Part(attribute, 2);
    const py::object now = py::reinterpret_steal<py::object>(
        PyObject_GetAttr(Part(attribute, 0), Part(attribute, 1)));
    if (!now) throw py::error_already_set();
    if (now.ptr() != thing) return false;
  }
  return true;
}

// Returns whether each owner still has its __dict__, in order.
bool HoldDictionaries(const py::list& owners, const py::list& dictionaries) {
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  const Py_ssize_t count = PyList_GET_SIZE(owners.ptr());
  if (PyList_GET_SIZE(dictionaries.ptr()) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const py::object now = py::reinterpret_steal<py::object>(
        PyObject_GetAttr(PyList_GET_ITEM(owners.ptr(), i), name));
    if (!now) throw py::error_already_set();
    if (now.ptr() != PyList_GET_ITEM(dictionaries.ptr(), i)) return false;
  }
  return true;
}

bool HasKeys(PyObject* mapping, PyObject* keys, py::handle is_other_key) {
  const Py_ssize_t length = PyObject_Size(mapping);
  if (length < 0) throw py::error_already_set();
  if (length != PyTuple_GET_SIZE(keys)) return false;
  Py_ssize_t index = 0;
  if (PyDict_CheckExact(mapping)) {
    Py_ssize_t position = 0;
    PyObject* key = nullptr;
    while (index < length &&
           PyDict_Next(mapping, &position, &key, /*value=*/nullptr) != 0 &&
           key == PyTuple_GET_ITEM(keys, index)) {
      ++index;
    }
    if (index == length) return true;
  }
  // The following loop handles every other collection, in the collection's own
  // order. It accepts other objects as keys if they are equal.
  index = 0;
  for (const py::handle key : py::reinterpret_borrow<py::object>(mapping)) {
    if (index == length) return false;
    PyObject* const before = PyTuple_GET_ITEM(keys, index++);
    if (key.ptr() != before && IsTrue(is_other_key(key, py::handle(before)))) {
      return false;
    }
  }
  return index == length;
}

// Returns whether mappings and sets have the same keys as before, in the same
// order. The list holds (mapping or set, keys).
bool HoldKeys(const py::list& collections, py::handle is_other_key) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(collections.ptr()); ++i) {
    PyObject* const collection = PyList_GET_ITEM(collections.ptr(), i);
    PyObject* const keys = Part(collection, 1);
    if (!PyTuple_Check(keys)) throw py::type_error("not a place");
    if (!HasKeys(Part(collection, 0), keys, is_other_key)) return false;
  }
  return true;
}

}  // namespace

void BindPlaces(py::module_& module) {
  py::module_ places = module.def_submodule("places");
  places.def("are_empty", &AreEmpty);
  places.def("hold_items", &HoldItems);
  places.def("hold_members", &HoldMembers);
  places.def("hold_values", &HoldValues);
  places.def("values_of", &ValuesOf);
  places.def("are_of", &AreOf);
  places.def("hold_attributes", &HoldAttributes);
  places.def("hold_dictionaries", &HoldDictionaries);
  places.def("hold_keys", &HoldKeys);
}

}  // namespace djinn::python
