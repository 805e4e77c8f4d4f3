#include "djinn/profile.h"

#include <pybind11/stl.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client_lib/python/bindings.h"
#include "djinn/cost.h"

namespace djinn::python {
namespace {

namespace py = pybind11;

py::dict AsDict(const OperatorProfile& op) {
  py::dict row;
  row["name"] = op.name;
  row["mode"] = op.fast ? "fast" : "strict";
  row["way"] = NameOf(op.way);
  row["calls"] = op.calls;
  row["total"] = absl::ToDoubleSeconds(op.total);
  return row;
}

py::dict AsDict(const RequestProfile& request) {
  py::dict stages;
  for (size_t stage = 0; stage < kStageCount; ++stage) {
    stages[NameOf(static_cast<Stage>(stage))] =
        absl::ToDoubleSeconds(request.stages[stage]);
  }
  py::dict row;
  row["device"] = request.device;
  row["thread"] = request.thread;
  row["wall"] = absl::ToDoubleSeconds(request.ended - request.began);
  row["stages"] = std::move(stages);
  return row;
}

template <typename Row>
py::list AsList(const std::vector<Row>& rows) {
  py::list list;
  for (const Row& row : rows) list.append(AsDict(row));
  return list;
}

py::dict AsDict(const ProfileStatistics& statistics) {
  py::dict all;
  all["capture_ms"] = absl::ToDoubleMilliseconds(statistics.capture);
  all["schedule_ms"] = absl::ToDoubleMilliseconds(statistics.schedule);
  all["execution_ms"] = absl::ToDoubleMilliseconds(statistics.execution);
  all["cache_hit_rate"] = statistics.cache_hit_rate;
  return all;
}

}  // namespace

void BindProfile(py::module_& module) {
  py::class_<Profile>(module, "Profile")
      .def_property_readonly(
          "operators",
          [](const Profile& profile) { return AsList(profile.operators); })
      .def_property_readonly(
          "requests",
          [](const Profile& profile) { return AsList(profile.requests); })
      .def_property_readonly(
          "statistics",
          [](const Profile& profile) { return AsDict(profile.statistics); })
      .def_readonly("remarks", &Profile::remarks)
      .def_property_readonly("dropped",
                             [](const Profile& profile) {
                               py::dict all;
                               all["requests"] = profile.dropped_requests;
                               all["runs"] = profile.dropped_runs;
                               all["nodes"] = profile.dropped_nodes;
                               return all;
                             })
      .def("operator_table", &Profile::OperatorTable)
      .def("stage_table", &Profile::StageTable)
      .def("chrome_trace", &Profile::ChromeTrace);
  py::class_<ProfileScope>(module, "ProfileScope")
      .def(py::init([] {
        auto scope = std::make_unique<ProfileScope>();
        RaiseIfError(scope->status());
        return scope;
      }))
      .def("finish", [](ProfileScope& scope) {
        absl::StatusOr<Profile> profile;
        {
          const py::gil_scoped_release release;
          profile = scope.Finish();
        }
        RaiseIfError(profile.status());
        return *std::move(profile);
      });
  module.def("profile_statistics",
             [] { return AsDict(GetProfileStatistics()); });
}

void BindCost(py::module_& module) {
  // These release the GIL, because each may wait for a worker.
  py::class_<CostScope>(module, "CostScope")
      .def(py::init<>(), py::call_guard<py::gil_scoped_release>())
      .def("close", &CostScope::Close, py::call_guard<py::gil_scoped_release>())
      // Returns (seconds, bytes up, bytes down, runs).
      .def("get", [](CostScope& scope) {
        absl::StatusOr<Cost> cost;
        {
          const py::gil_scoped_release release;
          cost = scope.Get();
        }
        RaiseIfError(cost.status());
        return py::make_tuple(absl::ToDoubleSeconds(cost->device_time),
                              cost->bytes_up, cost->bytes_down, cost->runs);
      });
}

}  // namespace djinn::python
