// The Python extension djinn._djinn: binds the public C++ API and converts
// Djinn's errors to Python exceptions. The package's Python files define the
// interface that programs use.
#include <ATen/Context.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/python/bindings.h"
#include "djinn/djinn.h"

namespace djinn {
namespace {

namespace py = pybind11;

// Python passes durations in seconds.
absl::Duration Seconds(double seconds) { return absl::Seconds(seconds); }

void OpenSession(const ConnectOptions& options) {
  absl::Status status;
  {
    const py::gil_scoped_release release;
    status = Connect(options);
  }
  python::RaiseIfError(status);
}

ConnectOptions OptionsFrom(const py::dict& arguments) {
  ConnectOptions options;
  for (const auto& [key, value] : arguments) {
    const std::string name = py::cast<std::string>(key);
    if (name == "coordinator") {
      options.coordinator = py::cast<std::string>(value);
    } else if (name == "token") {
      options.token = py::cast<std::string>(value);
    } else if (name == "token_file") {
      options.token_file = py::cast<std::string>(value);
    } else if (name == "program") {
      options.program = py::cast<std::string>(value);
    } else if (name == "insecure") {
      options.insecure = py::cast<bool>(value);
    } else if (name == "connect_timeout") {
      options.connect_timeout = Seconds(py::cast<double>(value));
    } else if (name == "operation_timeout") {
      options.operation_timeout = Seconds(py::cast<double>(value));
    } else if (name == "resume_timeout") {
      options.resume_timeout = Seconds(py::cast<double>(value));
    } else if (name == "recovery") {
      options.recovery = py::cast<std::string>(value);
    } else if (name == "replay_memory") {
      options.replay_memory = py::cast<uint64_t>(value);
    } else if (name == "replay_disk") {
      options.replay_disk = py::cast<uint64_t>(value);
    } else if (name == "checkpoint_memory") {
      options.checkpoint_memory = py::cast<uint64_t>(value);
    } else if (name == "replay_time") {
      options.replay_time = Seconds(py::cast<double>(value));
    } else if (name == "checkpoint_overhead") {
      options.checkpoint_overhead = py::cast<double>(value);
    } else if (name == "fallback") {
      options.fallback = py::cast<std::string>(value);
    } else if (name == "fallback_after") {
      options.fallback_after = Seconds(py::cast<double>(value));
    } else if (name == "bulk_channels") {
      options.bulk_channels = py::cast<int>(value);
    } else if (name == "priority") {
      options.urgency.priority =
          python::PriorityNamed(py::cast<std::string>(value));
    } else if (name == "run_deadline") {
      options.urgency.run_deadline = Seconds(py::cast<double>(value));
    } else if (name == "placement_policy") {
      options.placement_policy = py::cast<std::string>(value);
    } else if (name == "device_placement_policies") {
      options.device_placement_policies =
          py::cast<std::map<int, std::string>>(value);
    } else if (name == "device_workers") {
      options.device_workers = py::cast<std::map<int, int>>(value);
    } else if (name == "strict_devices") {
      if (!py::isinstance<py::bool_>(value)) {
        options.strict_devices = py::cast<std::string>(value);
      } else if (py::cast<bool>(value)) {
        options.strict_devices = "";
      }
    } else if (name == "tls") {
      const auto tls = py::cast<std::map<std::string, std::string>>(value);
      const auto entry = [&tls](const char* field) {
        const auto found = tls.find(field);
        return found == tls.end() ? std::string() : found->second;
      };
      options.tls = TlsOptions{entry("ca_file"), entry("certificate_file"),
                               entry("private_key_file"), entry("server_name"),
                               entry("worker_server_name")};
    } else {
      throw py::type_error("connect() has no option " + name);
    }
  }
  return options;
}

std::unique_ptr<EmbeddedCluster> StartCluster(
    int workers, uint64_t worker_memory_bytes, int worker_threads,
    std::string worker_device, std::vector<std::string> libraries,
    std::vector<std::string> optional_libraries, double start_timeout) {
  absl::StatusOr<std::unique_ptr<EmbeddedCluster>> cluster;
  {
    const py::gil_scoped_release release;
    cluster = EmbeddedCluster::Start(
        {.workers = workers,
         .worker_memory_bytes = worker_memory_bytes,
         .worker_threads = worker_threads,
         .worker_device = std::move(worker_device),
         .operator_libraries = std::move(libraries),
         .optional_operator_libraries = std::move(optional_libraries),
         .start_timeout = Seconds(start_timeout)});
  }
  python::RaiseIfError(cluster.status());
  return *std::move(cluster);
}

// Destroying a cluster waits for its processes, so this releases the GIL.
struct ReleaseAndDelete {
  void operator()(EmbeddedCluster* cluster) const {
    const py::gil_scoped_release release;
    delete cluster;
  }
};

void BindCluster(py::module_& module) {
  py::class_<EmbeddedCluster,
             std::unique_ptr<EmbeddedCluster, ReleaseAndDelete>>(
      module, "EmbeddedCluster")
      .def("connect",
           [](const EmbeddedCluster& cluster,
              std::map<int, int> device_workers) {
             ConnectOptions options = cluster.connect_options();
             options.device_workers = std::move(device_workers);
             OpenSession(options);
           })
      .def_property_readonly("coordinator",
                             [](const EmbeddedCluster& cluster) {
                               return cluster.connect_options().coordinator;
                             })
      .def_property_readonly("token_file",
                             [](const EmbeddedCluster& cluster) {
                               return cluster.connect_options().token_file;
                             })
      .def_property_readonly("admin_token_file",
                             &EmbeddedCluster::admin_token_file)
      .def_property_readonly("coordinator_pid",
                             &EmbeddedCluster::coordinator_pid)
      .def_property_readonly("worker_pids", &EmbeddedCluster::worker_pids);
  module.def(
      "start_cluster",
      [](int workers, uint64_t worker_memory_bytes, int worker_threads,
         std::string worker_device, std::vector<std::string> libraries,
         std::vector<std::string> optional_libraries, double start_timeout) {
        return std::unique_ptr<EmbeddedCluster, ReleaseAndDelete>(
            StartCluster(workers, worker_memory_bytes, worker_threads,
                         std::move(worker_device), std::move(libraries),
                         std::move(optional_libraries), start_timeout)
                .release());
      });
}

py::dict StatisticsAsDict() {
  const Statistics statistics = GetStatistics();
  py::dict all;
  all["calls"] = statistics.calls;
  all["synchronous_calls"] = statistics.synchronous_calls;
  all["runs"] = statistics.runs;
  all["graphs_defined"] = statistics.graphs_defined;
  all["plan_cache_hits"] = statistics.plan_cache_hits;
  all["reads"] = statistics.reads;
  all["uploads_inline"] = statistics.uploads_inline;
  all["uploads_sent"] = statistics.uploads_sent;
  all["uploads_already_held"] = statistics.uploads_already_held;
  all["uploads_not_kept"] = statistics.uploads_not_kept;
  all["bytes_spilled"] = statistics.bytes_spilled;
  all["reads_answered_here"] = statistics.reads_answered_here;
  all["device_copies"] = statistics.device_copies;
  all["values_rematerialized"] = statistics.values_rematerialized;
  all["bytes_not_fetched"] = statistics.bytes_not_fetched;
  all["fetched_not_repeatable"] = statistics.fetched_not_repeatable;
  all["fetched_other_bits"] = statistics.fetched_other_bits;
  all["fetched_not_measured"] = statistics.fetched_not_measured;
  all["fetched_not_worth_it"] = statistics.fetched_not_worth_it;
  all["bytes_up"] = statistics.bytes_up;
  all["bytes_down"] = statistics.bytes_down;
  all["resumes"] = statistics.resumes;
  all["recoveries"] = statistics.recoveries;
  all["messages_replayed"] = statistics.messages_replayed;
  all["checkpoints"] = statistics.checkpoints;
  all["checkpoint_bytes"] = statistics.checkpoint_bytes;
  all["bytes_resent"] = statistics.bytes_resent;
  all["connections_created"] = statistics.connections_created;
  all["connections_reused"] = statistics.connections_reused;
  all["connections_closed"] = statistics.connections_closed;
  all["connections_failed"] = statistics.connections_failed;
  all["needs_answered"] = statistics.needs_answered;
  all["root_errors"] = statistics.root_errors;
  return all;
}

void BindSession(py::module_& module) {
  module.def("connect", [](const py::kwargs& arguments) {
    OpenSession(OptionsFrom(arguments));
  });
  module.def("close", [](double deadline) {
    absl::Status status;
    {
      const py::gil_scoped_release release;
      status = Close(Seconds(deadline));
    }
    python::RaiseIfError(status);
  });
  module.def("is_connected", &IsConnected);
  module.def("was_forked_from_session", &WasForkedFromSession);
  module.def("set_fast_execution", [](bool fast) {
    SetExecutionMode(fast ? ExecutionMode::kFast : ExecutionMode::kStrict);
  });
  module.def("fast_execution",
             [] { return CurrentExecutionMode() == ExecutionMode::kFast; });
  module.def("update_switches",
             [](bool flushes_denormals) { UpdateSwitches(flushes_denormals); });
  module.def("synchronize", [](int index) {
    absl::Status status;
    {
      const py::gil_scoped_release release;
      status = Synchronize(index);
    }
    python::RaiseIfError(status);
  });
  module.def("checkpoint", [](double timeout) {
    absl::Status status;
    {
      const py::gil_scoped_release release;
      status = Checkpoint(Seconds(timeout));
    }
    python::RaiseIfError(status);
  });
  module.def("where_is", [](int index) {
    absl::StatusOr<Placement> placement;
    {
      const py::gil_scoped_release release;
      placement = WhereIs(index);
    }
    python::RaiseIfError(placement.status());
    return std::make_tuple(placement->worker_id, placement->reason,
                           placement->memory_bytes, placement->transport);
  });
  module.def("statistics", &StatisticsAsDict);
  module.def("synchronous_calls", &SynchronousCalls);
  module.def("root_errors", [] {
    py::list errors;
    for (const absl::Status& status : RootErrors()) {
      errors.append(python::ExceptionOf(Error::FromStatus(status)));
    }
    return errors;
  });
}

void BindDevice(py::module_& module) {
  module.def("is_available", [] {
    return at::globalContext()
        .getAcceleratorHooksInterface(Device().type())
        .isAvailable();
  });
  module.def("device_count", [] {
    return static_cast<int>(at::globalContext()
                                .getAcceleratorHooksInterface(Device().type())
                                .deviceCount());
  });
  module.def("default_generator", [](int index) {
    const at::Generator& generator =
        at::globalContext().defaultGenerator(Device(index));
    return py::reinterpret_steal<py::object>(
        THPGenerator_initDefaultGenerator(generator));
  });
}

}  // namespace

PYBIND11_MODULE(_djinn, module) {
  python::BindErrors(module);
  BindSession(module);
  BindCluster(module);
  BindDevice(module);
  python::BindCompile(module);
  python::BindCost(module);
  python::BindDebug(module);
  python::BindPlaces(module);
  python::BindProfile(module);
  python::BindTrace(module);
  python::BindTransfers(module);
  python::BindUrgency(module);
}

}  // namespace djinn
