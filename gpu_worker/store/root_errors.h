// Makes a session's root errors: gives each an id, records where it happened,
// and keeps the new ones until they are sent to the client.
//
// Not thread-safe: the thread that executes the session owns it.
#ifndef GPU_WORKER_STORE_ROOT_ERRORS_H_
#define GPU_WORKER_STORE_ROOT_ERRORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/random.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class RootErrors {
 public:
  struct Place {
    uint64_t sequence = 0;
    std::optional<uint32_t> node;
    std::string operator_name;
    std::string operands;
  };

  RootErrors(std::string worker_id, std::string tenant, RandomSource* random)
      : worker_id_(std::move(worker_id)),
        tenant_(std::move(tenant)),
        random_(random) {}

  // Makes an error that a reply carries itself.
  RootError Make(const absl::Status& status, Place place);
  // Makes an error that poisons storages; TakeNew() lists it as well.
  RootError MakePoison(const absl::Status& status, Place place);

  // Makes TakeNew() list an error that Make() returned.
  void List(RootError error) { new_.push_back(std::move(error)); }

  // Sets the lane that issued the messages executed from now on.
  void set_lane(uint32_t lane) { lane_ = lane; }

  // Returns the poisons made since the last call, oldest first.
  std::vector<RootError> TakeNew() { return std::exchange(new_, {}); }
  // Returns the oldest poison that TakeNew() has not returned; null when there
  // is none.
  RootError oldest_new() const { return new_.empty() ? nullptr : new_.front(); }
  uint64_t count() const { return count_; }

 private:
  const std::string worker_id_;
  const std::string tenant_;
  RandomSource* const random_;
  std::vector<RootError> new_;
  uint64_t count_ = 0;
  uint32_t lane_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_ROOT_ERRORS_H_
