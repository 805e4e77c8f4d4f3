#include <utility>

#include "client_lib/callable/module_watch.h"
#include "common/base/error.h"
#include "djinn/compile.h"

namespace djinn {
namespace {

using Tensors = std::vector<at::Tensor>;

bool SameTensors(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].is_same(b[i])) return false;
  }
  return true;
}

}  // namespace

// Reads what a call depends on besides its arguments.
class CompiledFunction::Surroundings {
 public:
  struct Seen {
    std::string key;
    Tensors parameters;
  };

  explicit Surroundings(CompileOptions options)
      : options_(std::move(options)), modules_(options_.modules) {}

  Seen Look() {
    Seen seen;
    seen.parameters = options_.parameters;
    // The modules' bytes delimit themselves.
    modules_.Inspect(&seen.parameters, &seen.key);
    if (options_.read_parameters) {
      for (at::Tensor& tensor : options_.read_parameters()) {
        seen.parameters.push_back(std::move(tensor));
      }
    }
    if (options_.key) seen.key += options_.key();
    return seen;
  }

 private:
  const CompileOptions options_;
  capture::ModuleWatch modules_;
};

CompiledFunction::CompiledFunction(Function function, CompileOptions options)
    : function_(std::move(function)),
      surroundings_(std::make_unique<Surroundings>(options)),
      callable_(std::move(options.name)) {}

CompiledFunction::~CompiledFunction() = default;

Tensors CompiledFunction::operator()(const Tensors& arguments) {
  const Surroundings::Seen seen = surroundings_->Look();
  if (std::optional<RegisteredCallable::Result> result =
          callable_.Replay(seen.key, arguments, seen.parameters)) {
    return std::move(result->outputs);
  }
  if (!callable_.Begin(seen.key, arguments, seen.parameters)) {
    return function_(arguments);
  }
  Tensors outputs;
  try {
    outputs = function_(arguments);
    // A replay would not repeat the changes that the function makes to these.
    const Surroundings::Seen after = surroundings_->Look();
    if (after.key != seen.key) {
      callable_.Abandon("it changes its modules, or the result of its key");
      return outputs;
    }
    if (!SameTensors(after.parameters, seen.parameters)) {
      callable_.Abandon("it replaces a tensor that it uses");
      return outputs;
    }
  } catch (...) {
    callable_.Abandon();
    throw;
  }
  callable_.End(outputs);
  return outputs;
}

absl::Status CompiledFunction::WarmUp(const Tensors& arguments) {
  for (int call = 0; call < kMaxWarmUpCalls; ++call) {
    const CompileStatistics before = statistics();
    (*this)(arguments);
    const CompileStatistics after = statistics();
    if (after.replays > before.replays) return absl::OkStatus();
    // Another call would not show anything new.
    if (after.captures == before.captures) break;
  }
  const std::string refusal = statistics().refusal;
  return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_REGISTRABLE",
                   refusal.empty() ? "no call equals the one before" : refusal);
}

}  // namespace djinn
