// A thread that executes functions one by one.
//
// Lanes are threads on the CPU as well, because their gradients depend on it:
// PyTorch numbers autograd's nodes per thread, and a backward pass executes
// ready nodes by their numbers. The order in which it adds gradients therefore
// depends on which thread made which node.
#ifndef TESTS_RANDOM_PROGRAMS_LANE_THREAD_H_
#define TESTS_RANDOM_PROGRAMS_LANE_THREAD_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace djinn::random_programs {

class LaneThread {
 public:
  LaneThread();
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;
  ~LaneThread();

  // Runs `work` and returns when `work` has returned. `work` must not throw.
  // Only one caller at a time.
  void Run(const std::function<void()>& work);

 private:
  void Loop();

  Mutex mu_;
  CondVar changed_;
  const std::function<void()>* work_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_LANE_THREAD_H_
