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
//       {.modules = {net.ptr()}});
//   float loss = step({inputs, labels})[0].item<float>();
//
// djinn/compile_module.h has the short form for a module's forward alone.
//
// The function must do nothing but call operators on one virtual device, which
// ones must depend on its arguments' metadata alone, and its other inputs must
// be tensors that are there before and after. What is seen to break this is
// refused, with a reason, and the function is called as ever: a value that is
// read or sent, a shape that depends on data, a tensor of this process that
// an operator reads or writes, a tensor that was made and stays (other than a
// parameter's gradient), a result that autograd still needs, an argument that
// is given other memory, another gradient or hooks, a generator on a device, or
// PyTorch's own of this process, that is seeded or set to another state than it
// has. It is carried out
// without being called only once two calls in succession were captured alike,
// and as long as nothing of this changed, which is looked at before every call:
//
// - of the arguments: how many, sizes, strides, offsets, dtypes, requires_grad,
//   the same of their gradients, which of them share memory or are one of the
//   tensors below;
// - of CompileOptions::modules and all their submodules: which objects they
//   are, is_training(), which tensors their registered parameters and buffers
//   are, and the members of PyTorch's own layers, such as Linear's weight;
// - of these tensors, and those of CompileOptions::parameters and
//   read_parameters: which they are, what is said above of arguments, and in
//   which memory they are; their gradients may be others each time;
// - of the thread: gradient and inference mode, autocast, default dtype, the
//   settings that choose operators, and what CompileOptions::key returns.
//
// What values are in these tensors does not matter: they are read when the call
// is carried out. All else the function takes from elsewhere cannot be seen
// here, and must be told by `key`, or be left as it is: numbers and flags, as a
// learning rate, a Dropout's probability or other options of a module; members
// of the program's own module classes that are no registered parameter, buffer
// or submodule, or are not what is registered any more; which way the function
// goes. A tensor that the function starts to use instead is seen, and refused,
// while it is captured only: name it by `read_parameters`.
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

#include "absl/status/status.h"
#include "djinn/api.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

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
  // `unasked`: calls since the last Begin() for which it was not called.
  bool Begin(const std::string& key, const std::vector<at::Tensor>& arguments,
             const std::vector<at::Tensor>& parameters,
             uint64_t skipped_calls = 0);
  // Ends it. Not 0: names the recording, with which `outputs` go.
  uint64_t End(const std::vector<at::Tensor>& outputs);
  // Ends it without a result: the function threw, or, with a refusal, did what
  // cannot be repeated.
  void Abandon(const std::string& refusal = "");

  // Forgets every recording, and what came to nothing: calls are captured anew.
  // Calls that other threads make meanwhile may still be carried out.
  void Forget();

  // Which recordings are not forgotten: no others are going to be found.
  std::vector<uint64_t> Recordings() const;
  CompileStatistics statistics() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

struct CompileOptions {
  // Modules that the function uses, with all their submodules; not null. They
  // are looked through before every call.
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  // Tensors that the function uses besides its arguments and modules, and which
  // stay the same ones; what is in them, their gradients and their memory may
  // change.
  std::vector<at::Tensor> parameters;
  // Likewise, which may be others at every call. Called before every call, and
  // after one that is captured.
  std::function<std::vector<at::Tensor>()> read_parameters;
  // Calls of one key are alike. Called as read_parameters.
  std::function<std::string()> key;
  // For operators, who see under it what the function keeps using on a worker.
  std::string name;
};

// Thread-safe as far as the function is.
class DJINN_API CompiledFunction {
 public:
  using Function =
      std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
  // Of WarmUp(): a few may be used up by what only a first call does, as an
  // optimizer that makes its state.
  static constexpr int kMaxWarmUpCalls = 8;

  explicit CompiledFunction(Function function, CompileOptions options = {});
  ~CompiledFunction();

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& arguments);

  // Calls it with these arguments until such a call is carried out as a whole,
  // kMaxWarmUpCalls times at most. Each is a call in earnest: a training step
  // trains, a generator draws. What is given here is known as what may change
  // only after another warm-up, or call, on other tensors: until then a call on
  // others is captured once more. FailedPrecondition (NOT_REGISTRABLE) with the
  // refusal when it is not, and is not going to be. Throws what a call throws.
  absl::Status WarmUp(const std::vector<at::Tensor>& arguments);

  // Has every call be captured anew, as RegisteredCallable::Forget().
  void Forget() { callable_.Forget(); }

  CompileStatistics statistics() const { return callable_.statistics(); }

 private:
  class Surroundings;

  const Function function_;
  const std::unique_ptr<Surroundings> surroundings_;
  RegisteredCallable callable_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_COMPILE_H_
