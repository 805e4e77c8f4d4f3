#include "client_lib/callable/module_watch.h"

#include <torch/nn/modules.h>

#include <typeindex>
#include <unordered_map>
#include <utility>

namespace djinn::capture {
namespace {

using torch::nn::Module;

// The limit on unused modules in the table. Expired modules are removed when
// there are more.
constexpr size_t kMaxUnused = 64;

// Gives access to a module's parameters without copying the parameters and
// their names. A derived class may access its base's protected members.
struct Parameters : Module {
  static const torch::OrderedDict<std::string, at::Tensor>& Of(
      const Module& module) {
    return module.*(&Parameters::parameters_);
  }
};

template <typename T>
void Put(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Visits the tensors that the layer's class has.
template <typename Layer>
void VisitLayer(const Module& module, std::vector<const at::Tensor*>* found) {
  const auto& layer = static_cast<const Layer&>(module);
  if constexpr (requires { layer.weight; }) found->push_back(&layer.weight);
  if constexpr (requires { layer.bias; }) found->push_back(&layer.bias);
  if constexpr (requires { layer.pos_weight; })
    found->push_back(&layer.pos_weight);
  if constexpr (requires { layer.running_mean; })
    found->push_back(&layer.running_mean);
  if constexpr (requires { layer.running_var; })
    found->push_back(&layer.running_var);
  if constexpr (requires { layer.num_batches_tracked; })
    found->push_back(&layer.num_batches_tracked);
  if constexpr (requires { layer.weight_ih; })
    found->push_back(&layer.weight_ih);
  if constexpr (requires { layer.weight_hh; })
    found->push_back(&layer.weight_hh);
  if constexpr (requires { layer.bias_ih; }) found->push_back(&layer.bias_ih);
  if constexpr (requires { layer.bias_hh; }) found->push_back(&layer.bias_hh);
  if constexpr (requires { layer.in_proj_weight; })
    found->push_back(&layer.in_proj_weight);
  if constexpr (requires { layer.in_proj_bias; })
    found->push_back(&layer.in_proj_bias);
  if constexpr (requires { layer.q_proj_weight; })
    found->push_back(&layer.q_proj_weight);
  if constexpr (requires { layer.k_proj_weight; })
    found->push_back(&layer.k_proj_weight);
  if constexpr (requires { layer.v_proj_weight; })
    found->push_back(&layer.v_proj_weight);
  if constexpr (requires { layer.bias_k; }) found->push_back(&layer.bias_k);
  if constexpr (requires { layer.bias_v; }) found->push_back(&layer.bias_v);
}

using Visit = void (*)(const Module&, std::vector<const at::Tensor*>*);

template <typename... Layers>
std::unordered_map<std::type_index, Visit> TableOf() {
  return {{typeid(Layers), &VisitLayer<Layers>}...};
}

// Returns null for a class that is not one of PyTorch's layers.
Visit VisitOf(const Module& module) {
  namespace nn = torch::nn;
  static const auto* const table = new std::unordered_map<std::type_index,
                                                          Visit>(
      TableOf<nn::LinearImpl, nn::BilinearImpl, nn::Conv1dImpl, nn::Conv2dImpl,
              nn::Conv3dImpl, nn::ConvTranspose1dImpl, nn::ConvTranspose2dImpl,
              nn::ConvTranspose3dImpl, nn::EmbeddingImpl, nn::EmbeddingBagImpl,
              nn::LayerNormImpl, nn::GroupNormImpl, nn::BatchNorm1dImpl,
              nn::BatchNorm2dImpl, nn::BatchNorm3dImpl, nn::InstanceNorm1dImpl,
              nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl, nn::PReLUImpl,
              nn::RNNCellImpl, nn::LSTMCellImpl, nn::GRUCellImpl,
              nn::MultiheadAttentionImpl, nn::NLLLossImpl,
              nn::CrossEntropyLossImpl, nn::BCEWithLogitsLossImpl>());
  const auto found = table->find(typeid(module));
  return found == table->end() ? nullptr : found->second;
}

}  // namespace

ModuleWatch::ModuleWatch(Modules modules) : modules_(std::move(modules)) {
  for (const std::shared_ptr<Module>& module : modules_) {
    TORCH_CHECK(module != nullptr, "CompileOptions::modules has a null module");
  }
}

void ModuleWatch::Inspect(std::vector<at::Tensor>* tensors, std::string* key) {
  MutexLock lock(&mu_);
  if (known_.size() > seen_ + kMaxUnused) {
    absl::erase_if(known_, [](const auto& entry) {
      return entry.second.module.expired();
    });
  }
  seen_ = 0;
  for (const std::shared_ptr<Module>& module : modules_) {
    InspectModule(module, tensors, key);
  }
}

void ModuleWatch::InspectModule(const std::shared_ptr<Module>& module,
                                std::vector<at::Tensor>* tensors,
                                std::string* key) {
  ++seen_;
  const Known& known = Find(module);
  Put(known.number, key);
  Put(module->is_training(), key);
  const size_t first = tensors->size();
  for (const auto& parameter : Parameters::Of(*module)) {
    tensors->push_back(parameter.value());
  }
  Put(static_cast<uint32_t>(tensors->size() - first), key);
  for (at::Tensor& buffer : module->buffers(/*recurse=*/false)) {
    tensors->push_back(std::move(buffer));
  }
  const size_t registered = tensors->size();
  if (known.visit != nullptr) {
    members_.clear();
    known.visit(*module, &members_);
    // A member may be a registered tensor, another tensor, or undefined.
    for (const at::Tensor* const member : members_) {
      size_t same = first;
      while (same < registered && !(*tensors)[same].is_same(*member)) ++same;
      Put(static_cast<uint32_t>(same - first), key);
      if (same == registered) tensors->push_back(*member);
    }
  }
  Put(static_cast<uint32_t>(tensors->size() - first), key);
  const std::vector<std::shared_ptr<Module>> children = module->children();
  Put(static_cast<uint32_t>(children.size()), key);
  for (const std::shared_ptr<Module>& child : children) {
    if (child == nullptr) {
      Put(uint64_t{0}, key);
    } else {
      InspectModule(child, tensors, key);
    }
  }
}

const ModuleWatch::Known& ModuleWatch::Find(
    const std::shared_ptr<Module>& module) {
  Known& known = known_[module.get()];
  if (known.number == 0 || known.module.expired()) {
    known = {module, ++last_number_, VisitOf(*module)};
  }
  return known;
}

}  // namespace djinn::capture
