#include "coordinator/graphs/graph_intake.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/tenant_order.h"

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

absl::Status GraphIntake::Submit(std::string tenant, v1::Graph graph,
                                 v1::GraphNotes notes,
                                 std::shared_ptr<semantics::Program> program,
                                 Done done) {
  const uint64_t bytes = graph.SpaceUsedLong() + notes.SpaceUsedLong();
  MutexLock lock(&mu_);
  const auto known = tenants_.find(tenant);
  const uint64_t own = known == tenants_.end() ? 0 : known->second.bytes;
  // A tenant with many queued bytes leaves room for a tenant without any.
  if (own + bytes > max_bytes_ - bytes_) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, "GRAPHS_QUEUED",
        absl::StrCat(
            "a graph that takes ", bytes, " bytes: ", bytes_, " of ",
            max_bytes_, " are queued, ", own,
            " of them the tenant's, which may have as much as is free"));
  }
  bytes_ += bytes;
  Tenant& of_tenant = tenants_[std::move(tenant)];
  of_tenant.bytes += bytes;
  of_tenant.queue.push_back({std::move(graph), std::move(notes),
                             std::move(program), std::move(done), bytes});
  changed_.Signal();
  return absl::OkStatus();
}

void GraphIntake::Work() {
  const auto waits = [](const Tenant& tenant) { return !tenant.queue.empty(); };
  for (;;) {
    Item item;
    std::string tenant;
    {
      MutexLock lock(&mu_);
      Tenants::iterator next;
      while ((next = NextInTurn(tenants_, last_, waits)) == tenants_.end() &&
             !stopping_) {
        changed_.Wait(&mu_);
      }
      if (stopping_) return;
      tenant = last_ = next->first;
      item = std::move(next->second.queue.front());
      next->second.queue.pop_front();
    }
    const absl::StatusOr<std::string> added =
        store_->Add(tenant, item.graph, item.notes, item.program.get());
    {
      MutexLock lock(&mu_);
      bytes_ -= item.bytes;
      const auto of_tenant = tenants_.find(tenant);
      of_tenant->second.bytes -= item.bytes;
      if (of_tenant->second.bytes == 0) tenants_.erase(of_tenant);
    }
    item.done(item.graph, added);
  }
}

}  // namespace djinn::coordinator
