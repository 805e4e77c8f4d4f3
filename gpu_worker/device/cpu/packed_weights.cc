#include "gpu_worker/device/cpu/packed_weights.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "common/mutex.h"

namespace djinn::worker {
namespace {

// Views of one buffer; a client decides how many there are.
constexpr size_t kMaxForms = 64;
constexpr int64_t kMaxCredit =
    static_cast<int64_t>(PackedWeights::kBytesPerUse);
// Beyond it a weight is never packed in practice.
constexpr int64_t kMaxSetback = int64_t{1} << 30;

}  // namespace

// What is known of one view of one buffer.
struct PackedWeights::Form {
  MatrixLayout layout;
  // Since it was begun or set back.
  int64_t uses = 0;
  int64_t rows = 0;
  // By the clock of offers.
  uint64_t first_used = 0;
  uint64_t last_used = 0;
  // Since somebody multiplied with it.
  int64_t offers = 0;
  std::shared_ptr<PackedMatrix> matrix;
  bool finished = false;
  // Some thread is packing.
  bool busy = false;
};

struct PackedWeights::State {
  mutable Mutex mu;
  SpareMemory* spare ABSL_GUARDED_BY(mu) = nullptr;
  // Grows with every offer.
  uint64_t clock ABSL_GUARDED_BY(mu) = 0;
  // Bytes that may be packed; below 0, offers have to make up for it first.
  int64_t credit ABSL_GUARDED_BY(mu) = 0;
  absl::flat_hash_set<Forms*> all ABSL_GUARDED_BY(mu);
  uint64_t finished ABSL_GUARDED_BY(mu) = 0;
  uint64_t released ABSL_GUARDED_BY(mu) = 0;
  std::atomic<uint64_t> bytes{0};
};

// What a matrix has of the own limit and of spare memory.
struct PackedWeights::Paid {
  Paid(std::shared_ptr<State> state, uint64_t bytes)
      : state(std::move(state)), bytes(bytes) {}
  ~Paid() { state->bytes -= bytes; }
  Paid(const Paid&) = delete;
  Paid& operator=(const Paid&) = delete;

  const std::shared_ptr<State> state;
  const uint64_t bytes;
  std::shared_ptr<void> spare;
};

// A buffer's forms, guarded by the state's mutex. Matrices are destroyed
// without it.
class PackedWeights::Forms final : public DerivedFromBytes {
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
                    [](const Form& form) { return form.matrix != nullptr; })) {
      SetBack();
    }
    gone.swap(forms);
  }

  // Null when there are too many.
  Form* Find(const MatrixLayout& layout) {
    for (Form& form : forms) {
      if (form.layout == layout) return &form;
    }
    if (forms.size() == kMaxForms) return nullptr;
    Form& form = forms.emplace_back();
    form.layout = layout;
    return &form;
  }

  void NoteUse(Form* form, int64_t rows) const {
    if (form->uses == 0) form->first_used = form->last_used;
    ++form->uses;
    form->rows += rows;
  }

  bool IsDue(const Form& form) const {
    return (form.uses >= kUses * needed && form.rows >= kRows * needed) ||
           form.uses >= kManyUses * needed;
  }

  // Begins anew, with more patience. Returns what is to be destroyed.
  std::shared_ptr<PackedMatrix> Drop(Form* form) {
    SetBack();
    form->uses = form->rows = form->offers = 0;
    form->finished = false;
    return std::move(form->matrix);
  }

  std::vector<Form> forms;

 private:
  void SetBack() { needed = std::min(needed * kSetback, kMaxSetback); }

  // So many times as much use as at first.
  int64_t needed = 1;
  const std::shared_ptr<State> state_;
};

PackedWeights::PackedWeights(const PackedKernel* kernel, uint64_t max_bytes)
    : kernel_(kernel),
      max_bytes_(max_bytes),
      state_(std::make_shared<State>()) {}

PackedWeights::~PackedWeights() = default;

void PackedWeights::SetSpareMemory(SpareMemory* spare) {
  // What another one paid for does not stay.
  Release(std::numeric_limits<uint64_t>::max());
  MutexLock lock(&state_->mu);
  state_->spare = spare;
}

std::shared_ptr<const PackedMatrix> PackedWeights::Offer(
    const TorchBuffer& buffer, const MatrixLayout& layout, int64_t rows,
    const std::string& tenant) {
  DerivedFromBytes* derived = buffer.derived();
  if (derived == nullptr) {
    derived = buffer.SetDerived(std::make_unique<Forms>(state_));
  }
  Forms& forms = static_cast<Forms&>(*derived);
  std::shared_ptr<PackedMatrix> matrix;
  uint64_t first_used = 0;
  {
    MutexLock lock(&state_->mu);
    Form* const form = forms.Find(layout);
    if (form == nullptr) return nullptr;
    form->last_used = ++state_->clock;
    const int64_t bytes =
        layout.depth * layout.width * static_cast<int64_t>(sizeof(float));
    const int64_t earned =
        bytes * std::clamp(rows, kFewRows, kRowsPerByte) / kRowsPerByte;
    state_->credit = std::min(state_->credit + earned, kMaxCredit);
    if (form->finished) {
      form->offers = form->matrix->TestAndClearUsed() ? 0 : form->offers + 1;
      if (form->offers <= kOffers) return form->matrix;
      matrix = forms.Drop(form);
      return nullptr;
    }
    forms.NoteUse(form, rows);
    if (form->busy || !forms.IsDue(*form) || state_->credit < 0) {
      return nullptr;
    }
    form->busy = true;
    state_->credit -= std::min(bytes, kMaxCredit);
    first_used = form->first_used;
    matrix = form->matrix;
  }
  if (matrix == nullptr) matrix = Begin(layout, first_used, tenant);
  const bool finished =
      matrix != nullptr &&
      matrix->Pack(reinterpret_cast<const float*>(buffer.data()), kBytesPerUse);

  MutexLock lock(&state_->mu);
  // It is there: only a lone holder would have invalidated it.
  Form* const form = forms.Find(layout);
  form->busy = false;
  if (matrix == nullptr) {
    forms.Drop(form);
    return nullptr;
  }
  form->matrix = matrix;
  form->finished = finished;
  if (!finished) return nullptr;
  ++state_->finished;
  return matrix;
}

// Null when there is no memory for it.
std::shared_ptr<PackedMatrix> PackedWeights::Begin(const MatrixLayout& layout,
                                                   uint64_t first_used,
                                                   const std::string& tenant) {
  const uint64_t bytes = PackedMatrix::Bytes(*kernel_, layout);
  if (bytes > max_bytes_) return nullptr;
  // Others give way when this one was used throughout since their last time.
  const uint64_t taken = state_->bytes += bytes;
  auto paid = std::make_shared<Paid>(state_, bytes);
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
    paid->spare = spare->Reserve(tenant, bytes);
    if (paid->spare == nullptr && ReleaseUsedBefore(first_used, bytes) > 0) {
      paid->spare = spare->Reserve(tenant, bytes);
    }
    if (paid->spare == nullptr) return nullptr;
  }
  try {
    return std::make_shared<PackedMatrix>(
        *kernel_, layout, UninitialisedStorage(bytes), std::move(paid));
  } catch (const std::exception&) {
    // Temporaries have the memory at the moment.
    return nullptr;
  }
}

uint64_t PackedWeights::Release(uint64_t bytes) {
  return ReleaseUsedBefore(std::numeric_limits<uint64_t>::max(), bytes);
}

uint64_t PackedWeights::ReleaseUsedBefore(uint64_t time, uint64_t bytes) {
  struct Candidate {
    Forms* forms;
    Form* form;
  };
  std::vector<std::shared_ptr<PackedMatrix>> released;
  uint64_t released_bytes = 0;
  MutexLock lock(&state_->mu);
  std::vector<Candidate> candidates;
  for (Forms* const forms : state_->all) {
    for (Form& form : forms->forms) {
      if (form.matrix != nullptr && form.matrix.use_count() == 1 &&
          !form.busy && form.last_used < time) {
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
    released_bytes += candidate.form->matrix->bytes();
    released.push_back(candidate.forms->Drop(candidate.form));
    ++state_->released;
  }
  return released_bytes;
}

PackedWeights::Stats PackedWeights::stats() const {
  MutexLock lock(&state_->mu);
  return {state_->bytes, state_->finished, state_->released};
}

}  // namespace djinn::worker
