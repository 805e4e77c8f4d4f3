// Registers the forward function of a module. djinn/compile.h defines
// registered callables, their requirements, and the comparison before every
// call.
//
//   auto classify = djinn::Compile(net);  // a torch::nn::Linear, or your own
//   auto scores = classify({images})[0];
//
// The result holds a reference to the module. Its calls throw c10::Error if the
// number of arguments does not fit forward(), and otherwise whatever forward()
// throws.
#ifndef CLIENT_LIB_INCLUDE_DJINN_COMPILE_MODULE_H_
#define CLIENT_LIB_INCLUDE_DJINN_COMPILE_MODULE_H_

#include <c10/util/Exception.h>

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "djinn/compile.h"

namespace djinn {
namespace compile_internal {

inline constexpr size_t kMaxArguments = 8;

inline std::vector<at::Tensor> TensorsOf(at::Tensor result) {
  return {std::move(result)};
}
inline std::vector<at::Tensor> TensorsOf(std::vector<at::Tensor> results) {
  return results;
}
template <typename... Results>
std::vector<at::Tensor> TensorsOf(const std::tuple<Results...>& results) {
  std::vector<at::Tensor> tensors;
  const auto append = [&tensors](const auto& result) {
    for (at::Tensor& tensor : TensorsOf(result)) {
      tensors.push_back(std::move(tensor));
    }
  };
  std::apply([&](const auto&... each) { (append(each), ...); }, results);
  return tensors;
}

template <typename Module, size_t... I>
constexpr bool TakesSoMany(std::index_sequence<I...>) {
  return requires(Module& module, const std::vector<at::Tensor>& in) {
    TensorsOf(module.forward(in[I]...));
  };
}

template <typename Module, size_t... I>
std::vector<at::Tensor> ForwardOf(Module& module,
                                  const std::vector<at::Tensor>& in,
                                  std::index_sequence<I...>) {
  return TensorsOf(module.forward(in[I]...));
}

// Calls forward() with as many arguments as `in` has.
template <typename Module, size_t count = 0>
std::vector<at::Tensor> Forward(Module& module,
                                const std::vector<at::Tensor>& in) {
  if constexpr (count > kMaxArguments) {
    TORCH_CHECK(false, "the module's forward takes no ", in.size(), " tensors");
  } else {
    using Indices = std::make_index_sequence<count>;
    if constexpr (TakesSoMany<Module>(Indices())) {
      if (in.size() == count) return ForwardOf(module, in, Indices());
    }
    return Forward<Module, count + 1>(module, in);
  }
}

}  // namespace compile_internal

// Registers the module's forward(), which takes at most eight tensors and
// returns a tensor, a vector of tensors, or a tuple of these. The module is
// inspected before every call, in addition to options.modules.
template <typename Module>
CompiledFunction Compile(std::shared_ptr<Module> module,
                         CompileOptions options = {})
  requires requires { module->is_training(); }
{
  options.modules.push_back(module);
  return CompiledFunction(
      [module = std::move(module)](const std::vector<at::Tensor>& in) {
        return compile_internal::Forward(*module, in);
      },
      std::move(options));
}

// Registers the module of a holder such as torch::nn::Linear.
template <typename Holder>
CompiledFunction Compile(const Holder& holder, CompileOptions options = {})
  requires requires { holder.ptr()->is_training(); }
{
  return Compile(holder.ptr(), std::move(options));
}

// Registers a module as Compile() does. Operators of the cluster see the
// tensors that the function captures as a resident model called `name`.
template <typename Module>
CompiledFunction RegisterModel(std::string name, const Module& module) {
  CompileOptions options;
  options.name = std::move(name);
  return Compile(module, std::move(options));
}

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_COMPILE_MODULE_H_
