#include "client_lib/session/part_reads.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"

namespace djinn {
namespace {

bool IsPartOf(const srg::TensorView& view, const StorageVersion& version) {
  if (version.bytes > PartReads::kMaxBytes || view.conjugate || view.negative) {
    return false;
  }
  const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(view);
  // No elements: whether there are any is the worker's answer.
  return extent.ok() && *extent > 0 && *extent <= version.bytes &&
         !srg::CoversStorage(view, version.bytes);
}

// The elements from this dimension on; returns where the next ones go.
char* CopyFrom(const srg::TensorView& view, size_t dimension, const char* from,
               size_t element_size, char* to) {
  if (dimension == view.sizes.size()) {
    std::memcpy(to, from, element_size);
    return to + element_size;
  }
  for (int64_t i = 0; i < view.sizes[dimension]; ++i) {
    to = CopyFrom(view, dimension + 1, from, element_size, to);
    from += view.strides[dimension] * static_cast<int64_t>(element_size);
  }
  return to;
}

}  // namespace

std::shared_ptr<const ReadWait> PartReads::Find(
    const StorageVersion& version, const srg::TensorView& view) const {
  const auto found =
      std::find_if(kept_.begin(), kept_.end(),
                   [&](const Kept& kept) { return kept.version == version; });
  if (found == kept_.end() || found->whole == nullptr) return nullptr;
  const ReadWait& whole = *found->whole;
  if (!whole.done || !whole.value.has_value() || !IsPartOf(view, version)) {
    return nullptr;
  }
  return found->whole;
}

bool PartReads::OnRead(const StorageVersion& version,
                       const srg::TensorView& view) {
  if (!IsPartOf(view, version)) return false;
  for (const Kept& kept : kept_) {
    // One that is on its way, or failed, is not asked for again.
    if (kept.version == version) return kept.whole == nullptr;
  }
  if (kept_.size() == kMaxKept) kept_.pop_front();
  kept_.push_back({version, nullptr});
  return false;
}

void PartReads::Keep(const StorageVersion& version,
                     std::shared_ptr<const ReadWait> whole) {
  for (Kept& kept : kept_) {
    if (kept.version == version) kept.whole = std::move(whole);
  }
}

void CopyView(const srg::TensorView& view, absl::string_view storage,
              char* destination) {
  const size_t element_size =
      static_cast<size_t>(srg::ElementSize(view.data_type));
  const char* const first =
      storage.data() + view.storage_offset * static_cast<int64_t>(element_size);
  CopyFrom(view, 0, first, element_size, destination);
}

}  // namespace djinn
