// How djinnctl ends.
#ifndef COORDINATOR_CTL_EXIT_STATUS_H_
#define COORDINATOR_CTL_EXIT_STATUS_H_

#include "absl/status/status.h"

namespace djinn::ctl {

inline constexpr int kRefused = 1;
inline constexpr int kWrongCommandLine = 2;
inline constexpr int kUnreachable = 3;

// 0 for OK, kRefused for what a coordinator answered, kUnreachable where none
// did.
int ExitStatus(const absl::Status& status);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_EXIT_STATUS_H_
