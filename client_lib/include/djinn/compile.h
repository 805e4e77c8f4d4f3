// Registered callables: a function is captured once, and from then on its calls
// are carried out as a whole, as one or two messages, without its code running.
//
//   djinn::CompiledFunction step(
//       [&](const std::vector<at::Tensor>& in) {
//         optimizer.zero_grad();
//         auto loss = torch::cross_entropy_loss(net->forward(in[0]), in[1]);
//         loss.backward();
//         optimizer.step();
//         return std::vector<at::Tensor>{loss.detach()};
//       },
//       {.parameters = net->parameters()});
//   float loss = step({inputs, labels})[0].item<float>();
//
// The function must do nothing but call operators on one virtual device, which
// ones must depend on its arguments' metadata alone, and its other inputs must
// be tensors that are there before and after. What is seen to break this is
// refused, with a reason, and the function is called as ever: a value that is
// read or sent, a shape that depends on data, a tensor of this process that
// an operator reads or writes, a tensor that was made and stays (other than a
// parameter's gradient), a result that autograd still needs. It is carried out
// without being called only once two calls in succession were captured alike,
// and as long as nothing of this changed: sizes, strides, offsets, dtypes,
// which arguments share memory, requires_grad, the parameters, whether they
// have gradients, gradient and inference mode, autocast, default dtype. Numbers
// that the function takes from elsewhere, as a learning rate, cannot be seen:
// CompileOptions::key tells of them.
//
// What the function keeps using counts on the worker as a model, before the
// first call that is carried out without being called. Where the tenant's
// budget of models has no room for it, the function is called as ever, and the
// refusal says so.
#ifndef CLIENT_LIB_INCLUDE_DJINN_COMPILE_H_
#define CLIENT_LIB_INCLUDE_DJINN_COMPILE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "djinn/api.h"

namespace djinn {

struct CompileStatistics {
  // Calls that were carried out without calling the function.
  uint64_t replays = 0;
  // Calls that were captured, to be registered or compared.
  uint64_t captures = 0;
  // Why the last call that could not be registered could not; empty when every
  // one could.
  std::string refusal;
};

// What CompiledFunction and bindings to other languages are made of.
// Thread-safe; a capture belongs to the thread that began it.
class DJINN_API RegisteredCallable {
 public:
  // Beyond so many different calls those used least recently are forgotten,
  // where they together take more than so many bytes, or are too many.
  static constexpr size_t kMinRecordings = 64;
  static constexpr size_t kMaxRecordings = 4096;
  static constexpr size_t kMaxBytes = 64 << 20;

  // `name` is for operators, who see what the callable keeps using under it.
  explicit RegisteredCallable(std::string name = "");
  ~RegisteredCallable();
  RegisteredCallable(const RegisteredCallable&) = delete;
  RegisteredCallable& operator=(const RegisteredCallable&) = delete;

  struct Result {
    // As End() returned it for the call that is repeated.
    uint64_t recording = 0;
    std::vector<at::Tensor> outputs;
  };

  // Carries the call out if one like it is registered. Throws as any call on
  // the device does.
  std::optional<Result> Replay(const std::string& key,
                               const std::vector<at::Tensor>& arguments,
                               const std::vector<at::Tensor>& parameters);

  // Captures what this thread does from here on. False: there is no use, or
  // something is being captured already; the function is to be called as ever.
  bool Begin(const std::string& key, const std::vector<at::Tensor>& arguments,
             const std::vector<at::Tensor>& parameters);
  // Ends it. Not 0: names the recording, with which `outputs` go.
  uint64_t End(const std::vector<at::Tensor>& outputs);
  // Ends it without a result: the function threw.
  void Abandon();

  CompileStatistics statistics() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

struct CompileOptions {
  // Tensors that the function uses besides its arguments: a call is captured
  // anew when they are others. Their gradients may be replaced.
  std::vector<at::Tensor> parameters;
  // Calls of one key are alike. Called before every call.
  std::function<std::string()> key;
  // For operators, who see under it what the function keeps using on a worker.
  std::string name;
};

class DJINN_API CompiledFunction {
 public:
  using Function =
      std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

  explicit CompiledFunction(Function function, CompileOptions options = {});

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& arguments);

  CompileStatistics statistics() const { return callable_.statistics(); }

 private:
  const Function function_;
  const CompileOptions options_;
  RegisteredCallable callable_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_COMPILE_H_
