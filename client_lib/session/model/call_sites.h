// Numbers call sites, the places in the program that make calls, for error
// texts and for the coordinator's reports.
//
// A call carries only a small number, which never leaves the process. Graphs of
// equal calls therefore stay equal. The worker's error names a message and a
// node, and this process adds the call site.
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

// Describes where the program made a call. Every field is optional.
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

// The call sites of the process, numbered from 1. Thread-safe; never destroyed.
class CallSiteTable {
 public:
  // Exceeds the number of sites in a real program. Sites beyond this limit have
  // no number.
  static constexpr size_t kMaxSites = 1 << 16;

  static CallSiteTable& Global();

  // Returns the site's number, or 0 if the site is empty or the table is full.
  uint32_t Add(const CallSite& site);
  // Returns the site of a number that Add() returned; 0 is not allowed.
  CallSite Get(uint32_t number) const;

 private:
  mutable Mutex mu_;
  absl::flat_hash_map<CallSite, uint32_t> numbers_ ABSL_GUARDED_BY(mu_);
  std::vector<CallSite> sites_ ABSL_GUARDED_BY(mu_);
};

// Returns the known fields as text, such as ", called at model.py:12 in
// forward, in module Net.fc1".
std::string Describe(const CallSite& site);

// Returns the notes that the coordinator receives about a graph whose calls
// have these sites.
v1::GraphNotes NotesOf(const std::vector<uint32_t>& sites);

// Remembers the sites of the calls sent to one worker, for errors that the
// worker may report later. Not thread-safe.
class CallSiteLog {
 public:
  // Calls remembered; more than can be unfinished at a time.
  static constexpr size_t kMaxCalls = 1 << 20;
  // Errors whose site stays known after their call is forgotten.
  static constexpr size_t kMaxErrors = 1 << 12;

  // Adds the sites of a run's calls, by node. Sequences must ascend.
  void Add(uint64_t sequence, std::vector<uint32_t> sites);

  // Forgets the runs, because another worker counts sequences from the start.
  // Known errors keep their sites.
  void BeginAnew() {
    runs_.clear();
    calls_ = 0;
  }

  // Returns StatusFromDetail() with the site of the failed call, if it is
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
