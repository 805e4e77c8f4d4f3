// Shows the configuration that is in force, with where each value comes from.
#ifndef COMMON_CONFIG_EFFECTIVE_CONFIG_H_
#define COMMON_CONFIG_EFFECTIVE_CONFIG_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/config_reader.h"

namespace djinn {

// Returns the file at `path` as YAML, each value with the line that it comes
// from, followed in each map by the other keys that `configure` asks for, as
// comments with their defaults. A limit or choice that is absent has none,
// which no value would say:
//
//   listen: 127.0.0.1:7070  # worker.yaml:1
//   device:  # worker.yaml:2
//     kind: cpu  # worker.yaml:3
//     # threads: 0  # default
//   # credits:
//   #   device_time:  # not set
//
// The text is itself a file with the same meaning. It has no secret: the
// configuration names files of tokens and keys, which are shown as their paths
// and not read. `configure` is called with the file, and then to learn its
// keys. Returns the error of the first call.
absl::StatusOr<std::string> EffectiveConfig(
    const std::string& path,
    const std::function<absl::Status(ConfigReader)>& configure);

}  // namespace djinn

#endif  // COMMON_CONFIG_EFFECTIVE_CONFIG_H_
