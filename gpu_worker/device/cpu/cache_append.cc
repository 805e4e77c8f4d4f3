#include "gpu_worker/device/cpu/cache_append.h"

#include <algorithm>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/strings/string_view.h"

namespace djinn::worker {
namespace {

// Smaller tensors are copied in less time than it takes to think about it.
constexpr uint64_t kMinBytes = 64 << 10;
// Of a tensor, what is appended at most.
constexpr uint64_t kMaxShare = 4;
// Room behind a block: of the block, and appends at least.
constexpr uint64_t kRoomShare = 4;
constexpr uint64_t kMinAppends = 16;

class Room final : public PitchRoom {
 public:
  Room(std::shared_ptr<AppendRooms::Counts> counts, uint64_t bytes,
       std::shared_ptr<void> spare, std::shared_ptr<AppendRecord> record)
      : counts_(std::move(counts)),
        bytes_(bytes),
        spare_(std::move(spare)),
        record_(std::move(record)) {}
  ~Room() override {
    counts_->bytes.fetch_sub(bytes_, std::memory_order_relaxed);
  }

  void Lost() override {
    record_->LostRoom();
    counts_->lost.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  const std::shared_ptr<AppendRooms::Counts> counts_;
  const uint64_t bytes_;
  const std::shared_ptr<void> spare_;
  const std::shared_ptr<AppendRecord> record_;
};

}  // namespace

bool AppendRecord::IsDue() {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  if (lost_.load(kRelaxed) * 4 <= in_place_.load(kRelaxed) + 16) return true;
  if (left_alone_.fetch_add(1, kRelaxed) + 1 < kRest) return false;
  in_place_.store(0, kRelaxed);
  lost_.store(0, kRelaxed);
  left_alone_.store(0, kRelaxed);
  return true;
}

void AppendRooms::SetSpareMemory(SpareMemory* spare) {
  MutexLock lock(&mu_);
  spare_ = spare;
}

std::unique_ptr<PitchRoom> AppendRooms::Reserve(
    const std::string& tenant, uint64_t bytes,
    std::shared_ptr<AppendRecord> record) {
  SpareMemory* spare;
  {
    MutexLock lock(&mu_);
    spare = spare_;
  }
  const uint64_t before =
      counts_->bytes.fetch_add(bytes, std::memory_order_relaxed);
  std::shared_ptr<void> reserved;
  const bool fits = bytes <= max_bytes_ && before <= max_bytes_ - bytes;
  if (fits && spare != nullptr) reserved = spare->Reserve(tenant, bytes);
  if (!fits || (spare != nullptr && reserved == nullptr)) {
    counts_->bytes.fetch_sub(bytes, std::memory_order_relaxed);
    return nullptr;
  }
  return std::make_unique<Room>(counts_, bytes, std::move(reserved),
                                std::move(record));
}

std::optional<CacheAppend> CacheAppend::Match(const c10::FunctionSchema& schema,
                                              const CallTemplate& call) {
  if (schema.name() != "aten::cat" || !schema.overload_name().empty() ||
      call.places.size() != 1 || call.places[0].argument != 0 ||
      !call.unusable.ok() || !call.values[1].isInt()) {
    return std::nullopt;
  }
  const auto* const list =
      std::get_if<TensorListSource>(&call.places[0].source);
  if (list == nullptr || list->entries.size() < 2) return std::nullopt;
  CacheAppend append;
  for (const TensorSource& entry : list->entries) {
    const auto* const operand = std::get_if<Operand>(&entry);
    if (operand == nullptr || operand->view.conjugate ||
        operand->view.negative) {
      return std::nullopt;
    }
    if (append.view_.sizes.empty()) {
      append.grows_ = *operand;
      append.view_ = operand->view;
      if (append.view_.sizes.empty()) return std::nullopt;
    } else {
      append.added_.push_back(*operand);
    }
  }
  srg::TensorView& view = append.view_;
  const auto rank = static_cast<int64_t>(view.sizes.size());
  int64_t dimension = call.values[1].toInt();
  if (dimension < 0) dimension += rank;
  if (dimension < 0 || dimension >= rank || view.storage_offset != 0 ||
      !IsPlainContiguous(view)) {
    return std::nullopt;
  }
  append.dimension_ = static_cast<size_t>(dimension);
  int64_t blocks = 1, step = srg::ElementSize(view.data_type), added = 0;
  for (size_t d = 0; d < view.sizes.size(); ++d) {
    if (view.sizes[d] < 1) return std::nullopt;
    if (d < append.dimension_) blocks *= view.sizes[d];
    if (d > append.dimension_) step *= view.sizes[d];
  }
  for (const Operand& operand : append.added_) {
    const srg::TensorView& other = operand.view;
    if (other.slot == append.grows_.view.slot ||
        other.data_type != view.data_type ||
        other.sizes.size() != view.sizes.size()) {
      return std::nullopt;
    }
    for (size_t d = 0; d < view.sizes.size(); ++d) {
      if (d == append.dimension_) {
        if (other.sizes[d] < 1) return std::nullopt;
        added += other.sizes[d];
      } else if (other.sizes[d] != view.sizes[d]) {
        return std::nullopt;
      }
    }
  }
  append.blocks_ = static_cast<uint64_t>(blocks);
  append.step_bytes_ = static_cast<uint64_t>(step);
  append.block_bytes_ =
      append.step_bytes_ * static_cast<uint64_t>(view.sizes[append.dimension_]);
  append.added_bytes_ = append.step_bytes_ * static_cast<uint64_t>(added);
  if (append.blocks_ * append.block_bytes_ < kMinBytes ||
      append.added_bytes_ > append.block_bytes_ / kMaxShare) {
    return std::nullopt;
  }
  view.slot = 0;
  view.sizes[append.dimension_] += added;
  int64_t dense = 1;
  for (size_t d = view.sizes.size(); d-- > 0;) {
    view.strides[d] = dense;
    dense *= view.sizes[d];
  }
  return append;
}

const TorchBuffer* CacheAppend::Dying(const NodeInput& input) const {
  const uint32_t slot = grows_.view.slot;
  const bool ends =
      std::any_of(input.ends.begin(), input.ends.end(),
                  [slot](const auto& end) { return end.second == slot; });
  if (!ends || slot >= input.slots.size() || !IsSoleOwner(input.slots[slot])) {
    return nullptr;
  }
  const auto* const buffer =
      static_cast<const TorchBuffer*>(input.slots[slot].get());
  return buffer->size_bytes() == blocks_ * block_bytes_ ? buffer : nullptr;
}

bool CacheAppend::Run(const NodeInput& input,
                      const std::shared_ptr<AppendRecord>& record,
                      AppendRooms* rooms,
                      std::vector<NodeResult>* results) const {
  const TorchBuffer* const before = Dying(input);
  if (before == nullptr || !before->appended()) return false;
  for (const Operand& operand : added_) {
    const uint32_t slot = operand.view.slot;
    if (slot >= input.slots.size() || input.slots[slot] == nullptr ||
        operand.extent_bytes > input.slots[slot]->size_bytes()) {
      return false;
    }
  }
  const uint64_t block_bytes = block_bytes_ + added_bytes_;
  std::optional<TorchBuffer::Blocks> blocks = before->Apart();
  std::unique_ptr<PitchRoom> room;
  const bool in_place = blocks.has_value() && blocks->pitch.blocks == blocks_ &&
                        blocks->pitch.block_bytes == block_bytes_ &&
                        blocks->pitch.pitch_bytes >= block_bytes;
  TorchBuffer::Blocks after;
  if (in_place) {
    after = *blocks;
    after.pitch.block_bytes = block_bytes;
    WriteNew(input, after);
    room = before->TakeRoom();
    record->AppendedInPlace();
    rooms->counts().in_place.fetch_add(1, std::memory_order_relaxed);
  } else {
    if (!record->IsDue()) return false;
    static const std::string& kNobody = *new std::string;
    const uint64_t wanted =
        std::max(block_bytes / kRoomShare, added_bytes_ * kMinAppends);
    after.pitch = {blocks_, block_bytes,
                   block_bytes + wanted / step_bytes_ * step_bytes_};
    room = rooms->Reserve(input.tenant != nullptr ? *input.tenant : kNobody,
                          blocks_ * (after.pitch.pitch_bytes - block_bytes),
                          record);
    if (room == nullptr) return false;
    after.storage = UninitialisedStorage(blocks_ * after.pitch.pitch_bytes);
    srg::TensorView old = view_;
    old.sizes[dimension_] = grows_.view.sizes[dimension_];
    MakeTensor(old, after)
        .copy_(blocks.has_value() ? MakeTensor(grows_.view, *blocks)
                                  : MakeTensor(grows_.view, before->storage()));
    WriteNew(input, after);
  }
  auto buffer = std::make_shared<TorchBuffer>(std::move(after.storage),
                                              after.pitch, std::move(room));
  buffer->SetAppended();
  results->push_back({std::move(buffer), view_});
  return true;
}

void CacheAppend::WriteNew(const NodeInput& input,
                           const TorchBuffer::Blocks& to) const {
  srg::TensorView place = view_;
  place.storage_offset =
      grows_.view.sizes[dimension_] * view_.strides[dimension_];
  for (const Operand& operand : added_) {
    const auto& buffer =
        static_cast<const TorchBuffer&>(*input.slots[operand.view.slot]);
    place.sizes[dimension_] = operand.view.sizes[dimension_];
    MakeTensor(place, to).copy_(MakeTensor(operand.view, buffer.storage()));
    place.storage_offset += place.sizes[dimension_] * view_.strides[dimension_];
  }
}

void CacheAppend::Mark(const NodeInput& input,
                       std::vector<NodeResult>* results) const {
  if (results->empty() || Dying(input) == nullptr) return;
  static_cast<TorchBuffer&>(*results->back().buffer).SetAppended();
}

TorchCall::Blocks BlocksTakenBy(const c10::FunctionSchema& schema) {
  const absl::string_view name = schema.name();
  // Multiplies within a head, which is a block, and never across.
  if (name == "aten::scaled_dot_product_attention") {
    return TorchCall::Blocks::kAlways;
  }
  // How matrices that lie apart are multiplied is MKL's choice.
  if (name == "aten::matmul" || name == "aten::bmm") {
    return TorchCall::Blocks::kFast;
  }
  return TorchCall::Blocks::kNever;
}

}  // namespace djinn::worker
