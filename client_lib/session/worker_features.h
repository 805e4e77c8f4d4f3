// What a worker's build takes, as its hello says. An older one takes less.
#ifndef CLIENT_LIB_SESSION_WORKER_FEATURES_H_
#define CLIENT_LIB_SESSION_WORKER_FEATURES_H_

#include "absl/algorithm/container.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

struct WorkerFeatures {
  bool profiles = false;
  bool migrations = false;
  bool meters = false;
  bool models = false;
  // Uploads that are announced without their hash.
  bool late_hashes = false;
  // Several runs of one structure, to be repeated.
  bool places = false;
  // Uploads that come inside their message, unasked.
  bool contents = false;

  static WorkerFeatures Of(const v1::WorkerHello& hello) {
    const auto has = [&](v1::WorkerFeature feature) {
      return absl::c_linear_search(hello.features(), feature);
    };
    return {.profiles = has(v1::WORKER_FEATURE_PROFILE),
            .migrations = has(v1::WORKER_FEATURE_MIGRATE),
            .meters = has(v1::WORKER_FEATURE_METER),
            .models = has(v1::WORKER_FEATURE_MODELS),
            .late_hashes = has(v1::WORKER_FEATURE_LATE_HASH),
            .places = has(v1::WORKER_FEATURE_PLACES),
            .contents = has(v1::WORKER_FEATURE_CONTENT)};
  }
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_WORKER_FEATURES_H_
