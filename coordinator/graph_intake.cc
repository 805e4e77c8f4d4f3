#include "coordinator/graph_intake.h"

#include <utility>

namespace djinn::coordinator {

GraphIntake::GraphIntake(GraphStore* store)
    : store_(store), thread_([this] { Work(); }) {}

GraphIntake::~GraphIntake() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void GraphIntake::Submit(v1::Structure structure, v1::StructureNotes notes,
                         std::shared_ptr<semantics::Program> program,
                         Done done) {
  MutexLock lock(&mu_);
  queue_.push_back({std::move(structure), std::move(notes), std::move(program),
                    std::move(done)});
  changed_.Signal();
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
    item.done(store_->Add(item.structure, item.notes, item.program.get()));
  }
}

}  // namespace djinn::coordinator
