#include "coordinator/tables/job_recorder.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace djinn::coordinator {

void JobRecorder::Add(v1::RecordedJob job) {
  if (!records()) return;
  jobs_.emplace_hint(jobs_.end(),
                     absl::StrCat(absl::Dec(++last_, absl::kZeroPad20)),
                     std::move(job));
  if (jobs_.size() > max_jobs_) jobs_.erase(jobs_.begin());
}

Page<v1::RecordedJob> JobRecorder::List(const PageRange& range) const {
  const auto slice = Slice(jobs_, range);
  Page<v1::RecordedJob> page;
  page.last_key = slice.last_key;
  for (const auto& entry : slice.items) page.items.push_back(entry->second);
  return page;
}

}  // namespace djinn::coordinator
