// A thread that executes work piece by piece.
//
// PyTorch numbers autograd's nodes per thread, and a backward pass executes
// ready nodes by their numbers. So the order in which it adds up gradients
// depends on which thread made which node. A program's lanes are therefore
// threads on the CPU, too; otherwise its gradients would have the sums of
// another program.
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

  // Runs `work` and returns when it is done. `work` must not throw. One caller
  // at a time.
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
