// Plays a schedule on a cluster of its own and compares the results with the
// model.
#ifndef TESTS_SCHEDULES_PLAYER_H_
#define TESTS_SCHEDULES_PLAYER_H_

#include <memory>
#include <string>
#include <vector>

#include "client_lib/session/recording/session.h"
#include "common/base/mutex.h"
#include "tests/schedules/cluster.h"
#include "tests/schedules/fake_calls.h"
#include "tests/schedules/model.h"
#include "tests/schedules/schedule.h"

namespace djinn::schedules {

class Player {
 public:
  explicit Player(const Schedule& schedule);

  // Plays the schedule. Returns the errors in the order in which they were
  // noticed. If a wait does not end, names the threads that wait and aborts the
  // process.
  std::vector<std::string> Play();
  // Returns how many broken connections were resumed.
  uint64_t resumes();
  // Returns how many lost workers devices recovered from.
  uint64_t recoveries();
  // Returns how many checkpoints devices made.
  uint64_t checkpoints();
  // Returns how many values moved from worker to worker.
  uint64_t copies();

 private:
  // The progress of a step in its thread.
  enum class State { kWaiting, kRunning, kDone };

  void RunThread(int thread);
  void PlayStep(int index);
  // Waits for the steps that must come before.
  void AwaitTurn(int index);
  absl::Status Carry(const Step& step, std::vector<float>* values);
  absl::Status Record(const Step& step, FakeCall& call);
  absl::Status ReadFloats(const Step& step, int64_t count,
                          std::vector<float>* values);
  absl::Status CarryNonzero(const Step& step, std::vector<float>* values);
  absl::Status CarryRefused(const Step& step);
  absl::Status CarryUpload(const Step& step);
  absl::Status CarryEnd(const Step& step);
  absl::Status CarryLoss(const Step& step);
  // Waits until every worker has executed everything, including replays.
  void AwaitReplays(int thread);
  absl::Status CarryCheckpoint(const Step& step);
  absl::Status CloseSession(int index, absl::Duration timeout);
  // Returns whether the status of a step shows that its device ended, and the
  // schedule allows this end.
  bool IsEnd(int device, const absl::Status& status) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Finish(int index, const Step& step, bool had_ended,
              const absl::Status& status, const std::vector<float>& values)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  RemoteStorage* Handle(int storage) { return handles_[storage].get(); }
  RemoteStorage* Result(const Step& step, int64_t count);
  void Drop(int storage);

  void ReadEverything();
  void CheckCounts();
  void Close();
  void Complain(std::string what);

  const Schedule& schedule_;
  const int threads_before_;
  std::vector<std::vector<int>> before_;  // by step: steps that come first
  Cluster cluster_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::shared_ptr<VirtualDevice>> devices_;
  // The program's handles, by storage. The steps of a storage are ordered, and
  // therefore also the uses of its handle.
  std::vector<StoragePtr> handles_;

  // Held while a worker is lost.
  Mutex loss_mu_;
  // Losses since the replays were awaited, and those of them in which a worker
  // crashed.
  int losses_ ABSL_GUARDED_BY(loss_mu_) = 0;
  int crashes_ ABSL_GUARDED_BY(loss_mu_) = 0;
  Mutex mu_;
  CondVar changed_;
  Model model_ ABSL_GUARDED_BY(mu_);
  std::vector<State> states_ ABSL_GUARDED_BY(mu_);
  // Flags by device: whether a step that ends the device has begun, and whether
  // a call has failed since then, after which every call must fail.
  std::vector<bool> may_end_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> ended_ ABSL_GUARDED_BY(mu_);
  bool certain_ ABSL_GUARDED_BY(mu_) = true;  // no device may have ended
  uint64_t resumes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t recoveries_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t checkpoints_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t copies_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> complaints_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_PLAYER_H_
