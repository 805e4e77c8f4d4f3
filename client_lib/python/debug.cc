#include "djinn/debug.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/python/bindings.h"
#include "djinn/graph.h"
#include "djinn/hints.h"

namespace djinn::python {
namespace {

namespace py = pybind11;

// The folders with code that is not the program's own. Set once, at import, and
// never freed, because threads may still issue calls while the interpreter
// ends.
const std::vector<std::string>* library_folders = nullptr;

bool IsLibrary(absl::string_view file) {
  if (absl::StartsWith(file, "<frozen ")) return true;
  for (const std::string& folder : *library_folders) {
    if (absl::StartsWith(file, folder)) return true;
  }
  return false;
}

std::string TextOf(PyObject* text) {
  const char* const characters = PyUnicode_AsUTF8(text);
  if (characters != nullptr) return characters;
  PyErr_Clear();
  return "?";
}

// Returns this thread's innermost line of the program's own code, such as
// "model.py:12 in Net.forward". Takes the GIL, which PyTorch's bindings have
// released.
std::string ProgramLine() {
  if (InterpreterEnds()) return "";
  const py::gil_scoped_acquire acquire;
  auto frame = py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* const raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = py::reinterpret_steal<py::object>(
        reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    const auto* fields = reinterpret_cast<PyCodeObject*>(code.ptr());
#if PY_VERSION_HEX >= 0x030B0000
    PyObject* const name = fields->co_qualname;
#else
    PyObject* const name = fields->co_name;
#endif
    const std::string file = TextOf(fields->co_filename);
    if (!IsLibrary(file)) {
      return absl::StrCat(file, ":", PyFrame_GetLineNumber(raw), " in ",
                          TextOf(name));
    }
    frame = py::reinterpret_steal<py::object>(
        reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return "";
}

DebugLevel LevelNamed(const std::string& name) {
  if (name == "off") return DebugLevel::kOff;
  if (name == "interception") return DebugLevel::kInterception;
  if (name == "shape_inference") return DebugLevel::kShapeInference;
  if (name == "execution") return DebugLevel::kExecution;
  throw py::value_error(absl::StrCat(
      "debug level \"", name,
      "\": must be interception, shape_inference, execution or off"));
}

constexpr absl::string_view kPhases[] = {
    "unknown",         "forward",         "llm_prefill",       "llm_decode",
    "vision_encoding", "vision_decoding", "multimodal_fusion", "training"};

Phase PhaseNamed(const std::string& name) {
  const auto* const found =
      std::find(std::begin(kPhases), std::end(kPhases), name);
  if (found == std::end(kPhases)) {
    throw py::value_error(absl::StrCat("phase \"", name, "\": must be one of ",
                                       absl::StrJoin(kPhases, ", ")));
  }
  return static_cast<Phase>(found - std::begin(kPhases));
}

}  // namespace

void BindDebug(py::module_& module) {
  module.def("set_debug_level", [](const std::string& level) {
    SetDebugLevel(LevelNamed(level));
  });
  module.def("set_call_sites", &SetCallSites);
  module.def("signal_phase", [](const std::string& phase) {
    const Phase before = SignalPhase(PhaseNamed(phase));
    return std::string(kPhases[static_cast<int>(before)]);
  });
  module.def("set_library_folders", [](std::vector<std::string> folders) {
    library_folders = new std::vector<std::string>(std::move(folders));
    SetCallSiteSource(&ProgramLine);
  });
  module.def("export_graph", [](const py::function& program, int index) {
    absl::StatusOr<std::string> json;
    {
      const py::gil_scoped_release release;
      json = ExportGraph(
          [&program] {
            const py::gil_scoped_acquire acquire;
            program();
          },
          GraphFormat::kJson, index);
    }
    RaiseIfError(json.status());
    return *std::move(json);
  });
  module.def("exchange_module_path", &ExchangeModulePath);
}

}  // namespace djinn::python
