// The semantically rich graph in memory: one segment's operator calls without
// their varying values. It mirrors proto/djinn/v1/srg.proto, where each field
// is explained, and knows neither protobuf nor PyTorch.
//
// Graphs are plain values. A Graph from a peer must not be used until
// Validate() (common/srg/validate.h) accepted it.
#ifndef COMMON_SRG_GRAPH_H_
#define COMMON_SRG_GRAPH_H_

#include <complex>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace djinn::srg {

// The values are c10::ScalarType plus one, as in the .proto. Types of fewer
// than 8 bits fill one byte per element, alone or packed.
enum class DataType : uint8_t {
  kUnspecified = 0,
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kComplex32 = 9,
  kComplex64 = 10,
  kComplex128 = 11,
  kBool = 12,
  kBfloat16 = 16,
  kBits1x8 = 19,
  kBits2x4 = 20,
  kBits4x2 = 21,
  kBits8 = 22,
  kBits16 = 23,
  kFloat8E5m2 = 24,
  kFloat8E4m3fn = 25,
  kFloat8E5m2fnuz = 26,
  kFloat8E4m3fnuz = 27,
  kUint16 = 28,
  kUint32 = 29,
  kUint64 = 30,
  kUint1 = 31,
  kUint2 = 32,
  kUint3 = 33,
  kUint4 = 34,
  kUint5 = 35,
  kUint6 = 36,
  kUint7 = 37,
  kInt1 = 38,
  kInt2 = 39,
  kInt3 = 40,
  kInt4 = 41,
  kInt5 = 42,
  kInt6 = 43,
  kInt7 = 44,
  kFloat8E8m0fnu = 45,
  kFloat4E2m1fnX2 = 46,
};

// Returns the bytes per element; 0 for a value that is not an enumerator.
int64_t ElementSize(DataType type);
// Returns a name such as "float32"; "unknown" for a value that is not an
// enumerator.
absl::string_view DataTypeName(DataType type);

using Dimensions = absl::InlinedVector<int64_t, 6>;

struct TensorView {
  uint32_t slot = 0;
  DataType data_type = DataType::kUnspecified;
  Dimensions sizes;
  Dimensions strides;
  int64_t storage_offset = 0;
  bool conjugate = false;
  bool negative = false;

  friend bool operator==(const TensorView&, const TensorView&) = default;
};

// Returns the number of elements. InvalidArgument on a negative size or
// overflow.
absl::StatusOr<int64_t> ElementCount(const TensorView& view);
// Returns the bytes from the storage's start to the end of the view's last
// element; 0 for a view without elements. InvalidArgument on an unknown dtype,
// negative or mismatched sizes, strides or offset, more than 64 dimensions, or
// an overflow, also of the number of elements.
absl::StatusOr<uint64_t> ExtentBytes(const TensorView& view);
// Returns whether the view covers `storage_bytes` wholly: it starts at 0, all
// elements are distinct, and there are no gaps.
bool CoversStorage(const TensorView& view, uint64_t storage_bytes);
// Returns a text such as "float32[2,3]", for errors.
std::string DescribeView(const TensorView& view);

struct FloatHole {
  uint32_t index = 0;
  friend bool operator==(const FloatHole&, const FloatHole&) = default;
};
struct ScalarTensor {
  uint32_t hole = 0;
  DataType data_type = DataType::kUnspecified;
  bool wrapped_number = false;
  friend bool operator==(const ScalarTensor&, const ScalarTensor&) = default;
};
struct GeneratorSlot {
  uint32_t slot = 0;
  friend bool operator==(const GeneratorSlot&, const GeneratorSlot&) = default;
};
struct WorkerDevice {
  friend bool operator==(const WorkerDevice&, const WorkerDevice&) = default;
};

using Scalar = std::variant<int64_t, bool, double, std::complex<double>>;
using TensorListEntry = std::variant<std::monostate, TensorView, ScalarTensor>;

// Has one alternative per alternative of the .proto's Argument, in the same
// order.
using Argument =
    std::variant<std::monostate, TensorView, std::vector<TensorListEntry>,
                 int64_t, std::vector<int64_t>, bool, std::vector<bool>,
                 FloatHole, std::vector<double>, std::complex<double>,
                 std::string, ScalarTensor, GeneratorSlot, WorkerDevice,
                 std::vector<Scalar>>;

struct UndefinedResult {
  friend bool operator==(const UndefinedResult&,
                         const UndefinedResult&) = default;
};
struct UnknownResult {
  uint32_t slot = 0;
  friend bool operator==(const UnknownResult&, const UnknownResult&) = default;
};
using Result = std::variant<TensorView, UndefinedResult, UnknownResult>;

struct Operator {
  std::string name;
  std::string overload;
  uint64_t schema_hash = 0;

  // Returns "aten::add.Tensor", or "aten::mm" without an overload.
  std::string FullName() const;
  friend bool operator==(const Operator&, const Operator&) = default;
};

struct Slot {
  enum class Kind : uint8_t {
    kUnspecified = 0,
    kBound = 1,
    kCreated = 2,
    kResult = 3,
    kGenerator = 4,
  };
  Kind kind = Kind::kUnspecified;
  uint64_t created_bytes = 0;
  friend bool operator==(const Slot&, const Slot&) = default;
};

struct Node {
  uint32_t operator_index = 0;
  std::vector<Argument> arguments;
  std::vector<Result> results;
  std::vector<uint32_t> writes;
  std::vector<uint32_t> overwrites;
  std::optional<uint32_t> implicit_generator_slot;
  friend bool operator==(const Node&, const Node&) = default;
};

// The integers that vary with one number of a run, by their position in the
// order of ForEachInteger(), and their slopes.
struct SizeHole {
  std::vector<uint32_t> integers;  // ascending
  std::vector<int64_t> slopes;

  bool empty() const { return integers.empty(); }
  friend bool operator==(const SizeHole&, const SizeHole&) = default;
};

struct Graph {
  std::vector<Operator> operators;
  std::vector<Slot> slots;
  std::vector<Node> nodes;
  uint32_t float_hole_count = 0;
  uint32_t scalar_tensor_hole_count = 0;
  SizeHole size_hole;
  friend bool operator==(const Graph&, const Graph&) = default;
};

// Calls `visit(const TensorView&)` for each operand of the node, in order,
// lists included; results are not operands.
template <typename Visitor>
void ForEachOperand(const Node& node, Visitor&& visit) {
  for (const Argument& argument : node.arguments) {
    if (const auto* view = std::get_if<TensorView>(&argument)) {
      visit(*view);
    } else if (const auto* list =
                   std::get_if<std::vector<TensorListEntry>>(&argument)) {
      for (const TensorListEntry& entry : *list) {
        if (const auto* element = std::get_if<TensorView>(&entry)) {
          visit(*element);
        }
      }
    }
  }
}

}  // namespace djinn::srg

#endif  // COMMON_SRG_GRAPH_H_
