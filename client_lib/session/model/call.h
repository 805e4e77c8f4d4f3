// One operator call on its way from capture into a segment: the part that
// repeats (the template, as compact bytes) apart from what varies (storages,
// floating-point scalars, scalar tensors).
//
// Two calls of equal shape have equal template bytes, whatever storages and
// values they use, so that a repeat is found by comparing bytes. The bytes
// never leave the process; the wire form is made from them by DecodeCall() when
// a graph is new.
//
// Reused: Begin() keeps the memory. Not thread-safe; each thread has its own.
#ifndef CLIENT_LIB_SESSION_MODEL_CALL_H_
#define CLIENT_LIB_SESSION_MODEL_CALL_H_

#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/session/model/remote_storage.h"
#include "common/srg/graph.h"

namespace djinn {

// How a call uses a storage; combined when several operands share it.
enum Access : uint8_t {
  kReads = 1,
  // Writes through an argument, keeping or reading what was there.
  kWrites = 2,
  // Writes the whole storage through an argument without reading it.
  kOverwrites = 4,
  // A result: the storage is born here.
  kBirth = 8,
  // Draws from a generator: reads and writes its state.
  kDraws = 16,
};

// Whether one call with this combined access changes the storage's version.
inline bool ChangesVersion(uint8_t access) {
  return (access & (kWrites | kOverwrites | kBirth | kDraws)) != 0;
}
// Whether the contents before the call do not matter to it.
inline bool IgnoresContents(uint8_t access) {
  return (access & (kReads | kWrites | kDraws)) == 0;
}

// A storage that a call names, once per call.
struct Touch {
  StoragePtr storage;
  uint8_t access = 0;
  // Version before the call; stamped by the device.
  uint64_t base_version = 0;
};

// A tensor as capture sees it.
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
  // Starts a call of the process' operator number `operator_id` (see
  // operator_table.h).
  void Begin(uint32_t operator_id);

  // The arguments, in schema order, every one.
  void AddNone();
  void AddTensor(const Operand& operand);
  // Then `count` of AddNone / AddTensor / AddScalarTensor.
  void AddTensorList(size_t count);
  void AddInteger(int64_t value);
  void AddIntegers(absl::Span<const int64_t> values);
  void AddBoolean(bool value);
  void AddBooleans(absl::Span<const uint8_t> values);
  // A floating-point scalar: a hole.
  void AddReal(double value);
  void AddReals(absl::Span<const double> values);
  void AddComplex(std::complex<double> value);
  void AddText(absl::string_view text);
  // `bytes` as many as `data_type` has.
  void AddScalarTensor(srg::DataType data_type, bool wrapped_number,
                       const void* bytes);
  void AddGenerator(RemoteStorage* generator);
  void AddDevice();
  void AddScalars(absl::Span<const srg::Scalar> scalars);

  // A draw that no argument shows. After the arguments.
  void SetImplicitGenerator(RemoteStorage* generator);

  // The tensors returned afresh, in order, after the arguments.
  void AddResult(const Operand& result);  // access must be kBirth
  void AddUndefinedResult();
  void AddUnknownResult(RemoteStorage* storage);

  // Where the call was made: see call_sites.h. 0: not known, as after Begin().
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

 private:
  void PutTag(uint8_t tag) { bytes_.push_back(tag); }
  template <typename T>
  void Put(T value) {
    const auto* raw = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
  }
  void PutView(uint8_t tag, const Operand& operand);
  // Index of the storage among the call's touches, adding it if it is new.
  uint32_t TouchIndex(RemoteStorage* storage, uint8_t access);

  uint32_t operator_id_ = 0;
  uint32_t unknown_results_ = 0;
  uint32_t site_ = 0;
  std::vector<uint8_t> bytes_;
  std::vector<Touch> touches_;
  std::vector<double> floats_;
  std::vector<ScalarValue> scalar_tensors_;
};

// Numbers that the decoder hands out across the calls of one segment.
struct HoleCounters {
  uint32_t floats = 0;
  uint32_t scalar_tensors = 0;
};

// The wire-independent form of a call made by this process. `slots[i]` is the
// slot of the call's i-th touch and `accesses[i]` its combined access.
// `node.operator_index` is left to the caller, who numbers operators.
srg::Node DecodeCall(absl::string_view bytes, absl::Span<const uint32_t> slots,
                     absl::Span<const uint8_t> accesses,
                     HoleCounters* counters);

// Appends where in `bytes` the 64-bit integers lie that a size hole may name,
// in the order of srg::ForEachInteger() over the node that DecodeCall() makes.
void FindIntegers(absl::string_view bytes, std::vector<uint32_t>* positions);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_CALL_H_
