// Describes one operator call on its way from capture into a segment. It
// separates what repeats (the template, as compact bytes) from the values that
// vary (storages, floating-point scalars, scalar tensors).
//
// Two calls of equal shape have equal template bytes, whatever storages and
// values they use, so a comparison of bytes finds a repeated call. The bytes
// never leave the process: if a graph is new, DecodeCall() builds the message
// from them.
//
// Begin() keeps the allocated memory, so that one object can serve many calls.
// Not thread-safe; each thread has its own.
#ifndef CLIENT_LIB_SESSION_MODEL_CALL_H_
#define CLIENT_LIB_SESSION_MODEL_CALL_H_

#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/session/model/remote_storage.h"
#include "common/srg/graph.h"

namespace djinn {

// Describes how a call uses a storage. The flags combine when several operands
// share it.
enum Access : uint8_t {
  kReads = 1,
  // Writes through an argument, keeping or reading what was there.
  kWrites = 2,
  // Writes the whole storage through an argument without reading it.
  kOverwrites = 4,
  // Creates the storage as a result.
  kCreates = 8,
  // Draws from a generator, which reads and writes its state.
  kDraws = 16,
};

// Returns whether a call with this combined access changes the storage's
// version.
inline bool ChangesVersion(uint8_t access) {
  return (access & (kWrites | kOverwrites | kCreates | kDraws)) != 0;
}
// Returns whether the call ignores the storage's contents before it.
inline bool IgnoresContents(uint8_t access) {
  return (access & (kReads | kWrites | kDraws)) == 0;
}

// A storage that a call names, once per call.
struct Touch {
  StoragePtr storage;
  uint8_t access = 0;
  // Version and size before the call; stamped by the device.
  uint64_t base_version = 0;
  uint64_t size_bytes = 0;
};

// A tensor operand as capture sees it.
struct Operand {
  RemoteStorage* storage = nullptr;
  uint8_t access = kReads;
  srg::DataType data_type = srg::DataType::kUnspecified;
  absl::Span<const int64_t> sizes;
  absl::Span<const int64_t> strides;
  int64_t storage_offset = 0;
  bool conjugate = false;
  bool negative = false;
};

// Value of a 0-dimensional CPU tensor.
struct ScalarValue {
  uint8_t size = 0;
  char bytes[16] = {};
};

class Call {
 public:
  // Starts a call of the operator that has number `operator_id` in this process
  // (see operator_table.h).
  void Begin(uint32_t operator_id);

  // These methods add all arguments, in schema order.
  void AddNone();
  void AddTensor(const Operand& operand);
  // Starts a list: the next `count` calls of AddNone(), AddTensor() and
  // AddScalarTensor() add its elements.
  void AddTensorList(size_t count);
  void AddInteger(int64_t value);
  void AddIntegers(absl::Span<const int64_t> values);
  void AddBoolean(bool value);
  void AddBooleans(absl::Span<const uint8_t> values);
  // Adds a floating-point scalar, which becomes a hole.
  void AddReal(double value);
  void AddReals(absl::Span<const double> values);
  void AddComplex(std::complex<double> value);
  void AddText(absl::string_view text);
  // `bytes` points to one element of `data_type`.
  void AddScalarTensor(srg::DataType data_type, bool wrapped_number,
                       const void* bytes);
  void AddGenerator(RemoteStorage* generator);
  void AddDevice();
  void AddScalars(absl::Span<const srg::Scalar> scalars);

  // Declares that the call draws from a generator that is not among its
  // arguments. The caller adds the arguments first.
  void SetImplicitGenerator(RemoteStorage* generator);

  // Adds a newly created result tensor. The caller adds results in order, after
  // the arguments.
  void AddResult(const Operand& result);  // access must be kCreates
  void AddUndefinedResult();
  void AddUnknownResult(RemoteStorage* storage);

  // Sets the call site's number (call_sites.h). Begin() sets it to 0, which
  // means unknown.
  void set_site(uint32_t site) { site_ = site; }

  uint32_t operator_id() const { return operator_id_; }
  uint32_t site() const { return site_; }
  absl::string_view bytes() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  absl::Span<Touch> touches() { return absl::MakeSpan(touches_); }
  absl::Span<const Touch> touches() const { return touches_; }
  absl::Span<const double> floats() const { return floats_; }
  absl::Span<const ScalarValue> scalar_tensors() const {
    return scalar_tensors_;
  }
  uint32_t unknown_results() const { return unknown_results_; }
  // Returns the number of entries of all lists and of results together, as
  // srg::Validate() counts them.
  size_t list_entries() const { return list_entries_; }
  // Returns the bytes of the longest text argument, or 0 if there is none.
  size_t longest_text() const { return longest_text_; }

 private:
  void PutTag(uint8_t tag) { bytes_.push_back(tag); }
  template <typename T>
  void Put(T value) {
    const auto* raw = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
  }
  void PutView(uint8_t tag, const Operand& operand);
  // Returns the storage's index among the call's touches. Adds a touch if the
  // call has none for the storage.
  uint32_t TouchIndex(RemoteStorage* storage, uint8_t access);

  // Adds the count of a list's elements to the template.
  void PutCount(size_t count);

  uint32_t operator_id_ = 0;
  uint32_t unknown_results_ = 0;
  uint32_t site_ = 0;
  std::vector<uint8_t> bytes_;
  std::vector<Touch> touches_;
  // The positions in `touches_`, once they are too many to search.
  absl::flat_hash_map<const RemoteStorage*, uint32_t> touch_of_storage_;
  std::vector<double> floats_;
  std::vector<ScalarValue> scalar_tensors_;
  size_t list_entries_ = 0;
  size_t longest_text_ = 0;
};

// Numbers that DecodeCall() assigns to holes across the calls of one segment.
struct HoleCounters {
  uint32_t floats = 0;
  uint32_t scalar_tensors = 0;
};

// Returns the form of a captured call that a message can carry. `slots[i]` is
// the slot of the call's i-th touch, and `accesses[i]` its combined access. The
// caller numbers operators, and therefore fills in `node.operator_index`.
srg::Node DecodeCall(absl::string_view bytes, absl::Span<const uint32_t> slots,
                     absl::Span<const uint8_t> accesses,
                     HoleCounters* counters);

// Appends the positions in `bytes` of the 64-bit integers that a size hole may
// name, in the order of srg::ForEachInteger() over the node that DecodeCall()
// returns.
void FindIntegers(absl::string_view bytes, std::vector<uint32_t>* positions);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_CALL_H_
