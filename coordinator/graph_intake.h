// Takes structures off the streams' threads: one thread checks, stores and
// analyses them in the order they came.
#ifndef COORDINATOR_GRAPH_INTAKE_H_
#define COORDINATOR_GRAPH_INTAKE_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "coordinator/graph_store.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn::coordinator {

// Thread-safe.
class GraphIntake {
 public:
  // Called on the intake's thread with the fingerprint or what was wrong.
  using Done = std::function<void(const absl::StatusOr<std::string>&)>;

  // `store` must outlive the intake.
  explicit GraphIntake(GraphStore* store);
  // Drops what was not begun, without calling its `done`.
  ~GraphIntake();
  GraphIntake(const GraphIntake&) = delete;
  GraphIntake& operator=(const GraphIntake&) = delete;

  // Never blocks. The queue is bounded by its callers: each stream submits one
  // structure and reads its next message only after `done`.
  // `program` is what the stream defined before; only the intake uses it.
  void Submit(v1::Structure structure, v1::StructureNotes notes,
              std::shared_ptr<semantics::Program> program, Done done);

 private:
  struct Item {
    v1::Structure structure;
    v1::StructureNotes notes;
    std::shared_ptr<semantics::Program> program;
    Done done;
  };

  void Work();

  GraphStore* const store_;
  Mutex mu_;
  CondVar changed_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_GRAPH_INTAKE_H_
