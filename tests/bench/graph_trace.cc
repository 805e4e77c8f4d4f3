#include "tests/bench/graph_trace.h"

#include <iterator>
#include <random>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace djinn::bench {
namespace {

constexpr size_t kSessions = 8;

// What a program runs again and again, a pass at a time.
struct Session {
  std::vector<uint32_t> pass;
  // Of a decoder: passes, one behind the other, that differ.
  std::vector<std::vector<uint32_t>> tokens;
  size_t passes = 0;
  size_t done = 0;

  const std::vector<uint32_t>& current() const {
    return tokens.empty() ? pass : tokens[done % tokens.size()];
  }
};

class TraceMaker {
 public:
  explicit TraceMaker(uint64_t seed) : random_(seed) {}

  std::vector<uint32_t> Make(size_t runs) {
    std::vector<Session> sessions;
    for (size_t i = 0; i < kSessions; ++i) sessions.push_back(Begin());
    std::vector<uint32_t> trace;
    while (trace.size() < runs) {
      Session& session = sessions[Below(kSessions)];
      // A pass goes out at once: the program waits at its end.
      for (const uint32_t structure : session.current()) {
        trace.push_back(structure);
      }
      if (++session.done == session.passes) session = Begin();
    }
    trace.resize(runs);
    return trace;
  }

 private:
  // The standard's distributions differ between libraries, its engines do not.
  size_t Below(size_t bound) { return random_() % bound; }
  size_t Between(size_t low, size_t high) {
    return low + Below(high - low + 1);
  }
  // By Zipf's law: the first is twice as likely as the second.
  size_t Popular(size_t count) {
    double sum = 0;
    for (size_t i = 1; i <= count; ++i) sum += 1.0 / static_cast<double>(i);
    double left = sum * static_cast<double>(random_() >> 11) * 0x1p-53;
    for (size_t i = 0; i < count; ++i) {
      left -= 1.0 / static_cast<double>(i + 1);
      if (left < 0) return i;
    }
    return count - 1;
  }
  // The same number for the same name.
  uint32_t Structure(size_t kind, size_t which, size_t variant, size_t place) {
    const uint64_t name = ((kind * 64 + which) * 1024 + variant) * 1024 + place;
    const auto [found, added] = numbers_.try_emplace(name, next_);
    if (added) ++next_;
    return found->second;
  }

  Session Begin() {
    Session session;
    switch (Below(8)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const size_t model = Popular(24);
        const size_t batch = Below(4);
        for (size_t i = 0; i < 3 + model * 7 % 10; ++i) {
          session.pass.push_back(Structure(0, model, batch, i));
        }
        session.passes = Between(20, 200);
        break;
      }
      case 4:
      case 5: {
        const size_t model = Below(4);
        for (size_t length = 64; length <= 96; ++length) {
          std::vector<uint32_t>& token = session.tokens.emplace_back();
          for (size_t i = 0; i < 2; ++i) {
            token.push_back(Structure(1, model, length, i));
          }
        }
        session.passes = session.tokens.size();
        break;
      }
      case 6: {
        const size_t program = Below(6);
        for (size_t i = 0; i < 5; ++i) {
          session.pass.push_back(Structure(2, program, 0, i));
        }
        session.passes = Between(100, 500);
        break;
      }
      default:
        for (size_t i = 0; i < 40; ++i) {
          session.pass.push_back(Below(10) == 0 ? Structure(3, 0, 0, Below(100))
                                                : next_++);
        }
        session.passes = 1;
    }
    return session;
  }

  std::mt19937_64 random_;
  absl::flat_hash_map<uint64_t, uint32_t> numbers_;
  uint32_t next_ = 0;
};

}  // namespace

std::vector<uint32_t> MakeGraphTrace(uint64_t seed, size_t runs) {
  return TraceMaker(seed).Make(runs);
}

size_t OptimalHits(const std::vector<uint32_t>& trace, size_t places) {
  // When each run's structure is run next; beyond the trace: never.
  std::vector<size_t> next(trace.size());
  absl::flat_hash_map<uint32_t, size_t> seen;
  for (size_t i = trace.size(); i-- > 0;) {
    const auto found = seen.find(trace[i]);
    next[i] = found == seen.end() ? trace.size() + i : found->second;
    seen[trace[i]] = i;
  }
  // What is kept, by when it is used next.
  std::set<std::pair<size_t, uint32_t>> kept;
  size_t hits = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    const auto here = kept.find({i, trace[i]});
    if (here != kept.end()) {
      ++hits;
      kept.erase(here);
    } else if (kept.size() == places) {
      kept.erase(std::prev(kept.end()));
    }
    kept.insert({next[i], trace[i]});
  }
  return hits;
}

}  // namespace djinn::bench
