// Where in the program calls were made and what for: for the text of errors,
// and for the coordinator to show.
//
// A call carries a small number instead; the numbers are the process' own and
// never leave it: graphs of equal calls stay equal, and the worker's error,
// which names a message and a node, is completed here.
#ifndef CLIENT_LIB_SESSION_MODEL_CALL_SITES_H_
#define CLIENT_LIB_SESSION_MODEL_CALL_SITES_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/types.pb.h"

namespace djinn {

// Each may be left out.
struct CallSite {
  std::string location;  // "model.py:12 in forward"
  std::string module;    // "Net.encoder.fc1"
  v1::Phase phase = v1::PHASE_UNSPECIFIED;

  friend bool operator==(const CallSite& a, const CallSite& b) {
    return a.location == b.location && a.module == b.module &&
           a.phase == b.phase;
  }
  template <typename H>
  friend H AbslHashValue(H h, const CallSite& site) {
    return H::combine(std::move(h), site.location, site.module,
                      static_cast<int>(site.phase));
  }
};

// The process' call sites, numbered from 1. Thread-safe; never destroyed.
class CallSiteTable {
 public:
  // More places than a program has; those beyond it have no number.
  static constexpr size_t kMaxSites = 1 << 16;

  static CallSiteTable& Global();

  // 0 for a site that says nothing, and when the table is full.
  uint32_t Add(const CallSite& site);
  // `number` was returned by Add(), and is not 0.
  CallSite Get(uint32_t number) const;

 private:
  mutable Mutex mu_;
  absl::flat_hash_map<CallSite, uint32_t> numbers_ ABSL_GUARDED_BY(mu_);
  std::vector<CallSite> sites_ ABSL_GUARDED_BY(mu_);
};

// ", called at model.py:12 in forward, in module Net.fc1", of what is known.
std::string Describe(const CallSite& site);

// What the coordinator is told of a graph whose calls have these sites.
v1::GraphNotes NotesOf(const std::vector<uint32_t>& sites);

// The sites of the calls sent to one worker, for the errors it may still
// report. Not thread-safe.
class CallSiteLog {
 public:
  // Calls remembered, more than may be unfinished at a time.
  static constexpr size_t kMaxCalls = 1 << 20;
  // Errors whose site is remembered after their call is forgotten.
  static constexpr size_t kMaxErrors = 1 << 12;

  // The sites of the run's calls, by node; of growing sequences.
  void Add(uint64_t sequence, std::vector<uint32_t> sites);

  // Sequences begin anew, on another worker. Errors stay known.
  void BeginAnew() {
    runs_.clear();
    calls_ = 0;
  }

  // StatusFromDetail(), with the place of the call that failed when it is
  // known.
  absl::Status StatusOf(const v1::ErrorDetail& detail);

 private:
  struct Run {
    uint64_t sequence;
    std::vector<uint32_t> sites;
  };

  uint32_t Find(const v1::ErrorDetail& detail);

  std::deque<Run> runs_;
  size_t calls_ = 0;
  absl::flat_hash_map<uint64_t, uint32_t> errors_;  // by id
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_CALL_SITES_H_
