// Builds calls for tests. The operators exist only by name, and the operands
// are whole storages viewed as bytes.
#ifndef CLIENT_LIB_SESSION_TESTING_CALLS_H_
#define CLIENT_LIB_SESSION_TESTING_CALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/operator_table.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn {

// Returns the number of operator "test::opN". It is the same for the same N.
inline uint32_t TestOperator(int n) {
  static std::vector<uint32_t>* const ids = [] {
    auto* const list = new std::vector<uint32_t>;
    for (int i = 0; i < 1000; ++i) {
      list->push_back(OperatorTable::Global().Add(
          {absl::StrCat("test::op", i), "", static_cast<uint64_t>(i + 1)}));
    }
    return list;
  }();
  return ids->at(n);
}

struct Use {
  StoragePtr storage;
  uint8_t access;
};

// Returns a view of the whole storage as bytes.
inline srg::TensorView WholeView(const RemoteStorage& storage) {
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {static_cast<int64_t>(storage.size_bytes())};
  view.strides = {1};
  return view;
}

// Makes a call with operands first, then draws, then results. Each element of
// `floats` is a scalar argument.
inline Call MakeCallOf(uint32_t operator_id, const std::vector<Use>& uses,
                       const std::vector<double>& floats = {}) {
  Call call;
  call.Begin(operator_id);
  const auto operand = [](const Use& use, auto add) {
    const int64_t size = static_cast<int64_t>(use.storage->size_bytes());
    const int64_t stride = 1;
    Operand out;
    out.storage = use.storage.get();
    out.access = use.access;
    out.data_type = srg::DataType::kUint8;
    out.sizes = absl::MakeConstSpan(&size, 1);
    out.strides = absl::MakeConstSpan(&stride, 1);
    add(out);
  };
  for (const Use& use : uses) {
    if ((use.access & (kCreates | kDraws)) != 0) continue;
    operand(use, [&](const Operand& o) { call.AddTensor(o); });
  }
  for (const double value : floats) call.AddReal(value);
  for (const Use& use : uses) {
    if (use.access == kDraws) call.SetImplicitGenerator(use.storage.get());
  }
  for (const Use& use : uses) {
    if (use.access != kCreates) continue;
    operand(use, [&](const Operand& o) { call.AddResult(o); });
  }
  return call;
}

// Makes a call of TestOperator(op).
inline Call MakeCall(int op, const std::vector<Use>& uses,
                     const std::vector<double>& floats = {}) {
  return MakeCallOf(TestOperator(op), uses, floats);
}

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_CALLS_H_
