// The word of memory through which a supervisor grants one executor its turns
// on the device.
//
// Each executor has its own word, so it can damage no other's. An executor
// keeps a grant until another one wants the device: until then, to enter and to
// leave takes one exchange each, without a system call.
//
// Beside the word, the executor notes the leases whose messages it executes, so
// that the supervisor knows them if the executor ends.
#ifndef GPU_WORKER_SUPERVISOR_TURN_WORD_H_
#define GPU_WORKER_SUPERVISOR_TURN_WORD_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/transport/shared_memory/shared_region.h"
#include "gpu_worker/executor/turn_gate.h"

namespace djinn::worker {

enum TurnState : uint32_t {
  // The executor neither has the device nor wants it.
  kTurnNone = 0,
  // The executor waits for the device.
  kTurnWanted = 1,
  // The executor has the device and does not use it. The supervisor may take it
  // back.
  kTurnKept = 2,
  // The executor uses the device.
  kTurnInUse = 3,
  // Like kTurnInUse; the executor returns the device when it leaves.
  kTurnAsked = 4,
};

// A mapping of the word, which the destructor ends.
class TurnWord {
 public:
  // Makes a word and the file that other processes map. No process can change
  // the file's size.
  static absl::StatusOr<TurnWord> Make(Descriptor* file);
  // Maps the word of such a file.
  static absl::StatusOr<TurnWord> Map(int file);

  TurnWord(TurnWord&& other) noexcept;
  TurnWord& operator=(TurnWord&&) = delete;
  ~TurnWord();

  std::atomic<uint32_t>& state() const { return page_->state; }
  // Changes the state if it is `from`; returns whether it was.
  bool Change(TurnState from, TurnState to) const {
    uint32_t expected = from;
    return state().compare_exchange_strong(expected, to);
  }

  // Notes that messages of these leases are executed. Leases beyond kMostServed
  // are not noted.
  void NoteServed(absl::Span<const absl::string_view> lease_ids) const;
  // Returns whether messages of the lease were being executed, once the
  // executor has ended.
  bool Served(absl::string_view lease_id) const;

 private:
  static constexpr size_t kMostServed = 256;

  struct Page {
    std::atomic<uint32_t> state;
    // The number of hashes, and the hashes of the ids of served leases. They
    // are on cache lines of their own.
    alignas(64) std::atomic<uint32_t> count;
    std::array<std::atomic<uint64_t>, kMostServed> served;
  };

  explicit TurnWord(Page* page) : page_(page) {}

  // Null once moved from.
  Page* page_;
};

// An executor's end.
class SharedTurnGate : public TurnGate {
 public:
  // RaiseEvent(`event`) tells the supervisor that the state has changed.
  SharedTurnGate(TurnWord word, Descriptor event);

  bool TryEnter() override;
  void Enter() override;
  void Yield() override;
  void Leave() override;
  void Cancel() override;
  void NoteServed(absl::Span<const absl::string_view> lease_ids) override {
    word_.NoteServed(lease_ids);
  }

 private:
  const TurnWord word_;
  const Descriptor event_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_TURN_WORD_H_
