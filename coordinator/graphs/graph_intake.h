// Takes graphs off the streams' threads: one thread checks, stores and analyses
// them. Tenants take turns, graph by graph. The graphs of one tenant are
// handled in the order in which they came.
#ifndef COORDINATOR_GRAPHS_GRAPH_INTAKE_H_
#define COORDINATOR_GRAPHS_GRAPH_INTAKE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "coordinator/graphs/graph_store.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn::coordinator {

// Thread-safe.
class GraphIntake {
 public:
  // Called on the intake's thread with the graph, and its fingerprint or the
  // error.
  using Done =
      std::function<void(const v1::Graph&, const absl::StatusOr<std::string>&)>;

  // `store` must outlive the intake. `max_bytes` bounds the memory of the
  // queued graphs; a parsed message may have many times its encoded bytes. A
  // tenant may use at most as many bytes as it leaves free: half of `max_bytes`
  // when it is alone, a third when another tenant uses all that it may.
  explicit GraphIntake(GraphStore* store,
                       uint64_t max_bytes = uint64_t{256} << 20);
  // Drops the graphs that were not begun, without calling their `done`.
  ~GraphIntake();
  GraphIntake(const GraphIntake&) = delete;
  GraphIntake& operator=(const GraphIntake&) = delete;

  // Queues the graph. Never blocks. Each stream submits one graph and reads its
  // next message only after `done`. Returns ResourceExhausted (GRAPHS_QUEUED),
  // and does not call `done`, when the queue has no room for another graph of
  // the tenant. `program` is what the stream defined before; only the intake
  // uses it.
  absl::Status Submit(std::string tenant, v1::Graph graph, v1::GraphNotes notes,
                      std::shared_ptr<semantics::Program> program, Done done);

 private:
  struct Item {
    v1::Graph graph;
    v1::GraphNotes notes;
    std::shared_ptr<semantics::Program> program;
    Done done;
    uint64_t bytes = 0;
  };

  struct Tenant {
    std::deque<Item> queue;
    // Bytes of the queued graphs, and of the graph that is being handled.
    uint64_t bytes = 0;
  };
  // By tenant; tenants take turns in this order.
  using Tenants = std::map<std::string, Tenant, std::less<>>;

  void Work();

  GraphStore* const store_;
  const uint64_t max_bytes_;
  Mutex mu_;
  CondVar changed_;
  // Tenants that have queued bytes.
  Tenants tenants_ ABSL_GUARDED_BY(mu_);
  // Bytes of all tenants.
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // The tenant that had the last turn.
  std::string last_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_GRAPHS_GRAPH_INTAKE_H_
