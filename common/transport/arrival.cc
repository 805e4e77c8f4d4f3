#include "common/transport/arrival.h"

namespace djinn {

std::atomic<int> Arrival::measuring_{0};
thread_local std::optional<absl::Duration> Arrival::last_;

}  // namespace djinn
