#include "coordinator/graph_intake.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"

namespace djinn::coordinator {

GraphIntake::GraphIntake(GraphStore* store, uint64_t max_bytes)
    : store_(store), max_bytes_(max_bytes), thread_([this] { Work(); }) {}

GraphIntake::~GraphIntake() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

absl::Status GraphIntake::Submit(std::string tenant, v1::Structure structure,
                                 v1::StructureNotes notes,
                                 std::shared_ptr<semantics::Program> program,
                                 Done done) {
  const uint64_t bytes = structure.SpaceUsedLong() + notes.SpaceUsedLong();
  MutexLock lock(&mu_);
  if (bytes > max_bytes_ - bytes_) {
    return MakeError(absl::StatusCode::kResourceExhausted, "STRUCTURES_QUEUED",
                     absl::StrCat("a structure that takes ", bytes, " bytes: ",
                                  bytes_, " of ", max_bytes_, " are queued"));
  }
  bytes_ += bytes;
  queue_.push_back({std::move(tenant), std::move(structure), std::move(notes),
                    std::move(program), std::move(done), bytes});
  changed_.Signal();
  return absl::OkStatus();
}

void GraphIntake::Work() {
  for (;;) {
    Item item;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    const absl::StatusOr<std::string> added = store_->Add(
        item.tenant, item.structure, item.notes, item.program.get());
    {
      MutexLock lock(&mu_);
      bytes_ -= item.bytes;
    }
    item.done(item.structure, added);
  }
}

}  // namespace djinn::coordinator
