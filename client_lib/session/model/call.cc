#include "client_lib/session/model/call.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/base/optimization.h"

namespace djinn {
namespace {

// A call with more storages finds them in a map.
constexpr size_t kMostSearched = 64;

// First byte of every argument and result.
enum Tag : uint8_t {
  kNone,
  kTensor,
  kTensorList,
  kInteger,
  kIntegers,
  kBoolean,
  kBooleans,
  kFloatHole,
  kReals,
  kComplex,
  kText,
  kScalarTensor,
  kGenerator,
  kDevice,
  kScalars,
  kImplicitGenerator,
  kResult,
  kUndefinedResult,
  kUnknownResult,
};

class Reader {
 public:
  explicit Reader(absl::string_view bytes)
      : begin_(bytes.data()), bytes_(bytes) {}

  bool AtEnd() const { return bytes_.empty(); }
  uint32_t position() const {
    return static_cast<uint32_t>(bytes_.data() - begin_);
  }
  void Skip(size_t bytes) { bytes_.remove_prefix(bytes); }
  Tag Next() { return static_cast<Tag>(Get<uint8_t>()); }
  template <typename T>
  T Get() {
    assert(bytes_.size() >= sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return value;
  }
  std::string Text() {
    const uint32_t size = Get<uint32_t>();
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }

 private:
  const char* const begin_;
  absl::string_view bytes_;
};

class IntegerFinder {
 public:
  IntegerFinder(absl::string_view bytes, std::vector<uint32_t>* positions)
      : reader_(bytes), positions_(positions) {}

  void Run() {
    while (!reader_.AtEnd()) Visit(reader_.Next());
  }

 private:
  void Visit(Tag tag) {
    switch (tag) {
      case kTensor:
      case kResult:
        return View();
      case kTensorList:
        for (uint32_t count = reader_.Get<uint32_t>(); count > 0; --count) {
          Visit(reader_.Next());
        }
        return;
      case kInteger:
        return Integers(1);
      case kIntegers:
        return Integers(reader_.Get<uint32_t>());
      case kScalars:
        for (uint32_t count = reader_.Get<uint32_t>(); count > 0; --count) {
          Scalar();
        }
        return;
      case kBoolean:
        return reader_.Skip(1);
      case kBooleans:
        return reader_.Skip(reader_.Get<uint32_t>());
      case kText:
        return reader_.Skip(reader_.Get<uint32_t>());
      case kReals:
        return reader_.Skip(reader_.Get<uint32_t>() * sizeof(double));
      case kComplex:
        return reader_.Skip(2 * sizeof(double));
      case kScalarTensor:
        return reader_.Skip(2);
      case kGenerator:
      case kImplicitGenerator:
      case kUnknownResult:
        return reader_.Skip(sizeof(uint32_t));
      case kNone:
      case kFloatHole:
      case kDevice:
      case kUndefinedResult:
        return;
    }
  }

  void View() {
    // Touch, data type and flags.
    reader_.Skip(sizeof(uint32_t) + 2);
    const size_t dimensions = reader_.Get<uint8_t>();
    Integers(1 + 2 * dimensions);
  }

  void Scalar() {
    switch (reader_.Get<uint8_t>()) {
      case 0:
        return Integers(1);
      case 1:
        return reader_.Skip(1);
      case 2:
        return reader_.Skip(sizeof(double));
      default:
        return reader_.Skip(2 * sizeof(double));
    }
  }

  void Integers(size_t count) {
    for (; count > 0; --count) {
      positions_->push_back(reader_.position());
      reader_.Skip(sizeof(int64_t));
    }
  }

  Reader reader_;
  std::vector<uint32_t>* const positions_;
};

class Decoder {
 public:
  Decoder(absl::string_view bytes, absl::Span<const uint32_t> slots,
          HoleCounters* counters)
      : reader_(bytes), slots_(slots), counters_(counters) {}

  void Run(srg::Node* node) {
    while (!reader_.AtEnd()) {
      const Tag tag = reader_.Next();
      switch (tag) {
        case kImplicitGenerator:
          node->implicit_generator_slot = Slot();
          break;
        case kResult:
          node->results.emplace_back(View());
          break;
        case kUndefinedResult:
          node->results.emplace_back(srg::UndefinedResult{});
          break;
        case kUnknownResult:
          node->results.emplace_back(srg::UnknownResult{Slot()});
          break;
        default:
          node->arguments.push_back(DecodeArgument(tag));
      }
    }
  }

 private:
  uint32_t Slot() { return slots_[reader_.Get<uint32_t>()]; }

  srg::TensorView View() {
    srg::TensorView view;
    view.slot = Slot();
    view.data_type = static_cast<srg::DataType>(reader_.Get<uint8_t>());
    const uint8_t flags = reader_.Get<uint8_t>();
    view.conjugate = (flags & 1) != 0;
    view.negative = (flags & 2) != 0;
    const uint8_t dimensions = reader_.Get<uint8_t>();
    view.storage_offset = reader_.Get<int64_t>();
    view.sizes.resize(dimensions);
    view.strides.resize(dimensions);
    for (int64_t& size : view.sizes) size = reader_.Get<int64_t>();
    for (int64_t& stride : view.strides) stride = reader_.Get<int64_t>();
    return view;
  }

  srg::ScalarTensor ScalarTensor() {
    srg::ScalarTensor scalar;
    scalar.data_type = static_cast<srg::DataType>(reader_.Get<uint8_t>());
    scalar.wrapped_number = reader_.Get<uint8_t>() != 0;
    scalar.hole = counters_->scalar_tensors++;
    return scalar;
  }

  std::complex<double> Complex() {
    const double real = reader_.Get<double>();
    return {real, reader_.Get<double>()};
  }

  srg::Argument DecodeArgument(Tag tag) {
    switch (tag) {
      case kTensor:
        return View();
      case kTensorList: {
        std::vector<srg::TensorListEntry> entries(reader_.Get<uint32_t>());
        for (srg::TensorListEntry& entry : entries) {
          switch (reader_.Next()) {
            case kTensor:
              entry = View();
              break;
            case kScalarTensor:
              entry = ScalarTensor();
              break;
            default:
              break;
          }
        }
        return entries;
      }
      case kInteger:
        return reader_.Get<int64_t>();
      case kIntegers: {
        std::vector<int64_t> values(reader_.Get<uint32_t>());
        for (int64_t& value : values) value = reader_.Get<int64_t>();
        return values;
      }
      case kBoolean:
        return reader_.Get<uint8_t>() != 0;
      case kBooleans: {
        std::vector<bool> values(reader_.Get<uint32_t>());
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = reader_.Get<uint8_t>() != 0;
        }
        return values;
      }
      case kFloatHole:
        return srg::FloatHole{counters_->floats++};
      case kReals: {
        std::vector<double> values(reader_.Get<uint32_t>());
        for (double& value : values) value = reader_.Get<double>();
        return values;
      }
      case kComplex:
        return Complex();
      case kText:
        return reader_.Text();
      case kScalarTensor:
        return ScalarTensor();
      case kGenerator:
        return srg::GeneratorSlot{Slot()};
      case kDevice:
        return srg::WorkerDevice{};
      case kScalars: {
        std::vector<srg::Scalar> scalars(reader_.Get<uint32_t>());
        for (srg::Scalar& scalar : scalars) {
          switch (reader_.Get<uint8_t>()) {
            case 0:
              scalar = reader_.Get<int64_t>();
              break;
            case 1:
              scalar = reader_.Get<uint8_t>() != 0;
              break;
            case 2:
              scalar = reader_.Get<double>();
              break;
            default:
              scalar = Complex();
          }
        }
        return scalars;
      }
      default:
        return std::monostate();
    }
  }

  Reader reader_;
  const absl::Span<const uint32_t> slots_;
  HoleCounters* const counters_;
};

}  // namespace

void Call::Begin(uint32_t operator_id) {
  operator_id_ = operator_id;
  unknown_results_ = 0;
  site_ = 0;
  bytes_.clear();
  touches_.clear();
  if (!touch_of_storage_.empty()) touch_of_storage_.clear();
  floats_.clear();
  scalar_tensors_.clear();
  list_entries_ = 0;
  longest_text_ = 0;
}

void Call::AddNone() { PutTag(kNone); }

void Call::AddTensor(const Operand& operand) { PutView(kTensor, operand); }

void Call::AddTensorList(size_t count) {
  PutTag(kTensorList);
  PutCount(count);
}

void Call::AddInteger(int64_t value) {
  PutTag(kInteger);
  Put(value);
}

void Call::AddIntegers(absl::Span<const int64_t> values) {
  PutTag(kIntegers);
  PutCount(values.size());
  for (const int64_t value : values) Put(value);
}

void Call::AddBoolean(bool value) {
  PutTag(kBoolean);
  Put(static_cast<uint8_t>(value));
}

void Call::AddBooleans(absl::Span<const uint8_t> values) {
  PutTag(kBooleans);
  PutCount(values.size());
  for (const uint8_t value : values) Put(value);
}

void Call::AddReal(double value) {
  PutTag(kFloatHole);
  floats_.push_back(value);
}

void Call::AddReals(absl::Span<const double> values) {
  PutTag(kReals);
  PutCount(values.size());
  for (const double value : values) Put(value);
}

void Call::AddComplex(std::complex<double> value) {
  PutTag(kComplex);
  Put(value.real());
  Put(value.imag());
}

void Call::AddText(absl::string_view text) {
  PutTag(kText);
  longest_text_ = std::max(longest_text_, text.size());
  Put(static_cast<uint32_t>(text.size()));
  bytes_.insert(bytes_.end(), text.begin(), text.end());
}

void Call::AddScalarTensor(srg::DataType data_type, bool wrapped_number,
                           const void* bytes) {
  PutTag(kScalarTensor);
  Put(static_cast<uint8_t>(data_type));
  Put(static_cast<uint8_t>(wrapped_number));
  ScalarValue& value = scalar_tensors_.emplace_back();
  value.size = static_cast<uint8_t>(srg::ElementSize(data_type));
  std::memcpy(value.bytes, bytes, value.size);
}

void Call::AddGenerator(RemoteStorage* generator) {
  PutTag(kGenerator);
  Put(TouchIndex(generator, kDraws));
}

void Call::AddDevice() { PutTag(kDevice); }

void Call::AddScalars(absl::Span<const srg::Scalar> scalars) {
  PutTag(kScalars);
  PutCount(scalars.size());
  for (const srg::Scalar& scalar : scalars) {
    Put(static_cast<uint8_t>(scalar.index()));
    if (const auto* integer = std::get_if<int64_t>(&scalar)) {
      Put(*integer);
    } else if (const auto* boolean = std::get_if<bool>(&scalar)) {
      Put(static_cast<uint8_t>(*boolean));
    } else if (const auto* real = std::get_if<double>(&scalar)) {
      Put(*real);
    } else {
      const auto& value = std::get<std::complex<double>>(scalar);
      Put(value.real());
      Put(value.imag());
    }
  }
}

void Call::SetImplicitGenerator(RemoteStorage* generator) {
  PutTag(kImplicitGenerator);
  Put(TouchIndex(generator, kDraws));
}

void Call::AddResult(const Operand& result) {
  assert(result.access == kCreates);
  ++list_entries_;
  PutView(kResult, result);
}

void Call::AddUndefinedResult() {
  ++list_entries_;
  PutTag(kUndefinedResult);
}

void Call::AddUnknownResult(RemoteStorage* storage) {
  PutTag(kUnknownResult);
  Put(TouchIndex(storage, kCreates));
  ++unknown_results_;
  ++list_entries_;
}

void Call::PutCount(size_t count) {
  list_entries_ += count;
  Put(static_cast<uint32_t>(count));
}

void Call::PutView(uint8_t tag, const Operand& operand) {
  const size_t dimensions = operand.sizes.size();
  // The buffer grows once for the whole view, because this is the hottest line
  // of capture.
  const size_t start = bytes_.size();
  const size_t size = 1 + sizeof(uint32_t) + 3 + sizeof(int64_t) +
                      2 * dimensions * sizeof(int64_t);
  const uint32_t touch = TouchIndex(operand.storage, operand.access);
  bytes_.resize(start + size);
  uint8_t* out = bytes_.data() + start;
  *out++ = tag;
  std::memcpy(out, &touch, sizeof(touch));
  out += sizeof(touch);
  *out++ = static_cast<uint8_t>(operand.data_type);
  *out++ = static_cast<uint8_t>((operand.conjugate ? 1 : 0) |
                                (operand.negative ? 2 : 0));
  *out++ = static_cast<uint8_t>(dimensions);
  std::memcpy(out, &operand.storage_offset, sizeof(int64_t));
  out += sizeof(int64_t);
  if (dimensions > 0) {
    std::memcpy(out, operand.sizes.data(), dimensions * sizeof(int64_t));
    out += dimensions * sizeof(int64_t);
    std::memcpy(out, operand.strides.data(), dimensions * sizeof(int64_t));
  }
}

uint32_t Call::TouchIndex(RemoteStorage* storage, uint8_t access) {
  const auto next = static_cast<uint32_t>(touches_.size());
  uint32_t index = 0;
  if (ABSL_PREDICT_TRUE(next <= kMostSearched)) {
    while (index < next && touches_[index].storage.get() != storage) ++index;
  } else {
    if (touch_of_storage_.empty()) {
      for (; index < next; ++index) {
        touch_of_storage_.emplace(touches_[index].storage.get(), index);
      }
    }
    index = touch_of_storage_.try_emplace(storage, next).first->second;
  }
  if (index == next) {
    touches_.push_back({StoragePtr(storage), access});
  } else {
    touches_[index].access |= access;
  }
  return index;
}

srg::Node DecodeCall(absl::string_view bytes, absl::Span<const uint32_t> slots,
                     absl::Span<const uint8_t> accesses,
                     HoleCounters* counters) {
  srg::Node node;
  Decoder(bytes, slots, counters).Run(&node);
  for (size_t i = 0; i < slots.size(); ++i) {
    if ((accesses[i] & (kWrites | kOverwrites)) == 0) continue;
    node.writes.push_back(slots[i]);
    if ((accesses[i] & kOverwrites) != 0 && IgnoresContents(accesses[i])) {
      node.overwrites.push_back(slots[i]);
    }
  }
  std::sort(node.writes.begin(), node.writes.end());
  std::sort(node.overwrites.begin(), node.overwrites.end());
  return node;
}

void FindIntegers(absl::string_view bytes, std::vector<uint32_t>* positions) {
  IntegerFinder(bytes, positions).Run();
}

}  // namespace djinn
