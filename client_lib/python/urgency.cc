#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/python/bindings.h"

namespace djinn::python {
namespace {

namespace py = pybind11;

constexpr std::pair<const char*, Priority> kPriorities[] = {
    {"default", Priority::kDefault},
    {"batch", Priority::kBatch},
    {"interactive", Priority::kInteractive},
    {"realtime", Priority::kRealtime}};

}  // namespace

Priority PriorityNamed(const std::string& name) {
  for (const auto& [known, priority] : kPriorities) {
    if (name == known) return priority;
  }
  throw py::value_error(
      absl::StrCat("priority \"", name,
                   "\": must be one of default, batch, interactive, realtime"));
}

void BindUrgency(py::module_& module) {
  // Takes the deadline in seconds, or None for no deadline. Returns the
  // previous urgency.
  module.def("set_urgency", [](const std::string& priority,
                               std::optional<double> run_deadline) {
    Urgency urgency;
    urgency.priority = PriorityNamed(priority);
    if (run_deadline.has_value()) {
      urgency.run_deadline = absl::Seconds(*run_deadline);
    }
    const absl::StatusOr<Urgency> before = SetUrgency(urgency);
    RaiseIfError(before.status());
    const auto* const name = std::find_if(
        std::begin(kPriorities), std::end(kPriorities),
        [&](const auto& entry) { return entry.second == before->priority; });
    std::optional<double> deadline;
    if (before->run_deadline != absl::InfiniteDuration()) {
      deadline = absl::ToDoubleSeconds(before->run_deadline);
    }
    return std::make_pair(std::string(name->first), deadline);
  });
}

}  // namespace djinn::python
