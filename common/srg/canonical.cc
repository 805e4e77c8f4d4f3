#include "common/srg/canonical.h"

#include <bit>

#include "common/hash/hash.h"

namespace djinn::srg {
namespace {

constexpr uint64_t kFormatVersion = 1;

class Encoder {
 public:
  std::string Take() && { return std::move(bytes_); }

  void Unsigned(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }
  void Signed(int64_t value) {
    Unsigned((static_cast<uint64_t>(value) << 1) ^
             static_cast<uint64_t>(value >> 63));
  }
  void Real(double value) {
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    for (int shift = 0; shift < 64; shift += 8) {
      bytes_.push_back(static_cast<char>(bits >> shift));
    }
  }
  void Text(const std::string& text) {
    Unsigned(text.size());
    bytes_.append(text);
  }

  void operator()(std::monostate) {}
  void operator()(const TensorView& view) {
    Unsigned(view.slot);
    Unsigned(static_cast<uint64_t>(view.data_type));
    Signeds(view.sizes);
    Signeds(view.strides);
    Signed(view.storage_offset);
    Unsigned((view.conjugate ? 1 : 0) | (view.negative ? 2 : 0));
  }
  void operator()(const ScalarTensor& scalar) {
    Unsigned(scalar.hole);
    Unsigned(static_cast<uint64_t>(scalar.data_type));
    Unsigned(scalar.wrapped_number);
  }
  void operator()(int64_t value) { Signed(value); }
  void operator()(bool value) { Unsigned(value); }
  void operator()(double value) { Real(value); }
  void operator()(const std::complex<double>& value) {
    Real(value.real());
    Real(value.imag());
  }
  void operator()(const std::string& text) { Text(text); }
  void operator()(FloatHole hole) { Unsigned(hole.index); }
  void operator()(GeneratorSlot generator) { Unsigned(generator.slot); }
  void operator()(WorkerDevice) {}
  void operator()(UndefinedResult) {}
  void operator()(UnknownResult unknown) { Unsigned(unknown.slot); }
  void operator()(const std::vector<int64_t>& values) { Signeds(values); }
  void operator()(const std::vector<bool>& values) {
    Unsigned(values.size());
    for (const bool value : values) Unsigned(value);
  }
  void operator()(const std::vector<double>& values) {
    Unsigned(values.size());
    for (const double value : values) Real(value);
  }
  template <typename... Alternatives>
  void operator()(const std::variant<Alternatives...>& value) {
    Unsigned(value.index());
    std::visit(*this, value);
  }
  template <typename... Alternatives>
  void operator()(const std::vector<std::variant<Alternatives...>>& values) {
    Unsigned(values.size());
    for (const auto& value : values) (*this)(value);
  }

  void Indices(const std::vector<uint32_t>& indices) {
    Unsigned(indices.size());
    for (const uint32_t index : indices) Unsigned(index);
  }

 private:
  template <typename List>
  void Signeds(const List& values) {
    Unsigned(values.size());
    for (const int64_t value : values) Signed(value);
  }

  std::string bytes_;
};

}  // namespace

std::string CanonicalEncoding(const Graph& graph) {
  Encoder encoder;
  encoder.Unsigned(kFormatVersion);
  encoder.Unsigned(graph.operators.size());
  for (const Operator& op : graph.operators) {
    encoder.Text(op.name);
    encoder.Text(op.overload);
    encoder.Unsigned(op.schema_hash);
  }
  encoder.Unsigned(graph.slots.size());
  for (const Slot& slot : graph.slots) {
    encoder.Unsigned(static_cast<uint64_t>(slot.kind));
    encoder.Unsigned(slot.created_bytes);
  }
  encoder.Unsigned(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    encoder.Unsigned(node.operator_index);
    encoder(node.arguments);
    encoder(node.results);
    encoder.Indices(node.writes);
    encoder.Indices(node.overwrites);
    // 0 stands for absent, so that slot 0 is distinct from it.
    encoder.Unsigned(node.implicit_generator_slot.has_value()
                         ? uint64_t{1} + *node.implicit_generator_slot
                         : 0);
  }
  encoder.Unsigned(graph.float_hole_count);
  encoder.Unsigned(graph.scalar_tensor_hole_count);
  if (!graph.size_hole.empty()) {
    encoder.Indices(graph.size_hole.integers);
    encoder(graph.size_hole.slopes);
  }
  return std::move(encoder).Take();
}

std::string Fingerprint(const Graph& graph) {
  return Sha256(CanonicalEncoding(graph));
}

}  // namespace djinn::srg
