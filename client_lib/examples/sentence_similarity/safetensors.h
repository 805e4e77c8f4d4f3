// Reads tensors from a file in the safetensors format.
//
// The format: eight bytes with the header's length (little-endian), the header
// (a JSON object that gives each tensor's element type, shape and place), then
// the tensors' bytes, back to back. Nothing in it is code, so a file from
// anywhere can be read; but it can be damaged or hostile, and so every number
// is checked before it is used.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_SAFETENSORS_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/examples/sentence_similarity/mapped_file.h"

namespace djinn::examples {

// Longest header that is read. A tensor takes about 100 bytes of it, so this is
// room for 100,000 tensors, while a hostile length cannot exhaust the memory.
inline constexpr size_t kMaxSafetensorsHeaderBytes = size_t{16} << 20;

enum class ElementType {
  kBool,
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
};

// Bytes taken by one element.
size_t ElementBytes(ElementType type);

// One tensor as it lies in the file: contiguous, row-major, little-endian.
struct StoredTensor {
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> shape;  // Empty for a single number.
  // Always as long as `type` and `shape` say. Not necessarily aligned to the
  // element size: copy, do not cast and read. Points into the file's bytes.
  absl::Span<const std::byte> bytes;
};

using StoredTensors = std::map<std::string, StoredTensor>;

// Finds the tensors in the bytes of a whole file; the result points into
// `file`. InvalidArgument, with the tensor and the reason, if the file is cut
// short, its header is too long, not JSON, repeats a name or lacks a field, an
// element type is unknown, a shape does not fit its bytes, or the tensors do
// not cover the data exactly once.
absl::StatusOr<StoredTensors> ParseSafetensors(
    absl::Span<const std::byte> file);

// A mapped safetensors file together with its table of tensors.
//
// Immutable after Open(), so safe to share between threads. Everything taken
// from tensors() points into the mapping and dies with this object.
class SafetensorsFile {
 public:
  // The errors of MappedFile::Open() and ParseSafetensors(), with the path.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // By name, in alphabetical order.
  const StoredTensors& tensors() const { return tensors_; }

 private:
  SafetensorsFile(MappedFile file, StoredTensors tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}

  MappedFile file_;
  StoredTensors tensors_;  // Points into file_.
};

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_SAFETENSORS_H_
