#include "gpu_worker/service/read_pacer.h"

#include <iterator>
#include <utility>

namespace djinn::worker {

ReadPacer::ReadPacer(Clock* clock)
    : clock_(clock), thread_([this] { Run(); }) {}

ReadPacer::~ReadPacer() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void ReadPacer::Watch(std::weak_ptr<Reader> reader) {
  MutexLock lock(&mu_);
  watched_.push_back(std::move(reader));
  if (watched_.size() == 1) changed_.SignalAll();
}

void ReadPacer::Run() {
  std::vector<std::weak_ptr<Reader>> readers;
  for (;;) {
    {
      MutexLock lock(&mu_);
      // Puts these readers behind the ones that arrived meanwhile.
      watched_.insert(watched_.end(), std::make_move_iterator(readers.begin()),
                      std::make_move_iterator(readers.end()));
      while (!stopping_ && watched_.empty()) changed_.Wait(&mu_);
      const absl::Duration next = clock_->Monotonic() + kPatience;
      for (absl::Duration now = clock_->Monotonic(); !stopping_ && now < next;
           now = clock_->Monotonic()) {
        clock_->Wait(&changed_, &mu_, next - now);
      }
      if (stopping_) return;
      readers = std::exchange(watched_, {});
    }
    const absl::Duration limit = clock_->Monotonic() - kPatience;
    std::erase_if(readers, [limit](const std::weak_ptr<Reader>& watched) {
      const std::shared_ptr<Reader> reader = watched.lock();
      return reader == nullptr || !reader->ReadOnIfDue(limit);
    });
  }
}

}  // namespace djinn::worker
