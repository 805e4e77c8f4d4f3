// A file that hands what a worker learnt of its processor on to the next
// process: read at once, written now and then, and at the end.
//
// One that is damaged, too large, of another version or of another key is not
// used, which the log says once. It is written beside itself, forced to disk
// and put in its place at once, so that who ends in the middle leaves the old
// one. A file that cannot be written is tried again later.
//
// Thread-safe. Writes in a thread of its own: a disk that does not answer holds
// up nobody, but the end.
#ifndef GPU_WORKER_DEVICE_CPU_FACTS_FILE_H_
#define GPU_WORKER_DEVICE_CPU_FACTS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "gpu_worker/device/cpu/learnt_facts.h"

namespace djinn::worker {

class FactsFile {
 public:
  // Between two writes.
  static constexpr absl::Duration kInterval = absl::Minutes(5);
  // More is not read; as many facts as there may be take less.
  static constexpr size_t kMaxBytes = size_t{4} << 20;

  // Adds what the file has to `facts`. The clock outlives this.
  FactsFile(std::string path, std::string key,
            std::shared_ptr<LearntFacts> facts, Clock* clock);
  // Writes what is new.
  ~FactsFile();
  FactsFile(const FactsFile&) = delete;
  FactsFile& operator=(const FactsFile&) = delete;

  // Has it written if that is due and something is new.
  void Tick();

  // What of it was written.
  uint64_t written_changes() const;

 private:
  absl::Status Read() const;
  absl::Status Write(const std::string& text) const;
  void Save();
  void Run();

  const std::string path_;
  const std::string key_;
  const std::shared_ptr<LearntFacts> facts_;
  Clock* const clock_;
  mutable Mutex mu_;
  CondVar changed_;
  absl::Duration next_ ABSL_GUARDED_BY(mu_);
  uint64_t written_ ABSL_GUARDED_BY(mu_) = 0;
  bool due_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // The thread's: it said that it cannot write.
  bool told_ = false;
  std::thread writer_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_FACTS_FILE_H_
