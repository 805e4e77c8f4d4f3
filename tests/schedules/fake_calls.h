// Builds calls of the fake device's operators, which a session captures.
// gpu_worker/device/fake/fake_device.h describes the operators.
#ifndef TESTS_SCHEDULES_FAKE_CALLS_H_
#define TESTS_SCHEDULES_FAKE_CALLS_H_

#include <cstdint>
#include <string>

#include "client_lib/session/model/call.h"
#include "common/srg/graph.h"

namespace djinn::schedules {

// Returns a view of `count` floats of the storage, from `offset` on.
srg::TensorView FloatView(int64_t count, int64_t offset = 0,
                          int64_t stride = 1);

class FakeCall {
 public:
  explicit FakeCall(const std::string& name);

  FakeCall& Tensor(RemoteStorage* storage, int64_t count,
                   uint8_t access = kReads, int64_t offset = 0);
  FakeCall& Integer(int64_t value);
  FakeCall& Real(double value);
  FakeCall& Generator(RemoteStorage* storage);
  FakeCall& Result(RemoteStorage* storage, int64_t count);
  FakeCall& UnknownResult(RemoteStorage* storage);

  Call* get() { return &call_; }

 private:
  Call call_;
};

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_FAKE_CALLS_H_
