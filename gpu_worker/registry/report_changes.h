// Reduces a complete report to what has changed since the last one of a stream.
#ifndef GPU_WORKER_REGISTRY_REPORT_CHANGES_H_
#define GPU_WORKER_REGISTRY_REPORT_CHANGES_H_

#include <cstdint>
#include <map>
#include <string>

#include "common/hash/hash.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::worker {

// Reduces one stream's reports, in their order. Remembers a hash of each
// lease's entry. Not thread-safe.
class ReportChanges {
 public:
  // Reduces `report`, which lists everything. The first call marks it as
  // complete and leaves the rest as it is. Later calls remove the leases that
  // have not changed, and name those that are gone.
  void Reduce(v1::WorkerState* report);

 private:
  struct Entry {
    ContentHash hash;
    // The last report that listed the content.
    uint64_t report = 0;
  };
  // The entries by lease id.
  using Entries = std::map<std::string, Entry>;

  // Removes unchanged messages from `all`. Adds the ids of entries that are no
  // longer in it to `gone`.
  template <typename Message>
  void Reduce(google::protobuf::RepeatedPtrField<Message>* all,
              google::protobuf::RepeatedPtrField<std::string>* gone,
              Entries* entries);

  uint64_t reports_ = 0;
  Entries sessions_;
  Entries ended_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_REGISTRY_REPORT_CHANGES_H_
