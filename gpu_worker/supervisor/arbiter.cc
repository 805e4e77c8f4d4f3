#include "gpu_worker/supervisor/arbiter.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace djinn::worker {

namespace {

// Most changes of one round. An executor that changes its word all the time
// must not keep the arbiter busy.
constexpr int kMaxChanges = 64;

// Reads the bytes that an executor wrote, and ignores them. Returns false when
// the executor has closed its end.
bool Drain(int pipe) {
  char bytes[4096];
  return read(pipe, bytes, sizeof(bytes)) != 0;
}

}  // namespace

struct Arbiter::Member {
  Member(uint64_t number, TurnWord word, Descriptor event)
      : number(number), word(std::move(word)), event(std::move(event)) {}

  const uint64_t number;
  const TurnWord word;
  // The reading end of the pipe into which the executor writes. The executor
  // has no descriptor of this end, so it can neither make it block nor read
  // from it.
  const Descriptor event;
  // Whether the executor has closed its end. Belongs to the arbiter's thread.
  bool closed = false;
  double weight = 1;
  bool waits = false;
  // The start tag of its next turn while it waits, and the finish tag of the
  // last one, in weighted seconds.
  double start = 0;
  double finish = 0;
  // When it lost its exclusive use; infinite unless its turn still continues.
  absl::Duration overdue_since = absl::InfiniteDuration();

  void Charge(absl::Duration time, double virtual_time) {
    finish =
        std::max(finish, virtual_time) + absl::ToDoubleSeconds(time) / weight;
  }
};

Arbiter::Arbiter(Clock* clock)
    : clock_(clock), wake_(MakeEvent().value()), thread_([this] { Run(); }) {}

Arbiter::~Arbiter() {
  stopping_ = true;
  RaiseEvent(wake_.get());
  thread_.join();
}

absl::StatusOr<Arbiter::Seat> Arbiter::Add(uint64_t number) {
  Seat seat;
  DJINN_ASSIGN_OR_RETURN(TurnWord word, TurnWord::Make(&seat.word));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::InternalError(
        absl::StrCat("event of turns: pipe2: ", std::strerror(errno)));
  }
  Descriptor event(ends[0]);
  seat.event = Descriptor(ends[1]);
  MutexLock lock(&mu_);
  members_[number] =
      std::make_shared<Member>(number, std::move(word), std::move(event));
  RaiseEvent(wake_.get());
  return seat;
}

void Arbiter::SetWeight(uint64_t number, double weight) {
  MutexLock lock(&mu_);
  const auto found = members_.find(number);
  if (found != members_.end() && weight > 0) found->second->weight = weight;
}

std::set<std::string> Arbiter::ServedBy(
    uint64_t number, absl::Span<const std::string> lease_ids) const {
  MutexLock lock(&mu_);
  std::set<std::string> served;
  const auto found = members_.find(number);
  if (found == members_.end()) return served;
  for (const std::string& id : lease_ids) {
    if (found->second->word.Served(id)) served.insert(id);
  }
  return served;
}

void Arbiter::Remove(uint64_t number) {
  MutexLock lock(&mu_);
  if (holder_ == number) SetHolder(0);
  members_.erase(number);
  Decide();
  RaiseEvent(wake_.get());
}

Arbiter::Member* Arbiter::Next() {
  Member* next = nullptr;
  for (const auto& [number, member] : members_) {
    // The executor may no longer wait.
    member->waits = member->word.state() == kTurnWanted;
    if (member->waits && (next == nullptr || member->start < next->start)) {
      next = member.get();
    }
  }
  return next;
}

void Arbiter::Charge() {
  if (contended_since_ == absl::InfiniteDuration()) return;
  const absl::Duration now = clock_->Monotonic();
  const auto found = members_.find(holder_);
  if (found != members_.end()) {
    found->second->Charge(now - contended_since_, virtual_time_);
  }
  contended_since_ = absl::InfiniteDuration();
}

void Arbiter::SetHolder(uint64_t number) {
  holder_ = number;
  // From now on, waiting executors wait for this holder. The last holder may
  // have ended while another executor waited.
  contended_since_ = absl::InfiniteDuration();
}

void Arbiter::Decide() {
  for (const auto& [number, member] : members_) {
    const uint32_t state = member->word.state();
    if (member->overdue_since != absl::InfiniteDuration() &&
        (state == kTurnNone || state == kTurnWanted)) {
      // It shared the device with the next executor during that time.
      member->Charge((clock_->Monotonic() - member->overdue_since) / 2,
                     virtual_time_);
      member->overdue_since = absl::InfiniteDuration();
    }
    if (member->waits || state != kTurnWanted) continue;
    member->waits = true;
    member->start = std::max(virtual_time_, member->finish);
  }
  const auto holder = members_.find(holder_);
  if (holder != members_.end()) {
    const uint32_t state = holder->second->word.state();
    // The executor returned the device, and may want it again already.
    if (state == kTurnNone || state == kTurnWanted) {
      Charge();
      if (state == kTurnWanted) {
        holder->second->waits = true;
        holder->second->start = std::max(virtual_time_, holder->second->finish);
      }
      SetHolder(0);
    }
  } else {
    SetHolder(0);
  }
  for (int i = 0; i < kMaxChanges; ++i) {
    Member* const next = Next();
    if (next == nullptr) return;
    if (holder_ != 0) {
      Member& other = *members_.at(holder_);
      if (other.word.Change(kTurnKept, kTurnNone)) {
        Charge();
        SetHolder(0);
      } else {
        if (contended_since_ == absl::InfiniteDuration()) {
          contended_since_ = clock_->Monotonic();
        }
        // The executor returns the device after its turn. The arbiter handles
        // other states when the executor raises its event.
        other.word.Change(kTurnInUse, kTurnAsked);
        if (other.word.state() == kTurnKept) continue;
        if (clock_->Monotonic() - contended_since_ < kPatience) return;
        Charge();
        other.overdue_since = clock_->Monotonic();
        SetHolder(0);
        ++overdue_turns_;
      }
    }
    if (!next->word.Change(kTurnWanted, kTurnInUse)) continue;
    next->waits = false;
    SetHolder(next->number);
    virtual_time_ = std::max(virtual_time_, next->start);
    ++handovers_;
    WakeAtWord(&next->word.state());
  }
}

void Arbiter::Run() {
  while (!stopping_) {
    std::vector<std::shared_ptr<Member>> members;
    std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
    int patience = -1;
    {
      MutexLock lock(&mu_);
      if (contended_since_ != absl::InfiniteDuration()) {
        const absl::Duration left =
            contended_since_ + kPatience - clock_->Monotonic();
        patience = 1 + static_cast<int>(absl::ToInt64Milliseconds(
                           std::max(left, absl::ZeroDuration())));
      }
      for (const auto& [number, member] : members_) {
        members.push_back(member);
        // poll() passes over -1.
        fds.push_back({member->closed ? -1 : member->event.get(), POLLIN, 0});
      }
    }
    poll(fds.data(), fds.size(), patience);
    // Cleared first, so that a later change is seen in the next round.
    if (fds[0].revents != 0) ClearEvent(wake_.get());
    for (size_t i = 0; i < members.size(); ++i) {
      if (fds[i + 1].revents != 0 && !Drain(members[i]->event.get())) {
        members[i]->closed = true;
      }
    }
    MutexLock lock(&mu_);
    Decide();
  }
}

}  // namespace djinn::worker
