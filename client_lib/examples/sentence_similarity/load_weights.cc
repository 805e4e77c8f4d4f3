#include "client_lib/examples/sentence_similarity/load_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace djinn::examples {
namespace {

// More names than this do not help anyone to find out what is wrong.
constexpr size_t kMaxNamesShown = 4;

at::ScalarType ScalarTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kBool:
      return at::kBool;
    case ElementType::kUint8:
      return at::kByte;
    case ElementType::kInt8:
      return at::kChar;
    case ElementType::kInt16:
      return at::kShort;
    case ElementType::kInt32:
      return at::kInt;
    case ElementType::kInt64:
      return at::kLong;
    case ElementType::kFloat16:
      return at::kHalf;
    case ElementType::kBfloat16:
      return at::kBFloat16;
    case ElementType::kFloat32:
      return at::kFloat;
    case ElementType::kFloat64:
      return at::kDouble;
  }
  return at::ScalarType::Undefined;
}

std::map<std::string, at::Tensor> TensorsByName(torch::nn::Module& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.emplace(item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) {
    tensors.emplace(item.key(), item.value());
  }
  return tensors;
}

// The names in `some` that are not in `others`.
template <typename Some, typename Others>
std::vector<std::string> NamesNotIn(const Some& some, const Others& others) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : some) {
    if (!others.contains(name)) names.push_back(name);
  }
  return names;
}

std::string Shown(const std::vector<std::string>& names) {
  const size_t count = std::min(names.size(), kMaxNamesShown);
  return absl::StrCat(
      absl::StrJoin(absl::MakeConstSpan(names).first(count), ", "),
      names.size() > count
          ? absl::StrCat(" and ", names.size() - count, " more")
          : "");
}

std::string Description(at::ScalarType type, absl::Span<const int64_t> sizes) {
  return absl::StrCat(c10::toString(type), "[", absl::StrJoin(sizes, ", "),
                      "]");
}

absl::Status CheckFits(const std::string& name, const StoredTensor& stored,
                       const at::Tensor& wanted) {
  const absl::Span<const int64_t> sizes(wanted.sizes().data(),
                                        wanted.sizes().size());
  const at::ScalarType type = ScalarTypeOf(stored.type);
  if (type == wanted.scalar_type() &&
      absl::MakeConstSpan(stored.shape) == sizes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", name, "\" is ", Description(type, stored.shape),
                   " in the file, the model needs ",
                   Description(wanted.scalar_type(), sizes)));
}

}  // namespace

absl::Status LoadWeights(const SafetensorsFile& file,
                         torch::nn::Module& module) {
  const std::map<std::string, at::Tensor> wanted = TensorsByName(module);
  const StoredTensors& stored = file.tensors();
  if (const auto missing = NamesNotIn(wanted, stored); !missing.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file lacks ", missing.size(),
                     " tensor(s) of the model: ", Shown(missing)));
  }
  if (const auto unexpected = NamesNotIn(stored, wanted); !unexpected.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model does not know ", unexpected.size(),
                     " tensor(s) of the file: ", Shown(unexpected)));
  }
  for (const auto& [name, tensor] : wanted) {
    if (absl::Status status = CheckFits(name, stored.at(name), tensor);
        !status.ok()) {
      return status;
    }
  }
  for (const auto& [name, tensor] : wanted) {
    // Plain bytes, since the file's may lie at any address. A module makes its
    // tensors itself, so they are contiguous.
    TORCH_CHECK(tensor.is_contiguous() && tensor.is_cpu());
    const auto& bytes = stored.at(name).bytes;
    if (bytes.empty()) continue;
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  }
  return absl::OkStatus();
}

}  // namespace djinn::examples
