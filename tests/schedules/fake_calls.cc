#include "tests/schedules/fake_calls.h"

#include <map>

#include "client_lib/session/model/operator_table.h"
#include "common/base/mutex.h"
#include "gpu_worker/device/fake/fake_device.h"

namespace djinn::schedules {
namespace {

uint32_t OperatorId(const std::string& name) {
  static Mutex* const mu = new Mutex;
  static auto* const ids = new std::map<std::string, uint32_t>;
  MutexLock lock(mu);
  const auto [found, is_new] = ids->emplace(name, 0);
  if (is_new) {
    found->second =
        OperatorTable::Global().Add({name, "", worker::kFakeSchemaHash});
  }
  return found->second;
}

template <typename Use>
void WithOperand(RemoteStorage* storage, int64_t count, uint8_t access,
                 int64_t offset, Use use) {
  const int64_t stride = 1;
  Operand operand;
  operand.storage = storage;
  operand.access = access;
  operand.data_type = srg::DataType::kFloat32;
  operand.sizes = absl::MakeConstSpan(&count, 1);
  operand.strides = absl::MakeConstSpan(&stride, 1);
  operand.storage_offset = offset;
  use(operand);
}

}  // namespace

srg::TensorView FloatView(int64_t count, int64_t offset, int64_t stride) {
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  view.sizes = {count};
  view.strides = {stride};
  view.storage_offset = offset;
  return view;
}

FakeCall::FakeCall(const std::string& name) { call_.Begin(OperatorId(name)); }

FakeCall& FakeCall::Tensor(RemoteStorage* storage, int64_t count,
                           uint8_t access, int64_t offset) {
  WithOperand(storage, count, access, offset,
              [this](const Operand& operand) { call_.AddTensor(operand); });
  return *this;
}

FakeCall& FakeCall::Integer(int64_t value) {
  call_.AddInteger(value);
  return *this;
}

FakeCall& FakeCall::Real(double value) {
  call_.AddReal(value);
  return *this;
}

FakeCall& FakeCall::Generator(RemoteStorage* storage) {
  call_.SetImplicitGenerator(storage);
  return *this;
}

FakeCall& FakeCall::Result(RemoteStorage* storage, int64_t count) {
  WithOperand(storage, count, kCreates, 0,
              [this](const Operand& operand) { call_.AddResult(operand); });
  return *this;
}

FakeCall& FakeCall::UnknownResult(RemoteStorage* storage) {
  call_.AddUnknownResult(storage);
  return *this;
}

}  // namespace djinn::schedules
