// The mixed load on which the graph cache's hit rate is measured, and the most
// that any cache of its size could have hit.
#ifndef TESTS_BENCH_GRAPH_TRACE_H_
#define TESTS_BENCH_GRAPH_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace djinn::bench {

// Structures by number, in the order of their runs; the same for a seed on
// every machine. Sessions come and go, eight at a time, and take turns at
// random. A session is of one of these, and ends after so many passes:
//   - half of them serve one of 24 models, the popular ones more often (by
//     Zipf's law), 20 to 200 passes of 3 to 12 structures each, in one of 4
//     batch sizes, which makes them other structures;
//   - a quarter decode with one of 4 models: a token's structures differ with
//     the length so far, from 64 to 96, and are the same in every conversation;
//   - an eighth train one of 6 programs, 100 to 500 steps of 5 structures;
//   - an eighth explore: of 40 structures nine in ten are never seen again.
std::vector<uint32_t> MakeGraphTrace(uint64_t seed, size_t runs);

// Hits of the optimal policy (Belady's), which evicts what is used again last,
// with so many places.
size_t OptimalHits(const std::vector<uint32_t>& trace, size_t places);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_GRAPH_TRACE_H_
