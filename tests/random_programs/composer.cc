#include "tests/random_programs/composer.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"

namespace djinn::random_programs {
namespace {

// Slots are never reused, so that a step can be removed.
constexpr int kMaxSlots = 2500;
constexpr size_t kMaxLive = 22;
// Results with more elements are dropped at once.
constexpr int64_t kMaxElements = 8192;
constexpr int kMaxListResults = 8;

bool IsDeviceArgument(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind() == c10::TypeKind::DeviceObjType;
}

// Returns the number of slots for a step's results. A list of results may turn
// out shorter.
int ResultSlots(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kUpload:
    case Step::Kind::kGrad:
      return 1;
    case Step::Kind::kCallable:
      return static_cast<int>(step.callable->outputs.size());
    case Step::Kind::kCall:
      break;
    default:
      return 0;
  }
  int count = 0;
  for (const c10::Argument& returned : step.op->schema().returns()) {
    const c10::AliasInfo* alias = returned.alias_info();
    if (alias != nullptr && alias->isWrite()) continue;
    count += returned.real_type()->kind() == c10::TypeKind::TensorType
                 ? 1
                 : kMaxListResults;
  }
  return count;
}

bool HasTensorOperand(const Step& step) { return !SlotsOf(step).empty(); }

Program NewProgram(uint64_t seed, int lanes) {
  Program program;
  program.seed = seed;
  program.lanes = lanes;
  program.slots = kMaxSlots;
  return program;
}

}  // namespace

Argument DataTypeArgument(at::ScalarType dtype) {
  return c10::IValue(static_cast<int64_t>(dtype));
}

Argument Ints(std::vector<int64_t> values) {
  return c10::IValue(std::move(values));
}

Composer::Composer(uint64_t seed, const Profile& profile)
    : random_(seed),
      profile_(profile),
      program_(NewProgram(seed, profile.lanes)),
      oracle_(program_, profile.failures) {
  program_.slots = 0;
}

Program Composer::Take() && { return std::move(program_); }

int64_t Composer::Int(int64_t low, int64_t high) {
  // Avoids std::uniform_int_distribution, which differs between libraries.
  return low + static_cast<int64_t>(random_() %
                                    static_cast<uint64_t>(high - low + 1));
}

bool Composer::Chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

double Composer::Real() {
  switch (Int(0, 5)) {
    case 0:
      return static_cast<double>(Int(-3, 3));
    case 1:
      return 0.5;
    default:
      return static_cast<double>(Int(-4000, 4000)) / 997.0;
  }
}

std::vector<int64_t> Composer::Sizes() {
  static const std::vector<int> kDims = {0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4};
  std::vector<int64_t> sizes(OneOf(kDims));
  for (int64_t& size : sizes) {
    static const std::vector<int64_t> kSizes = {1, 2, 2, 3, 3, 3, 4, 4, 5, 7};
    size = Chance(0.02) ? 0 : OneOf(kSizes);
  }
  if (sizes.size() == 1 && Chance(0.1)) sizes[0] = Int(16, 300);
  return sizes;
}

at::ScalarType Composer::DataType() {
  static const std::vector<at::ScalarType> kTypes = {
      at::kFloat, at::kFloat, at::kFloat, at::kDouble, at::kBFloat16,
      at::kInt,   at::kLong,  at::kLong,  at::kBool};
  if (Chance(0.04)) {
    static const std::vector<at::ScalarType> kRare = {at::kHalf, at::kByte,
                                                      at::kShort, at::kChar};
    return OneOf(kRare);
  }
  return OneOf(kTypes);
}

at::ScalarType Composer::FloatType() {
  static const std::vector<at::ScalarType> kTypes = {
      at::kFloat, at::kFloat, at::kFloat, at::kDouble, at::kBFloat16};
  return OneOf(kTypes);
}

at::Tensor Composer::Values(at::ScalarType dtype, at::IntArrayRef sizes) {
  const bool special = c10::isFloatingType(dtype) && Chance(0.06);
  at::Tensor values = at::empty(sizes, at::kDouble);
  double* const data = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    if (dtype == at::kBool) {
      data[i] = static_cast<double>(Int(0, 1));
    } else if (!c10::isFloatingType(dtype)) {
      data[i] =
          static_cast<double>(dtype == at::kByte ? Int(0, 200) : Int(-9, 9));
    } else if (special && Chance(0.3)) {
      static const std::vector<double> kSpecial = {
          std::numeric_limits<double>::quiet_NaN(),
          std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity(),
          -0.0,
          1e30,
          1e-40};
      data[i] = OneOf(kSpecial);
    } else {
      data[i] = static_cast<double>(Int(-30000, 30000)) / 9973.0;
    }
  }
  return values.to(dtype);
}

at::Tensor Composer::Indices(int64_t limit, at::IntArrayRef sizes) {
  at::Tensor indices = at::empty(sizes, at::kLong);
  int64_t* const data = indices.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) {
    data[i] = limit > 0 ? Int(0, limit - 1) : 0;
  }
  return indices;
}

std::optional<int> Composer::Pick(const Predicate& fits) {
  if (live_.empty()) return std::nullopt;
  for (int attempt = 0; attempt < 12; ++attempt) {
    // Prefers recent tensors.
    const auto count = static_cast<int64_t>(live_.size());
    const int64_t from = Chance(0.5) ? std::max<int64_t>(0, count - 6) : 0;
    const int slot = live_[Int(from, count - 1)];
    if (tensor(slot).numel() <= kMaxElements && fits(tensor(slot))) return slot;
  }
  return std::nullopt;
}

std::optional<int> Composer::PickAny() {
  return Pick([](const at::Tensor&) { return true; });
}

int Composer::PickFloat() {
  const auto found =
      Pick([](const at::Tensor& t) { return t.is_floating_point(); });
  return found.has_value() ? *found : Upload(Values(FloatType(), Sizes()));
}

Argument Composer::PickPartner(int other) {
  if (Chance(0.15)) return c10::IValue(Values(DataType(), {}));
  return PickSlotPartner(other);
}

Slot Composer::PickSlotPartner(int other) {
  const at::Tensor& first = tensor(other);
  const auto found = Pick([&](const at::Tensor& t) {
    return at::are_expandable(first.sizes(), t.sizes()) || Chance(0.02);
  });
  return Slot{found.value_or(other)};
}

int Composer::Call(const std::string& name, std::vector<Argument> positional,
                   Named named) {
  const auto is_missing = [](const Argument& argument) {
    const auto* const slot = std::get_if<Slot>(&argument);
    return slot != nullptr && slot->index == kNoTensor;
  };
  if (absl::c_any_of(positional, is_missing)) return kNoTensor;
  Step step;
  step.op = FindOperator(name);
  const auto& formals = step.op->schema().arguments();
  for (size_t i = 0; i < formals.size(); ++i) {
    const auto given = named.find(formals[i].name());
    if (i < positional.size()) {
      step.arguments.push_back(std::move(positional[i]));
    } else if (given != named.end()) {
      step.arguments.push_back(std::move(given->second));
    } else if (IsDeviceArgument(formals[i]) && !HasTensorOperand(step)) {
      step.arguments.push_back(ThisDevice{});
    } else {
      step.arguments.push_back(
          formals[i].default_value().value_or(c10::IValue()));
    }
  }
  return Add(std::move(step));
}

int Composer::Upload(const at::Tensor& values) {
  Step step;
  step.kind = Step::Kind::kUpload;
  step.arguments = {c10::IValue(values)};
  return Add(std::move(step));
}

void Composer::Drop(int slot) {
  Step step;
  step.kind = Step::Kind::kDrop;
  step.arguments = {Slot{slot}};
  Add(std::move(step));
  std::erase(live_, slot);
}

int Composer::Add(Step step) {
  const bool uploads = step.kind == Step::Kind::kUpload;
  for (const int slot : AddStep(std::move(step))) {
    if (!alive(slot)) continue;
    if (uploads || tensor(slot).numel() <= kMaxElements) return slot;
  }
  return kNoTensor;
}

std::vector<int> Composer::AddStep(Step step) {
  step.mode = mode_;
  step.lane = lane_;
  const int first = program_.slots;
  const int slots = ResultSlots(step);
  for (int i = 0; i < slots; ++i) step.results.push_back(first + i);
  if (first + std::max(slots, kMaxListResults) > kMaxSlots) return {};
  const Expectation expected = oracle_.Apply(step);
  const bool forgets = !expected.forgotten.empty();
  std::erase_if(live_, [this](int slot) { return !alive(slot); });
  if (expected.outcome == Expectation::Outcome::kSkipped && !forgets) {
    return {};
  }
  const bool done = expected.outcome == Expectation::Outcome::kDone;
  if (!done && !forgets && !Chance(0.3)) return {};
  if (done && expected.results.size() < step.results.size()) {
    step.results.resize(expected.results.size());
  }
  program_.slots += static_cast<int>(step.results.size());
  const std::vector<int> results = step.results;
  const bool uploads = step.kind == Step::Kind::kUpload;
  program_.steps.push_back(std::move(step));
  done_.push_back(done);
  for (const int slot : results) {
    if (!tensor(slot).defined()) continue;
    live_.push_back(slot);
    // Large uploads stay, because they are used through views.
    if (!uploads && tensor(slot).numel() > kMaxElements) Drop(slot);
  }
  return done ? results : std::vector<int>();
}

void Composer::BeginStep() {
  while (live_.size() > kMaxLive) {
    Drop(live_[Int(0, static_cast<int64_t>(live_.size()) - 4)]);
  }
  if (Chance(0.12)) {
    if (mode_ != Mode::kNormal) {
      mode_ = Mode::kNormal;
    } else {
      mode_ = Chance(0.6) ? Mode::kNoGrad : Mode::kInference;
    }
  }
  if (profile_.lanes > 1 && Chance(0.35)) ChangeLane();
}

void Composer::ChangeLane() {
  lane_ = static_cast<int>(Int(0, profile_.lanes - 1));
}

}  // namespace djinn::random_programs
