// Simulates a network between two programs. It forwards connections on one Unix
// socket to another socket, and breaks them as networks do.
//
// One thread forwards everything. Thread-safe.
#ifndef TESTS_CHAOS_FAULT_PROXY_H_
#define TESTS_CHAOS_FAULT_PROXY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace djinn {

class FaultProxy {
 public:
  // Listens at `path` and forwards to the socket at `target`, which may appear
  // and disappear. Ends the process if it cannot listen.
  FaultProxy(std::string path, std::string target);
  ~FaultProxy();

  // Closes every connection, in the middle of any message.
  void Cut();
  // Closes every connection after this many further bytes, counted over both
  // directions. This usually cuts a message in half.
  void CutAfter(uint64_t bytes);
  // Counts bytes as CutAfter() does, but closes only the connection that
  // carries the last of them.
  void CutOneAfter(uint64_t bytes);
  // Closes new connections at once, or serves them again.
  void Refuse(bool refuse);
  // If `freeze`, silently holds back what both sides send. If not, forwards it,
  // beginning with what was held back.
  void Freeze(bool freeze);
  // Forwards bytes this much later than they arrive.
  void Delay(absl::Duration delay);
  // Limits the bytes per second over all connections and both directions in
  // total. 0 removes the limit.
  void Throttle(uint64_t bytes_per_second);
  // Ends all faults.
  void Heal();

  uint64_t connections() const;
  uint64_t bytes() const;

 private:
  struct Connection;

  void Run();
  void Accept();
  // Receives what has arrived and forwards what is due. Returns false when the
  // connection has ended.
  bool Forward(Connection* connection);
  void CloseAll();
  // Returns how many bytes may pass now.
  uint64_t Allowance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Wakes the thread.
  void Poke();

  const std::string path_, target_;
  int listener_ = -1;
  int poke_read_ = -1, poke_write_ = -1;

  mutable Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool cut_ ABSL_GUARDED_BY(mu_) = false;
  bool refuse_ ABSL_GUARDED_BY(mu_) = false;
  bool frozen_ ABSL_GUARDED_BY(mu_) = false;
  bool limited_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t left_ ABSL_GUARDED_BY(mu_) = 0;  // bytes, if limited
  bool cut_one_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration delay_ ABSL_GUARDED_BY(mu_);
  uint64_t throttle_ ABSL_GUARDED_BY(mu_) = 0;
  double allowance_ ABSL_GUARDED_BY(mu_) = 0;  // at that time
  absl::Duration allowed_at_ ABSL_GUARDED_BY(mu_);
  uint64_t accepted_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t forwarded_ ABSL_GUARDED_BY(mu_) = 0;

  // Used by the thread only.
  std::vector<std::unique_ptr<Connection>> connections_;
  std::thread thread_;
};

}  // namespace djinn

#endif  // TESTS_CHAOS_FAULT_PROXY_H_
