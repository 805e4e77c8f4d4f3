#include "client_lib/session/recording/segment.h"

#include <xxhash.h>

#include <algorithm>
#include <iterator>

namespace djinn {
namespace {

// A cleared segment that is larger than this frees its memory.
constexpr size_t kKeptBytes = 256 << 10;

// Moves the elements from `begin` onwards to the end of `to`.
template <typename T>
void MoveFrom(std::vector<T>* from, size_t begin, std::vector<T>* to) {
  to->insert(to->end(), std::make_move_iterator(from->begin() + begin),
             std::make_move_iterator(from->end()));
  from->resize(begin);
}

}  // namespace

void Segment::Open(uint32_t lane, uint64_t serial, size_t cap) {
  lane_ = lane;
  serial_ = serial;
  cap_ = cap;
}

void Segment::Append(Call* call) {
  const absl::string_view bytes = call->bytes();
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  for (Touch& touch : call->touches()) touches_.push_back(std::move(touch));
  floats_.insert(floats_.end(), call->floats().begin(), call->floats().end());
  scalar_tensors_.insert(scalar_tensors_.end(), call->scalar_tensors().begin(),
                         call->scalar_tensors().end());
  calls_.push_back(
      {XXH3_64bits_withSeed(bytes.data(), bytes.size(), call->operator_id()),
       call->operator_id(), static_cast<uint32_t>(bytes_.size()),
       static_cast<uint32_t>(touches_.size()),
       static_cast<uint32_t>(floats_.size()),
       static_cast<uint32_t>(scalar_tensors_.size()), call->site()});
}

bool Segment::RepeatsItsStart() const {
  const size_t count = calls_.size();
  if (count < kMinCallsBeforeRepeat + kRepeatCalls) return false;
  // Compares the last call first, which almost always decides.
  for (size_t i = kRepeatCalls; i-- > 0;) {
    if (calls_[i].hash != calls_[count - kRepeatCalls + i].hash) return false;
  }
  return true;
}

void Segment::MoveTail(size_t calls, Segment* next) {
  const size_t kept = calls_.size() - calls;
  const Mark end = kept == 0 ? Mark{} : calls_[kept - 1];
  MoveFrom(&calls_, kept, &next->calls_);
  for (Mark& mark : next->calls_) {
    mark.bytes_end -= end.bytes_end;
    mark.touches_end -= end.touches_end;
    mark.floats_end -= end.floats_end;
    mark.scalar_tensors_end -= end.scalar_tensors_end;
  }
  MoveFrom(&bytes_, end.bytes_end, &next->bytes_);
  MoveFrom(&touches_, end.touches_end, &next->touches_);
  MoveFrom(&floats_, end.floats_end, &next->floats_);
  MoveFrom(&scalar_tensors_, end.scalar_tensors_end, &next->scalar_tensors_);
  const auto first = std::lower_bound(
      creations_.begin(), creations_.end(), end.touches_end,
      [](const Creation& c, uint32_t touch) { return c.touch < touch; });
  MoveFrom(&creations_, first - creations_.begin(), &next->creations_);
  for (Creation& creation : next->creations_) {
    creation.touch -= end.touches_end;
  }
}

void Segment::Clear() {
  // Leaves serial_ unchanged, because issuing threads still compare it.
  const bool large = footprint_bytes() > kKeptBytes;
  wants_metadata = false;
  calls_.clear();
  bytes_.clear();
  touches_.clear();
  creations_.clear();
  floats_.clear();
  scalar_tensors_.clear();
  if (!large) return;
  std::vector<Mark>().swap(calls_);
  std::vector<uint8_t>().swap(bytes_);
  std::vector<Touch>().swap(touches_);
  std::vector<Creation>().swap(creations_);
  std::vector<double>().swap(floats_);
  std::vector<ScalarValue>().swap(scalar_tensors_);
}

}  // namespace djinn
