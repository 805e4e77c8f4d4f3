#include "gpu_worker/device/cpu/prepacked_linear.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Context.h"
#include "ATen/core/List.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "common/base/mutex.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {
namespace {

// Limits the views of one buffer, whose number a client chooses.
constexpr size_t kMaxForms = 64;
// Limits the number of uses that packing may require. In practice such a weight
// is never packed.
constexpr int64_t kMaxNeeded = int64_t{1} << 30;

c10::OperatorHandle Operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

at::Tensor Reorder(const at::Tensor& weight) {
  static const c10::OperatorHandle op =
      Operator("mkldnn::_reorder_linear_weight");
  torch::jit::Stack stack = {weight, c10::IValue()};
  op.callBoxed(&stack);
  return stack[0].toTensor();
}

at::Tensor Linear(const at::Tensor& rows, const at::Tensor& packed,
                  const std::optional<at::Tensor>& bias) {
  static const c10::OperatorHandle op = Operator("mkldnn::_linear_pointwise");
  torch::jit::Stack stack = {
      rows, packed, bias, "none", c10::List<std::optional<at::Scalar>>(), ""};
  op.callBoxed(&stack);
  return stack[0].toTensor();
}

}  // namespace

struct PrepackedLinear::State {
  mutable Mutex mu;
  SpareMemory* spare ABSL_GUARDED_BY(mu) = nullptr;
  // Counts uses of all weights.
  uint64_t clock ABSL_GUARDED_BY(mu) = 0;
  absl::flat_hash_set<Forms*> all ABSL_GUARDED_BY(mu);
  std::atomic<uint64_t> bytes{0};
};

// A packed copy, and the memory that is reserved for it.
struct PrepackedLinear::Packed {
  Packed(std::shared_ptr<State> state, uint64_t bytes)
      : state(std::move(state)), bytes(bytes) {}
  ~Packed() { state->bytes -= bytes; }
  Packed(const Packed&) = delete;
  Packed& operator=(const Packed&) = delete;

  const std::shared_ptr<State> state;
  const uint64_t bytes;
  std::shared_ptr<void> spare;
  at::Tensor matrix;
};

// A view of a buffer, and its packed copy if there is one.
struct PrepackedLinear::Form {
  srg::TensorView view;
  // Number of uses since the first one, or since the packed copy was dropped,
  // whichever is later.
  int64_t uses = 0;
  // Times of uses, by the state's clock.
  uint64_t first_used = 0;
  uint64_t last_used = 0;
  std::shared_ptr<const Packed> packed;
  // True while a thread packs the weight.
  bool busy = false;
};

// The forms of one buffer, guarded by the state's mutex. Copies are destroyed
// without holding it.
class PrepackedLinear::Forms final : public DerivedFromBytes {
 public:
  explicit Forms(std::shared_ptr<State> state) : state_(std::move(state)) {
    MutexLock lock(&state_->mu);
    state_->all.insert(this);
  }

  ~Forms() override {
    MutexLock lock(&state_->mu);
    state_->all.erase(this);
  }

  void Invalidate() override {
    std::vector<Form> gone;
    MutexLock lock(&state_->mu);
    if (std::any_of(forms.begin(), forms.end(),
                    [](const Form& form) { return form.packed != nullptr; })) {
      SetBack();
    }
    gone.swap(forms);
  }

  // Returns the view's form, which it adds if need be. Returns null if there
  // are too many.
  Form* Find(const srg::TensorView& view) {
    for (Form& form : forms) {
      srg::TensorView same = view;
      same.slot = form.view.slot;
      if (form.view == same) return &form;
    }
    if (forms.size() == kMaxForms) return nullptr;
    Form& form = forms.emplace_back();
    form.view = view;
    return &form;
  }

  bool IsDue(const Form& form) const { return form.uses >= needed_; }

  // Returns the copy, which the caller destroys without the lock.
  std::shared_ptr<const Packed> Drop(Form* form) {
    SetBack();
    form->uses = 0;
    return std::move(form->packed);
  }

  std::vector<Form> forms;

 private:
  void SetBack() { needed_ = std::min(needed_ * kSetback, kMaxNeeded); }

  int64_t needed_ = kUses;
  const std::shared_ptr<State> state_;
};

PrepackedLinear::PrepackedLinear(uint64_t max_bytes)
    : max_bytes_(at::hasMKLDNN() ? max_bytes : 0),
      state_(std::make_shared<State>()) {}

PrepackedLinear::~PrepackedLinear() = default;

void PrepackedLinear::SetSpareMemory(SpareMemory* spare) {
  // Releases the copies, because the previous SpareMemory reserved their
  // memory.
  Release(std::numeric_limits<uint64_t>::max());
  MutexLock lock(&state_->mu);
  state_->spare = spare;
}

bool PrepackedLinear::Suits(const RowsByMatrix& product) const {
  return max_bytes_ > 0 &&
         product.weight().data_type == srg::DataType::kFloat32 &&
         product.weight_elements() >= kLeastElements;
}

at::Tensor PrepackedLinear::Multiply(const RowsByMatrix& product,
                                     const NodeInput& input,
                                     const at::Tensor& rows,
                                     const std::optional<at::Tensor>& bias) {
  if (!Suits(product) || rows.size(0) < kLeastRows) return at::Tensor();
  const std::shared_ptr<const Packed> packed = Find(product, input);
  if (packed == nullptr) return at::Tensor();
  return Linear(rows, packed->matrix, bias);
}

std::shared_ptr<const PrepackedLinear::Packed> PrepackedLinear::Find(
    const RowsByMatrix& product, const NodeInput& input) {
  static const std::string& kNobody = *new std::string;
  const TorchBuffer& buffer = product.WeightBuffer(input.slots);
  DerivedFromBytes* derived = buffer.derived();
  if (derived == nullptr) {
    derived = buffer.SetDerived(std::make_unique<Forms>(state_));
  }
  Forms& forms = static_cast<Forms&>(*derived);
  uint64_t first_used = 0;
  {
    MutexLock lock(&state_->mu);
    Form* const form = forms.Find(product.weight());
    if (form == nullptr) return nullptr;
    form->last_used = ++state_->clock;
    if (form->packed != nullptr) return form->packed;
    if (form->uses++ == 0) form->first_used = form->last_used;
    if (form->busy || !forms.IsDue(*form)) return nullptr;
    form->busy = true;
    first_used = form->first_used;
  }
  std::shared_ptr<const Packed> packed;
  try {
    packed = Pack(product.Weight(input.slots), first_used,
                  input.tenant != nullptr ? *input.tenant : kNobody);
  } catch (const c10::Error&) {
    // Packing failed for lack of memory, which temporaries use at present.
  }
  MutexLock lock(&state_->mu);
  // The form still exists: only a sole holder could have dropped it, and the
  // caller holds the buffer.
  Form* const form = forms.Find(product.weight());
  form->busy = false;
  if (packed == nullptr) {
    forms.Drop(form);
  } else {
    form->packed = packed;
  }
  return packed;
}

// Returns null if there is no memory for the copy.
std::shared_ptr<const PrepackedLinear::Packed> PrepackedLinear::Pack(
    const at::Tensor& weight, uint64_t first_used, const std::string& tenant) {
  const auto bytes = static_cast<uint64_t>(weight.numel()) * sizeof(float);
  const uint64_t taken = state_->bytes += bytes;
  auto packed = std::make_shared<Packed>(state_, bytes);
  // Makes room by dropping copies that no run used since this weight was first
  // used.
  if (taken > max_bytes_ &&
      ReleaseUsedBefore(first_used, taken - max_bytes_) < taken - max_bytes_) {
    return nullptr;
  }
  SpareMemory* spare;
  {
    MutexLock lock(&state_->mu);
    spare = state_->spare;
  }
  if (spare != nullptr) {
    packed->spare = spare->Reserve(tenant, bytes);
    if (packed->spare == nullptr && ReleaseUsedBefore(first_used, bytes) > 0) {
      packed->spare = spare->Reserve(tenant, bytes);
    }
    if (packed->spare == nullptr) return nullptr;
  }
  packed->matrix = Reorder(weight);
  return packed;
}

uint64_t PrepackedLinear::Release(uint64_t bytes) {
  return ReleaseUsedBefore(std::numeric_limits<uint64_t>::max(), bytes);
}

uint64_t PrepackedLinear::ReleaseUsedBefore(uint64_t time, uint64_t bytes) {
  struct Candidate {
    Forms* forms;
    Form* form;
  };
  std::vector<std::shared_ptr<const Packed>> released;
  uint64_t released_bytes = 0;
  MutexLock lock(&state_->mu);
  std::vector<Candidate> candidates;
  for (Forms* const forms : state_->all) {
    for (Form& form : forms->forms) {
      if (form.packed != nullptr && form.packed.use_count() == 1 &&
          form.last_used < time) {
        candidates.push_back({forms, &form});
      }
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) {
              return a.form->last_used < b.form->last_used;
            });
  for (const Candidate& candidate : candidates) {
    if (released_bytes >= bytes) break;
    released_bytes += candidate.form->packed->bytes;
    released.push_back(candidate.forms->Drop(candidate.form));
  }
  return released_bytes;
}

uint64_t PrepackedLinear::bytes() const { return state_->bytes; }

}  // namespace djinn::worker
