// Uses a virtual device whose worker has a fake device, as tests of clusters of
// processes do: uploads floats, runs one operator, reads the result.
#ifndef TESTS_CLUSTER_SESSION_CALLS_H_
#define TESTS_CLUSTER_SESSION_CALLS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/session/remote_session.h"
#include "gtest/gtest.h"
#include "tests/schedules/fake_calls.h"

namespace djinn::cluster_tests {

inline std::shared_ptr<std::string> Floats(const std::vector<float>& values) {
  return std::make_shared<std::string>(
      reinterpret_cast<const char*>(values.data()),
      values.size() * sizeof(float));
}

inline StoragePtr Upload(VirtualDevice& device,
                         const std::vector<float>& values) {
  const auto bytes = Floats(values);
  const StoragePtr storage = device.NewStorage(bytes->size());
  const absl::Status status = device.Upload(0, storage.get(), {*bytes, bytes});
  EXPECT_TRUE(status.ok()) << status;
  return storage;
}

inline int64_t Count(uint64_t bytes) {
  return static_cast<int64_t>(bytes / sizeof(float));
}

// name(x, 1.0) -> result
inline absl::StatusOr<StoragePtr> Apply(VirtualDevice& device,
                                        const std::string& name,
                                        const StoragePtr& x) {
  const StoragePtr result = device.NewStorage(x->size_bytes());
  const int64_t count = Count(x->size_bytes());
  schedules::FakeCall call(name);
  call.Tensor(x.get(), count);
  if (name == "fake::add") call.Real(1.0);
  call.Result(result.get(), count);
  const absl::Status status = device.Record(0, call.get());
  if (!status.ok()) return status;
  return result;
}

inline absl::StatusOr<std::vector<float>> Read(VirtualDevice& device,
                                               const StoragePtr& storage) {
  std::vector<float> values(storage->size_bytes() / sizeof(float));
  const absl::Status status = device.Read(
      0, storage.get(), schedules::FloatView(Count(storage->size_bytes())),
      values.data(), storage->size_bytes());
  if (!status.ok()) return status;
  return values;
}

}  // namespace djinn::cluster_tests

#endif  // TESTS_CLUSTER_SESSION_CALLS_H_
