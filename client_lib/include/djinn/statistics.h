// What a session has done so far, for programs, benchmarks and tests.
#ifndef CLIENT_LIB_INCLUDE_DJINN_STATISTICS_H_
#define CLIENT_LIB_INCLUDE_DJINN_STATISTICS_H_

#include <cstdint>

namespace djinn {

// Cumulative counters since the session opened.
struct Statistics {
  // Operator calls recorded (views and other calls without a node not counted).
  uint64_t calls = 0;
  // Calls whose result shapes had to be asked from the worker.
  uint64_t synchronous_calls = 0;
  // Runs sent, and structures defined for them.
  uint64_t runs = 0;
  uint64_t structures_defined = 0;
  // Structures for which the worker already had a compiled plan.
  uint64_t plan_cache_hits = 0;
  uint64_t reads = 0;
  // Of these, those that this process told by itself, without the worker.
  uint64_t reads_answered_here = 0;
  // Uploads by the way they took: small ones; those whose bytes were sent,
  // asked for or not; and those whose bytes the worker had.
  uint64_t uploads_inline = 0;
  uint64_t uploads_sent = 0;
  uint64_t uploads_already_held = 0;
  // Values copied from one virtual device to another, from worker to worker.
  uint64_t device_copies = 0;
  // On devices that span workers: values that a worker made again in place of
  // fetching them, and the bytes that this saved the way between workers.
  uint64_t values_made_again = 0;
  uint64_t bytes_not_fetched = 0;
  // Values of more than a few bytes that were fetched instead: nobody knows how
  // to make them, or what they were made of is gone; the workers do not promise
  // the same bits; the way or the device has not been measured lately; or
  // making them would take about as long, or more memory than there is.
  uint64_t fetched_not_repeatable = 0;
  uint64_t fetched_other_bits = 0;
  uint64_t fetched_not_measured = 0;
  uint64_t fetched_not_worth_it = 0;
  // Message and bulk payload bytes, client to worker and back.
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  // Connections to workers that broke and were taken up again, and the message
  // bytes sent a second time for it.
  uint64_t resumes = 0;
  uint64_t bytes_resent = 0;
  // Connections to workers over gRPC: made, found waiting from earlier ones of
  // this process' sessions, closed because nobody needed them, and broken.
  uint64_t connections_created = 0;
  uint64_t connections_reused = 0;
  uint64_t connections_closed = 0;
  uint64_t connections_failed = 0;
  // Structures that a worker asked for again.
  uint64_t needs_answered = 0;
  // Root errors the workers reported.
  uint64_t root_errors = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_STATISTICS_H_
