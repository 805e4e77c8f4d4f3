#include "tests/random_programs/lane_thread.h"

#include <ATen/Parallel.h>

namespace djinn::random_programs {

LaneThread::LaneThread() : thread_([this] { Loop(); }) {}

LaneThread::~LaneThread() {
  {
    MutexLock lock(&mu_);
    ended_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void LaneThread::Run(const std::function<void()>& work) {
  MutexLock lock(&mu_);
  work_ = &work;
  changed_.SignalAll();
  while (work_ != nullptr) changed_.Wait(&mu_);
}

void LaneThread::Loop() {
  // OpenMP gives a new thread its default number of threads, and MKL does the
  // same. Products would then have other bits than with the number that
  // at::set_num_threads() set.
  at::init_num_threads();
  MutexLock lock(&mu_);
  for (;;) {
    while (work_ == nullptr && !ended_) changed_.Wait(&mu_);
    if (work_ == nullptr) return;
    // The caller of Run() waits for the work.
    (*work_)();
    work_ = nullptr;
    changed_.SignalAll();
  }
}

}  // namespace djinn::random_programs
