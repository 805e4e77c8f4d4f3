// Holds a fixed number of elements in one allocation and two words.
#ifndef CLIENT_LIB_SESSION_LINEAGE_PACKED_ARRAY_H_
#define CLIENT_LIB_SESSION_LINEAGE_PACKED_ARRAY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"

namespace djinn {

// Not thread-safe. Can be moved; the source of a move may only be assigned to
// or destroyed.
template <typename T>
class PackedArray {
 public:
  PackedArray() = default;
  explicit PackedArray(absl::Span<const T> elements)
      : elements_(elements.empty() ? nullptr : new T[elements.size()]),
        size_(static_cast<uint32_t>(elements.size())) {
    std::copy(elements.begin(), elements.end(), begin());
  }

  T* begin() { return elements_.get(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return elements_.get(); }
  const T* end() const { return begin() + size_; }
  const T& operator[](size_t i) const { return elements_[i]; }
  const T& front() const { return elements_[0]; }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<T[]> elements_;
  uint32_t size_ = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_LINEAGE_PACKED_ARRAY_H_
