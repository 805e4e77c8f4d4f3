// Meter: what the session's lease has used, for the program that asks.
#include <utility>

#include "gpu_worker/session/session.h"

namespace djinn::worker {

// Steps are charged when they are over, and this one has charged nothing yet:
// so it is what the messages before this one took.
void Session::HandleMeter(uint64_t sequence) {
  v1::ControlResponse response;
  v1::Metered* const metered = response.mutable_metered();
  metered->set_sequence(sequence);
  *metered->mutable_use() = UseSoFar();
  Reply(std::move(response));
}

v1::MeteredUse Session::UseSoFar() const {
  v1::MeteredUse use;
  use.set_device_nanoseconds(static_cast<uint64_t>(
      absl::ToInt64Nanoseconds(meter_->device_time())));
  use.set_received_bytes(traffic_.bytes(Traffic::kMessagesIn) +
                         traffic_.bytes(Traffic::kBulkIn));
  use.set_sent_bytes(traffic_.bytes(Traffic::kMessagesOut) +
                     traffic_.bytes(Traffic::kBulkOut));
  use.set_runs(runs_done_);
  return use;
}

}  // namespace djinn::worker
