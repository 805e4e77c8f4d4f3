#include "gpu_worker/supervisor/turn_word.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/hash/hash.h"

namespace djinn::worker {
namespace {

constexpr size_t kBytes = 4096;
// A waiting executor checks its word again after this time, even if the
// supervisor does not wake it.
constexpr absl::Duration kPatience = absl::Seconds(1);

uint64_t HashOf(absl::string_view lease_id) {
  return HashContent(lease_id.data(), lease_id.size()).low;
}

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
  // If a file shrinks, every process that reads the lost part ends.
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
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  static_assert(sizeof(Page) <= kBytes);
  return TurnWord(static_cast<Page*>(base));
}

TurnWord::TurnWord(TurnWord&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)) {}

TurnWord::~TurnWord() {
  if (page_ != nullptr) munmap(page_, kBytes);
}

void TurnWord::NoteServed(absl::Span<const absl::string_view> lease_ids) const {
  const size_t count = std::min(lease_ids.size(), kMostServed);
  // If the executor ends here, it was executing no message.
  page_->count.store(0);
  for (size_t i = 0; i < count; ++i) {
    page_->served[i].store(HashOf(lease_ids[i]), std::memory_order_relaxed);
  }
  page_->count.store(static_cast<uint32_t>(count));
}

bool TurnWord::Served(absl::string_view lease_id) const {
  // The executor may have written anything.
  const size_t count = std::min<size_t>(page_->count.load(), kMostServed);
  return std::any_of(page_->served.begin(), page_->served.begin() + count,
                     [hash = HashOf(lease_id)](const auto& served) {
                       return served.load(std::memory_order_relaxed) == hash;
                     });
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
  // Yield() left the word in this state.
  if (word_.state() == kTurnKept) return;
  word_.state() = kTurnNone;
  RaiseEvent(event_.get());
}

void SharedTurnGate::Cancel() {
  cancelled_ = true;
  WakeAtWord(&word_.state());
}

}  // namespace djinn::worker
