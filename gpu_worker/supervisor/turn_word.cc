#include "gpu_worker/supervisor/turn_word.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace djinn::worker {
namespace {

constexpr size_t kBytes = 4096;
// A waiting executor looks again after this time, whatever happened to the
// supervisor.
constexpr absl::Duration kPatience = absl::Seconds(1);

absl::Status Failed(const char* what) {
  return absl::InternalError(
      absl::StrCat("word of turns: ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<TurnWord> TurnWord::Make(Descriptor* file) {
  *file =
      Descriptor(memfd_create("djinn-turns", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file->valid()) return Failed("memfd_create");
  if (ftruncate(file->get(), kBytes) != 0) return Failed("ftruncate");
  // A file that shrinks ends every process that reads what it lost.
  if (fcntl(file->get(), F_ADD_SEALS,
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Failed("sealing");
  }
  return Map(file->get());
}

absl::StatusOr<TurnWord> TurnWord::Map(int file) {
  void* const base =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED) return Failed("mmap");
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  return TurnWord(static_cast<std::atomic<uint32_t>*>(base));
}

TurnWord::TurnWord(TurnWord&& other) noexcept
    : word_(std::exchange(other.word_, nullptr)) {}

TurnWord::~TurnWord() {
  if (word_ != nullptr) munmap(word_, kBytes);
}

SharedTurnGate::SharedTurnGate(TurnWord word, Descriptor event)
    : word_(std::move(word)), event_(std::move(event)) {}

bool SharedTurnGate::TryEnter() { return word_.Change(kTurnKept, kTurnInUse); }

void SharedTurnGate::Enter() {
  while (!cancelled_) {
    if (TryEnter()) return;
    if (word_.Change(kTurnNone, kTurnWanted)) RaiseEvent(event_.get());
    const uint32_t state = word_.state();
    if (state == kTurnInUse || state == kTurnAsked) return;
    if (state == kTurnWanted) {
      WaitAtWord(&word_.state(), kTurnWanted, kPatience);
    }
  }
}

void SharedTurnGate::Yield() {
  if (word_.Change(kTurnInUse, kTurnKept)) return;
  word_.state() = kTurnWanted;
  RaiseEvent(event_.get());
}

void SharedTurnGate::Leave() {
  if (word_.Change(kTurnInUse, kTurnKept)) return;
  // As Yield() left it.
  if (word_.state() == kTurnKept) return;
  word_.state() = kTurnNone;
  RaiseEvent(event_.get());
}

void SharedTurnGate::Cancel() {
  cancelled_ = true;
  WakeAtWord(&word_.state());
}

}  // namespace djinn::worker
