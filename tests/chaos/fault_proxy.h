// A network of our own between two programs: forwards connections on a Unix
// socket to another, and breaks them in the ways networks do.
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
  // Listens at `path` and forwards to the socket at `target`, which may come
  // and go. Dies when it cannot listen.
  FaultProxy(std::string path, std::string target);
  ~FaultProxy();

  // Closes every connection, in the middle of whatever it carries.
  void Cut();
  // Closes every connection after it carried so many more bytes, counted over
  // both directions: a message is halved more often than not.
  void CutAfter(uint64_t bytes);
  // Likewise, but closes only the connection that carries the last of them.
  void CutOneAfter(uint64_t bytes);
  // Connections are accepted and closed at once, or again served.
  void Refuse(bool refuse);
  // Nothing moves, and nobody is told: what both sides send is held back until
  // the network thaws.
  void Freeze(bool freeze);
  // What arrives is handed on so much later.
  void Delay(absl::Duration delay);
  // No more than so many bytes a second pass, over all connections and both
  // directions; 0: as many as there are.
  void Throttle(uint64_t bytes_per_second);
  // Serves well again.
  void Heal();

  uint64_t connections() const;
  uint64_t bytes() const;

 private:
  struct Connection;

  void Run();
  void Accept();
  // Takes what has arrived and hands on what is due. False: over.
  bool Forward(Connection* connection);
  void CloseAll();
  // How many bytes may pass now.
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

  // The thread's own.
  std::vector<std::unique_ptr<Connection>> connections_;
  std::thread thread_;
};

}  // namespace djinn

#endif  // TESTS_CHAOS_FAULT_PROXY_H_
