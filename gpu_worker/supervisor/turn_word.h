// The word of memory through which a supervisor grants one executor its turns
// on the device.
//
// Each executor shares a word of its own with the supervisor, so it can spoil
// only its own. A grant stays with the executor until another one wants the
// device: entering and leaving are then one exchange each, without a system
// call.
#ifndef GPU_WORKER_SUPERVISOR_TURN_WORD_H_
#define GPU_WORKER_SUPERVISOR_TURN_WORD_H_

#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"
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
  // As kTurnInUse; the executor gives the device back when it leaves.
  kTurnAsked = 4,
};

// A mapping of the word, which the destructor ends.
class TurnWord {
 public:
  // Makes a word and the file that other processes map. Nobody can change the
  // file's size.
  static absl::StatusOr<TurnWord> Make(Descriptor* file);
  // Maps the word of such a file.
  static absl::StatusOr<TurnWord> Map(int file);

  TurnWord(TurnWord&& other) noexcept;
  TurnWord& operator=(TurnWord&&) = delete;
  ~TurnWord();

  std::atomic<uint32_t>& state() const { return *word_; }
  // Changes the state if it is `from`; returns whether it was.
  bool Change(TurnState from, TurnState to) const {
    uint32_t expected = from;
    return word_->compare_exchange_strong(expected, to);
  }

 private:
  explicit TurnWord(std::atomic<uint32_t>* word) : word_(word) {}

  // Null once moved from.
  std::atomic<uint32_t>* word_;
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

 private:
  const TurnWord word_;
  const Descriptor event_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_TURN_WORD_H_
