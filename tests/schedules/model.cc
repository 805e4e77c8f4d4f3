#include "tests/schedules/model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn::schedules {
namespace {

std::string Unexpected(const absl::Status& status) {
  return absl::StrCat("ended with ", status.ToString());
}

}  // namespace

std::vector<float> Content(int64_t number, int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((number * 7 + i) % 1000);
  }
  return values;
}

bool Model::IsTensor(int storage, int64_t least) const {
  const Storage& s = storages_[storage];
  // Tight memory has no room for a storage's initial zeros, only for uploads.
  return s.live && !s.generator && !s.uncertain && (!tight_ || s.uploaded) &&
         static_cast<int64_t>(s.data.size()) >= least;
}

bool Model::Possible(const Step& step) const {
  switch (step.action) {
    case Action::kNew:
    case Action::kSynchronize:
    case Action::kPlacement:
    case Action::kCheckpoint:
    case Action::kLose:
    case Action::kLoseLease:
    case Action::kRestart:
    case Action::kEndLease:
    case Action::kUnplug:
    case Action::kClose:
      return true;
    case Action::kFill:
      return IsTensor(step.storage, step.offset + step.count);
    case Action::kRead:
      if (step.count == 0) return IsTensor(step.storage, 0);
      return IsTensor(step.storage,
                      step.offset + (step.count - 1) * step.stride + 1);
    case Action::kUpload:
      return storages_[step.storage].live;
    case Action::kAddValue:
    case Action::kFailInPlace:
    case Action::kResize:
      return IsTensor(step.storage, 0);
    case Action::kAddTensor:
      return IsTensor(step.storage, step.count) &&
             IsTensor(step.operand, step.count);
    case Action::kAdd:
      return IsTensor(step.operand, step.count) &&
             IsTensor(step.other, step.count);
    case Action::kAlias:
    case Action::kNonzero:
    case Action::kFail:
    case Action::kThrow:
    case Action::kWrongShape:
    case Action::kRefused:
      return IsTensor(step.operand, step.count);
    case Action::kCopy:
      return IsTensor(step.operand, 1) && count(step.operand) == step.count;
    case Action::kDraw:
      return storages_[step.operand].live && storages_[step.operand].seeded;
    case Action::kSeed:
      return storages_[step.storage].live;
    case Action::kDrop:
      return storages_[step.storage].live;
  }
  return false;
}

int64_t Model::ReadCount(const Step& step) const {
  return step.count != 0 ? step.count : count(step.storage);
}

std::string Model::Apply(int index, const Step& step,
                         const absl::Status& status,
                         const std::vector<float>& values) {
  const std::string complaint = Check(index, step, status, values);
  return complaint.empty()
             ? complaint
             : absl::StrCat("#", index, " ", ToText(step), ": ", complaint);
}

bool Model::Runs(Storage* storage, std::initializer_list<int> operands) {
  for (const int operand : operands) {
    if (storages_[operand].poison == kNoPoison) continue;
    storage->poison = storages_[operand].poison;
    ++skipped_;
    return false;
  }
  ++nodes_;
  return true;
}

void Model::Fails(int index, const Step& step) {
  Storage& storage = At(step.storage);
  const int operand = step.operand >= 0 ? step.operand : step.storage;
  if (!Runs(&storage, {operand})) return;
  --nodes_;
  ++failed_;
  storage.poison = index;
}

std::string Model::Check(int index, const Step& step,
                         const absl::Status& status,
                         const std::vector<float>& values) {
  if (step.action == Action::kRead) return CheckRead(step, status, values);
  if (step.action == Action::kSynchronize) {
    // The call may return the root error of an earlier call, if no step has
    // read the value that the earlier call poisoned.
    const bool root = !ErrorMetadataValue(status, "error_id").empty();
    return status.ok() || root ? "" : Unexpected(status);
  }
  if (step.action == Action::kPlacement || step.action == Action::kCheckpoint ||
      step.action == Action::kLose || step.action == Action::kLoseLease ||
      EndsDevices(step.action)) {
    return status.ok() ? "" : Unexpected(status);
  }
  if (step.action == Action::kUpload && scarce_ &&
      absl::IsResourceExhausted(status)) {
    return "";
  }
  Storage& storage = At(step.storage);
  if (step.action == Action::kNonzero) {
    storage.live = true;
    if (!Runs(&storage, {step.operand})) {
      storage.uncertain = true;
      return CheckError(storage.poison, status);
    }
    if (scarce_ && !status.ok()) {
      storage.uncertain = true;
      return absl::IsResourceExhausted(status) ? "" : Unexpected(status);
    }
  }
  if (!status.ok()) return Unexpected(status);
  return Compute(index, step, values);
}

std::string Model::Compute(int index, const Step& step,
                           const std::vector<float>& values) {
  Storage& storage = At(step.storage);
  const auto operand = [&]() -> Storage& { return At(step.operand); };
  std::vector<float>& data = storage.data;
  const auto create = [&] {
    storage.live = true;
    data.assign(step.count, 0);
  };
  switch (step.action) {
    case Action::kNew:
      create();
      storage.generator = step.count == 0;
      break;
    case Action::kFill: {
      const bool whole = step.offset == 0 && step.count == count(step.storage);
      if (whole && storage.sized) storage.poison = kNoPoison;
      if (!Runs(&storage, {step.storage})) break;
      std::fill_n(data.begin() + step.offset, step.count, step.value);
      break;
    }
    case Action::kAddValue:
      if (!Runs(&storage, {step.storage})) break;
      for (float& value : data) value += step.value;
      break;
    case Action::kAddTensor:
      if (!Runs(&storage, {step.storage, step.operand})) break;
      for (int64_t i = 0; i < step.count; ++i) data[i] += operand().data[i];
      break;
    case Action::kAdd:
      create();
      if (!Runs(&storage, {step.operand, step.other})) break;
      for (int64_t i = 0; i < step.count; ++i) {
        data[i] = operand().data[i] + At(step.other).data[i];
      }
      break;
    case Action::kAlias:
      create();
      if (!Runs(&storage, {step.operand})) break;
      std::copy_n(operand().data.begin(), step.count, data.begin());
      break;
    case Action::kDraw:
      create();
      ++nodes_;
      for (float& value : data) {
        value = static_cast<float>(operand().next_number++);
      }
      break;
    case Action::kNonzero:
      for (int64_t i = 0; i < step.count; ++i) {
        if (operand().data[i] != 0) data.push_back(static_cast<float>(i));
      }
      if (values.size() != data.size()) {
        return absl::StrCat("promised ", values.size(), " values, not ",
                            data.size());
      }
      break;
    case Action::kFail:
    case Action::kThrow:
    case Action::kWrongShape:
      create();
      [[fallthrough]];
    case Action::kFailInPlace:
      Fails(index, step);
      break;
    case Action::kRefused:
      create();
      refused_.insert(index);
      storage.sized = false;
      storage.poison = index;
      break;
    case Action::kSeed:
      storage.seeded = true;
      storage.next_number = step.value;
      break;
    case Action::kUpload:
      data = Content(step.value, count(step.storage));
      storage.poison = kNoPoison;
      storage.uploaded = true;
      storage.sized = true;
      break;
    case Action::kCopy:
      storage.live = true;
      storage.poison = operand().poison;
      data = operand().data;
      break;
    case Action::kResize:
      data.resize(step.count);
      storage.sized = true;
      break;
    case Action::kDrop:
      storage.live = false;
      break;
    default:  // reads, and steps that end devices
      break;
  }
  return "";
}

std::string Model::CheckRead(const Step& step, const absl::Status& status,
                             const std::vector<float>& values) {
  const Storage& storage = At(step.storage);
  if (scarce_ && absl::IsResourceExhausted(status)) return "";
  if (storage.poison != kNoPoison) return CheckError(storage.poison, status);
  if (!status.ok()) return Unexpected(status);
  for (size_t i = 0; i < values.size(); ++i) {
    const float expected = storage.data[step.offset + i * step.stride];
    if (values[i] == expected) continue;
    return absl::StrCat("read ", values[i], ", not ", expected, ", as element ",
                        i, " of ", values.size());
  }
  return "";
}

std::string Model::CheckError(int root, const absl::Status& status) {
  if (status.ok()) {
    return absl::StrCat("ended well although #", root, " failed");
  }
  const std::string id = ErrorMetadataValue(status, "error_id");
  if (id.empty()) return Unexpected(status);
  // If memory is scarce or the graph was refused, the model cannot know which
  // of several errors came first.
  if (scarce_ || recovers_ || refused_.count(root) > 0) return "";
  error_ids_.emplace(root, id);
  for (const auto& [other, other_id] : error_ids_) {
    if ((other == root) != (other_id == id)) {
      return absl::StrCat("error ", id, " of #", root, ", where #", other,
                          " has ", other_id);
    }
  }
  return "";
}

}  // namespace djinn::schedules
