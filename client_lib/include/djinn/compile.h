// Registered callables. A function is captured while it runs. Once two
// consecutive calls have been captured with equal results, later calls are
// replayed: the client sends one or two messages, and the function's code does
// not run.
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
// djinn/compile_module.h has a short form for a module's forward function.
//
// Requirements. The function must only call operators on one virtual device.
// The operators must depend on the metadata of its arguments alone, and its
// other inputs must be tensors that exist before and after the call. If Djinn
// detects a violation, it gives a reason (CompileStatistics::refusal) and calls
// the function as if it were not registered. Djinn detects a value that is read
// or uploaded, a shape that depends on data, an operator that reads or writes a
// tensor in this process's memory, a new tensor that outlives the call (other
// than a parameter's gradient), a result that autograd still needs, an argument
// that gets other memory, another gradient or hooks, and a random generator
// that is seeded or set to another state.
//
// Guards. Before every call, Djinn compares the following with the captured
// calls, and replays a call only if everything on this list is equal:
//
// - The arguments: their number, sizes, strides, offsets, dtypes and
//   requires_grad, the same properties of their gradients, and which arguments
//   share memory or are one of the tensors below.
// - CompileOptions::modules and all their submodules: their identity,
//   is_training(), the identity of their registered parameters and buffers, and
//   the tensor members of PyTorch's own layers, such as Linear's weight.
// - These tensors and those of CompileOptions::parameters and read_parameters:
//   their identity, memory and metadata. Their gradients may be other tensors
//   each time.
// - The thread: gradient mode, inference mode, autocast, default dtype,
//   settings that choose operators, and the result of CompileOptions::key.
//
// The values in these tensors may change: a replay reads them when it runs.
// Djinn does not see anything else that the function uses: numbers such as a
// learning rate or a Dropout's probability, members of the program's own module
// classes that are not registered, and the branches that the function takes.
// `key` must return another string when one of these changes. Djinn detects a
// tensor that the function starts to use later only while it captures a call;
// return such a tensor from `read_parameters`.
//
// Budget. Before the first replay, a worker counts the tensors that the
// function captures as a resident model. If the tenant's budget for resident
// models has no room, the function is called as if it were not registered, and
// CompileStatistics::refusal says so.
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
  // The number of calls that were replayed without calling the function.
  uint64_t replays = 0;
  // The number of calls that were captured, to be registered or compared.
  uint64_t captures = 0;
  // The human-readable reason why the last call was not registered, or an empty
  // string.
  std::string refusal;
};

// Says what may differ between equal calls of a registered callable besides
// tensors. The caller finds out, after each capture, how the numbers among the
// operators' arguments follow from what it knows, and tells it to
// RegisteredCallable::Vary().
struct VaryingNumbers {
  // True if equal calls may have other numbers.
  bool numbers = false;
  // CPU tensors in which the function counts. The caller counts after a replay.
  std::vector<at::Tensor> counters;
};

// Implements registered callables for CompiledFunction and for bindings to
// other languages. It holds the captured calls but not the function. The caller
// tries Replay(). If Replay() returns nothing, the caller calls Begin(), the
// function, and then End() or Abandon().
//
// Thread-safe. A capture belongs to the thread that began it.
class DJINN_API RegisteredCallable {
 public:
  // The limits on kept calls. The least recently used calls are forgotten if
  // there are more than kMaxCapturedGraphs, or if more than kMinCapturedGraphs
  // of them take more than kMaxBytes together.
  static constexpr size_t kMinCapturedGraphs = 64;
  static constexpr size_t kMaxCapturedGraphs = 4096;
  static constexpr size_t kMaxBytes = 64 << 20;

  // Says what makes the calls. Equal calls of a kFunction may issue different
  // operators, and may use tensors that it refers to, so a call is replayed
  // once two consecutive captures are equal. Those of a kGraph issue the same
  // operators on its arguments and parameters alone: its first capture is
  // replayed. A result that is a view of these is returned detached.
  enum class Kind { kFunction, kGraph };

  // Operators of the cluster see the captured tensors under `name`.
  explicit RegisteredCallable(std::string name = "",
                              Kind kind = Kind::kFunction);
  ~RegisteredCallable();
  RegisteredCallable(const RegisteredCallable&) = delete;
  RegisteredCallable& operator=(const RegisteredCallable&) = delete;

  struct Result {
    // The number that End() returned for the captured call.
    uint64_t captured_graph = 0;
    std::vector<at::Tensor> outputs;
  };

  // Stores the values of a call with this captured graph, as Vary() says, and
  // returns true; or returns false if the call must not be replayed.
  using Values =
      std::function<bool(uint64_t captured_graph, std::vector<uint64_t>*)>;

  // Replays the call if an equal one is registered, and returns nullopt
  // otherwise. `key` and `parameters` are as in CompileOptions. Throws
  // djinn::Error, as any call on the device does.
  // `values` is not null if the call was captured with numbers that vary.
  std::optional<Result> Replay(const std::string& key,
                               const std::vector<at::Tensor>& arguments,
                               const std::vector<at::Tensor>& parameters,
                               const Values& values = nullptr);

  // Starts to capture the calls of this thread. Returns false if capturing is
  // useless or this thread captures already; the caller then calls the function
  // without End(). `skipped_calls` is the number of calls since the last
  // Begin() for which the caller did not call Begin().
  bool Begin(const std::string& key, const std::vector<at::Tensor>& arguments,
             const std::vector<at::Tensor>& parameters,
             uint64_t skipped_calls = 0, const VaryingNumbers& varying = {});
  // Ends the capture. Returns the captured graph's number, under which the
  // caller may keep what belongs to `outputs`, or 0 if the call was not
  // registered.
  uint64_t End(const std::vector<at::Tensor>& outputs);
  // The numbers among the operators' arguments in a captured graph, as bits, in
  // their order; none if the graph is forgotten. Their count and order are the
  // same in `predecessor`, the number of the equal capture before it, or 0 if
  // there is none.
  struct Numbers {
    std::vector<uint64_t> bits;
    uint64_t predecessor = 0;
  };
  Numbers NumbersOf(uint64_t captured_graph) const;
  // Says which of these numbers vary: by number, its index among the values of
  // a replay, or -1. A captured graph whose numbers may vary is not replayed
  // before this call.
  void Vary(uint64_t captured_graph, std::vector<int32_t> places);
  // Ends the capture of a call without a result, because the function threw. A
  // nonempty `refusal` says that the function did something that cannot be
  // replayed.
  void Abandon(const std::string& refusal = "");

  // Forgets every captured graph and every failed attempt, so that calls are
  // captured again. Calls of other threads that are in progress may still be
  // replayed.
  void Forget();

  // Returns the numbers of the captured_graphs that Replay() may still return.
  std::vector<uint64_t> CapturedGraphs() const;
  CompileStatistics statistics() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

struct CompileOptions {
  // The modules that the function uses, none of them null. All their submodules
  // are included. Djinn inspects the modules before every call.
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  // Tensors that the function uses besides its arguments and modules. They must
  // stay the same tensors; their values, gradients and memory may change.
  std::vector<at::Tensor> parameters;
  // Returns further tensors that the function uses besides its arguments and
  // modules. It may return other tensors at every call. Djinn calls it before
  // every call, and after a call that is captured.
  std::function<std::vector<at::Tensor>()> read_parameters;
  // Returns a string that differs for calls that must not share a captured
  // graph. Djinn calls it whenever it calls read_parameters.
  std::function<std::string()> key;
  // The name under which operators of the cluster see the captured tensors.
  std::string name;
};

// A function with its captured calls. As thread-safe as the function is.
// Destroying it releases the captured graphs, and the workers then no longer
// count the resident model.
class DJINN_API CompiledFunction {
 public:
  using Function =
      std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
  // The largest number of calls that WarmUp() makes. The first few calls may
  // differ from later ones, for example while an optimizer creates its state.
  static constexpr int kMaxWarmUpCalls = 8;

  explicit CompiledFunction(Function function, CompileOptions options = {});
  ~CompiledFunction();

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& arguments);

  // Calls the function with these arguments until a call is replayed, at most
  // kMaxWarmUpCalls times. Each call has its full effect: a training step
  // trains, and a generator draws. WarmUp() assumes that storages which were
  // the same in all captured calls stay the same. A later call on other tensors
  // is therefore captured once more, unless another warm-up has used other
  // tensors.
  //
  // Returns FailedPrecondition (NOT_REGISTRABLE), with the refusal, if no call
  // was replayed. Throws whatever a call throws.
  absl::Status WarmUp(const std::vector<at::Tensor>& arguments);

  // Forgets every captured call: see RegisteredCallable::Forget().
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
