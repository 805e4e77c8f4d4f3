#include "tests/schedules/watchdog.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

namespace djinn::schedules {
namespace {

struct Waits {
  Mutex mu;
  int last_key ABSL_GUARDED_BY(mu) = 0;
  std::map<int, std::string> by_key ABSL_GUARDED_BY(mu);
};

Waits& AllWaits() {
  static auto* const waits = new Waits;
  return *waits;
}

}  // namespace

WhoWaits::WhoWaits(std::string what)
    : key_([&] {
        Waits& waits = AllWaits();
        MutexLock lock(&waits.mu);
        waits.by_key.emplace(++waits.last_key, std::move(what));
        return waits.last_key;
      }()) {}

WhoWaits::~WhoWaits() {
  Waits& waits = AllWaits();
  MutexLock lock(&waits.mu);
  waits.by_key.erase(key_);
}

Watchdog::Watchdog(absl::Duration patience)
    : patience_(patience), thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void Watchdog::Progress(std::string text) {
  MutexLock lock(&mu_);
  text_ = std::move(text);
  ++progress_;
}

void Watchdog::Run() {
  MutexLock lock(&mu_);
  uint64_t seen = progress_;
  while (!stopping_) {
    const bool late = changed_.WaitWithTimeout(&mu_, patience_);
    if (stopping_) return;
    if (late && progress_ == seen && !text_.empty()) {
      std::fprintf(stderr, "hangs: %s", text_.c_str());
      Waits& waits = AllWaits();
      MutexLock waits_lock(&waits.mu);
      for (const auto& [key, what] : waits.by_key) {
        std::fprintf(stderr, "waits: %s\n", what.c_str());
      }
      std::abort();
    }
    seen = progress_;
  }
}

}  // namespace djinn::schedules
