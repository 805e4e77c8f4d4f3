// Keeps the latest jobs, so that operators can replay them.
//
// Drops the oldest job when there are too many. Not thread-safe: the cluster's
// lock guards it.
#ifndef COORDINATOR_TABLES_JOB_RECORDER_H_
#define COORDINATOR_TABLES_JOB_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "coordinator/tables/page.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator {

class JobRecorder {
 public:
  // With `max_jobs` 0, nothing is to be recorded.
  explicit JobRecorder(size_t max_jobs) : max_jobs_(max_jobs) {}

  bool records() const { return max_jobs_ > 0; }
  void Add(v1::RecordedJob job);
  // Returns a page of jobs, the oldest first.
  Page<v1::RecordedJob> List(const PageRange& range) const;

 private:
  const size_t max_jobs_;
  uint64_t last_ = 0;
  // By number, as text of fixed length.
  std::map<std::string, v1::RecordedJob> jobs_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_JOB_RECORDER_H_
